"""Execution: values, strides and identity of outputs, what is cached, and threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from fusewright.core.errors import (
    CompileError,
    ExecutionOrderError,
    InputError,
    SchedulerError,
)
from fusewright.core.options import Options
from fusewright.host import FinishedSchedule, FusionExecutor
from fusewright.host.kernels import settings
from fusewright.runtime.targets import SimulatedTarget
from fusewright.schedule import Schedule
from fusewright.schedulers import (
    CompileParams,
    PointwiseScheduler,
    Registry,
    Reject,
)
from tests.host.fusions import DataType, Definition


def add_scaled():
    """out = (x + y) * s"""
    d = Definition()
    x, y, s = d.tensor(), d.tensor(contiguity=False), d.scalar()
    d.output(d.mul(d.add(x, y), s))
    return d.executor()


def test_values_for_any_strides_and_scalars(target):
    executor = add_scaled()
    x = torch.randn(6, 8, device=target)
    for y in (
        torch.randn(6, 8, device=target),
        torch.randn(8, 6, device=target).t(),
        torch.randn(12, 16, device=target)[::2, ::2],
        torch.randn(6, 1, device=target).expand(6, 8),
    ):
        for s in (2.5, 3, True):
            (out,) = executor.execute([x, y, s])
            torch.testing.assert_close(out, (x + y) * s)


def test_inputs_may_be_nested_once():
    x = torch.ones(2, 4)
    (out,) = add_scaled().execute([[x, x], 2.0])
    torch.testing.assert_close(out, 4 * x)


def test_new_size_with_equal_parameters_compiles_nothing():
    executor = add_scaled()
    kernels = set()
    for rows in (8, 16, 24):
        x = torch.randn(rows, 8)
        executor.execute([x, x, 1.0])
        kernels |= set(executor.kernels_for([x, x, 1.0]))
    assert len(kernels) == 1


def test_kernels_for_unseen_inputs_is_an_error():
    executor = add_scaled()
    x = torch.randn(4, 8)
    with pytest.raises(ExecutionOrderError, match="not compiled"):
        executor.kernels_for([x, x, 1.0])
    executor.compile([x, x, 1.0])
    (kernel,) = executor.kernels_for([x, x, 7.0])
    assert kernel.scheduler == "pointwise" and kernel.reason


def test_repeated_call_binds_once(monkeypatch):
    executor = add_scaled()
    x = torch.randn(4, 8)
    calls = []
    bound = executor._bound

    def counted(*args):
        calls.append(1)
        return bound(*args)

    monkeypatch.setattr(executor, "_bound", counted)
    for s in (1.0, 2.0, 3.0):
        executor.execute([x, x, s])
    assert len(calls) == 1
    executor.execute([x, x, 1])  # another class of scalar
    executor.execute([x, x.t().contiguous().t(), 1.0])  # other strides
    assert len(calls) == 3


def test_misaligned_pointer_is_another_signature(target):
    executor = add_scaled()
    whole = torch.randn(65, device=target)
    for start in (0, 1):
        x = whole[start : start + 64].view(8, 8)
        (out,) = executor.execute([x, x, 1.0])
        torch.testing.assert_close(out, 2 * x)


def test_segments_run_in_order_and_free_between(target):
    d = Definition()
    x = d.tensor()
    a = d.cut(d.exp(x))
    b = d.cut(d.mul(a, x))
    d.output(d.add(b, x))
    executor = d.executor()
    value = torch.randn(5, 8, device=target)
    (out,) = executor.execute([value])
    torch.testing.assert_close(out, value.exp() * value + value)
    program = executor.compile([value])
    assert len(program.kernels) == 3
    text = str(program.program)
    assert text.count("allocate intermediate") == 2 and text.count("free") == 2


def test_zero_size_tensors(target):
    executor = add_scaled()
    for shape in ((0, 8), (8, 0), (0, 0)):
        x = torch.randn(shape, device=target)
        (out,) = executor.execute([x, x, 1.0])
        assert out.shape == shape and out.device == x.device


def test_rank_0_tensors_on_device_and_host(target):
    d = Definition()
    x, a, b = d.tensor(), d.tensor(()), d.tensor((), is_cpu=True)
    d.output(d.add(d.mul(x, a), b))
    value = torch.randn(3, 4, device=target)
    (out,) = d.executor().execute([value, torch.tensor(2.0, device=target), torch.tensor(5.0)])
    torch.testing.assert_close(out, value * 2 + 5)


def test_host_scalars_are_computed_at_each_call():
    d = Definition()
    x, s, n = d.tensor(), d.scalar(), d.scalar(DataType.Int)
    d.output(d.mul(x, d.add(d.mul(s, 2.0), d.neg(n))))
    executor = d.executor()
    value = torch.ones(2, 4)
    for a, b in ((1.0, 3), (0.5, -7)):
        (out,) = executor.execute([value, a, b])
        torch.testing.assert_close(out, value * (2 * a - b))


@pytest.mark.parametrize("dtype", [DataType.Half, DataType.BFloat16, DataType.ComplexFloat, DataType.Int])
def test_scalars_of_other_types(dtype, target):
    d = Definition()
    x, s = d.tensor((-1,), dtype=dtype), d.scalar(dtype)
    d.output(d.add(x, s))
    value = torch.arange(8, device=target).to(dtype.torch)
    given = 2 + 1j if dtype.is_complex else 3
    (out,) = d.executor().execute([value, given])
    assert torch.equal(out.cpu(), (value.to(out.dtype) + given).cpu())


def test_lazily_conjugated_input(target):
    d = Definition()
    d.output(d.mul(d.tensor((-1,), dtype=DataType.ComplexFloat), 2.0))
    executor = d.executor()
    value = torch.randn(4, dtype=torch.complex64, device=target)
    for given in (value, value.conj()):
        torch.testing.assert_close(executor.execute([given])[0], given * 2)


# ---- outputs ---------------------------------------------------------------------------------------


def test_forwarded_inputs_are_returned_themselves():
    d = Definition()
    x, y = d.tensor(), d.tensor()
    d.output(y)
    d.output(d.neg(x))
    d.output(y)
    a, b = torch.randn(2, 4), torch.randn(2, 4)
    first, _, last = d.executor().execute([a, b])
    assert first is b and last is b


def test_only_forwarded_inputs_need_no_kernel():
    d = Definition()
    d.output(d.tensor())
    executor = d.executor()
    x = torch.randn(2, 4)
    assert executor.execute([x])[0] is x
    assert executor.kernels_for([x]) == ()


def test_output_stride_order(target):
    d = Definition()
    x = d.tensor((-1, -1, -1))
    d.output(d.neg(x), stride_order=[0, 2, 1])
    value = torch.randn(2, 3, 4, device=target)
    (out,) = d.executor().execute([value])
    assert out.stride() == (1, 8, 2)
    torch.testing.assert_close(out, -value)


def aliased(d, x, out):
    """The documented example: out, out in x, out, x."""
    d.output(out)
    d.output(out, x)
    d.output(out)
    d.output(x)
    return d.executor()


def test_aliased_output_is_written_into_the_input(target):
    d = Definition()
    x = d.tensor()
    executor = aliased(d, x, d.mul(x, 3.0))
    value = torch.randn(4, 8, device=target)
    before = value.clone()
    outputs = executor.execute([value])
    assert len(outputs) == 3 and all(o.data_ptr() == value.data_ptr() for o in outputs)
    torch.testing.assert_close(value, before * 3)
    text = str(executor.compile([value]).program)
    assert "is stored in T0" in text and "allocate" not in text, "an elementwise update needs no copy"


def test_aliased_output_that_reads_elsewhere_goes_through_a_copy(target):
    d = Definition()
    x = d.tensor((8, 8), contiguity=True)
    d.output(d.neg(d.permute(x, [1, 0])), x)
    executor = d.executor()
    value = torch.randn(8, 8, device=target)
    expected = -value.t()
    assert executor.execute([value]) == []
    torch.testing.assert_close(value, expected)


def test_aliased_input_that_a_later_kernel_reads(target):
    d = Definition()
    x = d.tensor()
    a = d.mul(x, 2.0)
    d.output(a, x)
    d.output(d.add(d.cut(a), x))
    value = torch.randn(4, 8, device=target)
    before = value.clone()
    (out,) = d.executor().execute([value])
    torch.testing.assert_close(out, before * 3)
    torch.testing.assert_close(value, before * 2)


def test_memory_that_several_elements_share_is_not_written_in_place(target):
    d = Definition()
    x = d.tensor(contiguity=False)
    d.output(d.add(x, x), x)
    executor = d.executor()
    shared = torch.zeros(1, 4, device=target).expand(3, 4)
    with pytest.raises(
        InputError, match=r"(?s)written in place.*several of whose elements are one in memory"
    ):
        executor.execute([shared])
    assert not shared.any()
    own = torch.ones(3, 4, device=target)
    executor.execute([own])
    assert torch.equal(own, torch.full_like(own, 2))


def test_alias_of_a_strided_input(target):
    d = Definition()
    x = d.tensor(contiguity=False)
    d.output(d.neg(x), x)
    whole = torch.randn(8, 16, device=target)
    before = whole.clone()
    assert d.executor().execute([whole[:, ::2]]) == []
    torch.testing.assert_close(whole[:, ::2], -before[:, ::2])
    assert torch.equal(whole[:, 1::2], before[:, 1::2])


# ---- options, schedules, failures, threads -----------------------------------------------------------


def test_options_are_part_of_the_key():
    executor = add_scaled()
    x = torch.randn(4, 8)
    small = Options(sim_device="l4")
    executor.execute([x, x, 1.0])
    executor.execute([x, x, 1.0], options=small)
    (a,), (b,) = executor.kernels_for([x, x, 1.0]), executor.kernels_for([x, x, 1.0], options=small)
    assert a.hardware.arch == "sm_90a" and b.hardware.arch == "sm_89"
    # The same options in another object are the same programs.
    assert executor.kernels_for([x, x, 1.0], options=Options(sim_device="l4")) == (b,)


def test_switches_without_effect_compile_nothing_and_with_one_are_kept():
    executor = add_scaled()
    x = torch.randn(4, 8)
    executor.execute([x, x, 1.0])
    silent = executor.options.with_switches(enable="fuse_matmul", disable="magic_zero")
    assert executor.kernels_for([x, x, 1.0], options=silent) == executor.kernels_for([x, x, 1.0])
    fast = executor.options.with_switches(enable="fast_math")
    executor.execute([x, x, 1.0], options=fast)
    assert executor.kernels_for([x, x, 1.0], options=fast) != executor.kernels_for([x, x, 1.0])
    latest = executor._latest
    executor.execute([x, x, 1.0], options=executor.options.with_switches(enable=["fast_math"]))
    assert executor._latest is latest


def test_user_schedule_makes_one_kernel(target):
    executor = add_scaled()
    schedule = Schedule(executor.fusion)
    schedule.inline_most()
    x = torch.randn(4, 8, device=target)
    finished = FinishedSchedule(schedule)
    (out,) = executor.execute([x, x, 2.0], user_schedule=finished)
    torch.testing.assert_close(out, 4 * x)
    (kernel,) = executor.kernels_for([x, x, 2.0], user_schedule=finished)
    assert kernel.scheduler == "user" and kernel.params is None


class FailsOnce(PointwiseScheduler):
    def __init__(self) -> None:
        self.failures = 1

    def apply(self, schedule, params) -> None:
        if self.failures:
            self.failures -= 1
            raise ValueError("broken")
        super().apply(schedule, params)


def test_failed_call_leaves_the_next_one_intact():
    d = Definition()
    d.output(d.neg(d.tensor()))
    executor = d.executor(Registry([FailsOnce()]))
    x = torch.randn(2, 4)
    with pytest.raises(SchedulerError, match="_pointwise_ failed in apply: ValueError: broken"):
        executor.execute([x])
    torch.testing.assert_close(executor.execute([x])[0], -x)


def test_kernel_that_does_not_compile_comes_with_the_script(monkeypatch):
    def refuse(*_):
        raise CompileError("NVRTC refused", log="kernel(3): error", source="int broken = ;")

    d = Definition()
    x = d.tensor()
    d.output(d.exp(x))
    executor, value = FusionExecutor(d.fusion, repro=lambda inputs: "the script"), torch.randn(2, 3)
    kept = value.clone()
    with monkeypatch.context() as patch:
        patch.setattr(SimulatedTarget, "launcher", refuse)
        with pytest.raises(CompileError) as caught:
            executor.execute([value])
    assert caught.value.repro == "the script" and "the script" in str(caught.value)
    (out,) = executor.execute([value])
    assert torch.equal(value, kept)
    torch.testing.assert_close(out, kept.exp())


def test_scalar_beyond_its_type_is_named_at_repeated_calls_too():
    d = Definition()
    x, n = d.tensor([-1]), d.scalar(DataType.Int)
    d.output(d.mul(x, n))
    executor, value = d.executor(), torch.ones(4)
    executor.execute([value, 2])
    with pytest.raises(InputError, match=r"Scalar value 36893488147419103232 is not compatible .*: int64_t"):
        executor.execute([value, 2**65])
    (out,) = executor.execute([value, 3])
    assert torch.equal(out, torch.full((4,), 3.0))


def test_threads_share_one_compilation():
    compiled = []

    class Counting(PointwiseScheduler):
        def apply(self, schedule, params) -> None:
            compiled.append(1)
            super().apply(schedule, params)

    d = Definition()
    x = d.tensor()
    d.output(d.exp(x))
    executor = d.executor(Registry([Counting()]))
    value = torch.randn(8, 8)
    barrier = threading.Barrier(8)
    results: list[torch.Tensor] = []

    def call() -> None:
        barrier.wait()
        results.extend(executor.execute([value]))

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiled) == 1 and len(results) == 8
    for out in results:
        torch.testing.assert_close(out, value.exp())


def test_threads_with_many_signatures_and_a_few_programs(monkeypatch):
    """Programs come and go while other threads look theirs up."""
    monkeypatch.setattr(settings, "MAX_PROGRAMS", 2)
    d = Definition()
    d.output(d.neg(d.tensor((-1,))))
    executor = d.executor()
    inputs = [torch.randn(n) for n in range(16, 28)]
    executor.execute([inputs[0]])

    def call(number: int) -> None:
        for i in range(24):
            x = inputs[(number * 5 + i) % len(inputs)]
            assert torch.equal(executor.execute([x])[0], -x)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(call, range(6)))
    assert len(executor._latest.programs) == 2


def with_index_type(planner, index_type):
    """The planner, with params of this index type."""

    def plan(facts, hardware):
        proposal = planner(facts, hardware)
        return replace(
            proposal, params=replace(proposal.params, cparams=CompileParams(index_type=index_type))
        )

    return planner if isinstance(planner, Reject) else plan


def test_indices_that_are_too_narrow_are_refused():
    class Narrow(PointwiseScheduler):
        def prepare(self, fusion):
            return with_index_type(super().prepare(fusion), DataType.Int32)

    d = Definition()
    d.output(d.neg(d.tensor(contiguity=False)))
    executor = d.executor(Registry([Narrow()]))
    small, large = (torch.ones(1, 1).expand(2**n, 2**n) for n in (4, 17))
    [kernel] = executor.compile([small]).kernels
    assert kernel.index_dtype is DataType.Int32
    with pytest.raises(
        SchedulerError, match=r"`cparams\.index_type`: expected Int or None, for offsets beyond 32"
    ):
        executor.compile([large])


def test_heuristics_may_choose_wide_indices():
    class Wide(PointwiseScheduler):
        def prepare(self, fusion):
            return with_index_type(super().prepare(fusion), DataType.Int)

    d = Definition()
    d.output(d.neg(d.tensor()))
    [kernel] = d.executor(Registry([Wide()])).compile([torch.ones(4, 4)]).kernels
    assert kernel.index_dtype is DataType.Int
