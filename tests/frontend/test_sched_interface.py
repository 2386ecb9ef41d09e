"""`fd.sched` call by call, kernels of several, and tensors scheduled while they are defined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fusewright import (
    CacheOp,
    DeviceMesh,
    FusionDefinition,
    LoadStoreOpType,
    MemoryType,
    ParallelType,
    SchedulerType,
)
from fusewright.core.errors import ArgumentTypeError, FusewrightError, RejectedError, ScheduleError


class Sums(FusionDefinition):
    """Sums over the last dimension, and exp of them."""

    def definition(self) -> None:
        self.x = self.define_tensor([-1, -1], contiguity=True)
        self.sums = self.ops.sum(self.x, 1)
        self.out = self.ops.exp(self.sums)
        self.add_output(self.sums)
        self.add_output(self.out)


def opened(kind: type[Sums] = Sums) -> Sums:
    fd = kind()
    fd._setup_schedule([torch.ones(8, 64)])
    return fd


def loops(fd: Sums, tensor: Any) -> str:
    return fd.sched.to_string(tensor)


# A primitive, and what is in the text of the sums afterwards.
CALLS: list[tuple[Callable[[Sums], Any], str]] = [
    (lambda fd: fd.sched.split(fd.sums, 1, 4), "rS6{4}"),
    (lambda fd: fd.sched.split(arg=fd.sums, dim=-1, factor=4, inner_split=False), "rS5{4}"),
    (lambda fd: fd.sums.inner_split(0, 2), "iS6{2}"),
    (lambda fd: fd.sums.outer_split(0, 2), "iS5{2}"),
    (lambda fd: fd.sched.merge(fd.x, -2), "iS2{i0}, rS3{i1}"),
    (lambda fd: fd.sched.reorder(fd.sums, {0: 1}), "rS3{i1}, iS2{i0}"),
    (lambda fd: fd.sched.reorder(arg=fd.sums, old2new={}), "iS2{i0}, rS3{i1}"),
    (lambda fd: fd.sums.axis(0).parallelize(ParallelType.grid_x), "iblockIdx.x2{i0}"),
    (lambda fd: fd.sched.parallelize(fd.sums, -1, ParallelType.block_x), "rthreadIdx.x3{i1}"),
]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_a_primitive_and_the_text_of_its_tensor(number: int) -> None:
    fd = opened()
    call, text = CALLS[number]
    call(fd)
    assert text in loops(fd, fd.sums)
    assert loops(fd, fd.sums) in fd.sched.user_schedule_ir()


def _bound(tensor: Any) -> Any:
    return tensor.parallelize(0, ParallelType.grid_x)


# A call of the reference's direct front end by its keywords -> what is in the text of its tensor afterwards.
DIRECT_CALLS: list[tuple[Callable[[Sums], Any], str]] = [
    (lambda fd: fd.sums.split(axis=-1, factor=4, inner_split=False), "rS5{4}"),
    (lambda fd: fd.sums.outer_split(axis=0, factor=2).merge(axis_o=0, axis_i=1), "iS7{( 2*ceilDiv(i0, 2) )}"),
    (lambda fd: fd.sums.split(1, 4).rfactor(axes=[2]), "rS11{( ceilDiv(i1, 4) )}"),
    (lambda fd: fd.sums.reorder(old2new={0: 1}), "rS3{i1}, iS2{i0}"),
    (lambda fd: fd.sums.axis(index=0).parallelize(parallel_type=ParallelType.grid_x), "blockIdx.x2{i0}"),
    (
        lambda fd: fd.sched.transform_like(reference_tv=fd.out.split(0, 2), selected_tensors=[fd.sums]),
        "{2}, rS3{i1}",
    ),
    (lambda fd: fd.sched.parallelize_like(reference_tv=_bound(fd.out)), "iblockIdx.x2{i0}"),
    (lambda fd: fd.sched.inline_at(reference_tv=fd.out, pos=-1, selected_tensors=[]), "ca_pos( 1 )"),
    (lambda fd: fd.sched.bounded_transform_backward(fd.out.split(0, 2), -1, [fd.sums]), "{2}, rS3{i1}"),
]


@pytest.mark.parametrize("number", range(len(DIRECT_CALLS)))
def test_a_call_of_the_direct_front_end(number: int) -> None:
    fd = opened()
    call, text = DIRECT_CALLS[number]
    call(fd)
    assert text in loops(fd, fd.sums)


def test_meshes_are_of_one_device() -> None:
    fd, mesh = opened(), DeviceMesh([0])
    assert mesh == DeviceMesh(torch.tensor([0])) and (mesh.size, mesh.shape) == (1, (1,))
    before = fd.sched.to_python()
    fd.sched._set_device_mesh(fd.sums, mesh)
    fd.sums.set_device_mesh(mesh).swizzle1d(-1, ParallelType.mesh_x)
    assert fd.sched.to_python() == before
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: fd.sums.set_device_mesh(DeviceMesh([0, 1])), "runs on one device.*given: 2: DeviceMesh"),
        (lambda: fd.sums.set_device_mesh(0), "mesh: DeviceMesh"),  # type: ignore[arg-type]
        (lambda: fd.sums.swizzle1d(2, ParallelType.mesh_x), "boundary index 2"),
        (lambda: fd.sums.swizzle1d(0, ParallelType.block_x), "mesh_x, mesh_y or mesh_z"),
        (lambda: DeviceMesh("0"), "a list of ints"),  # type: ignore[arg-type]
    ]
    for call, problem in wrong:
        with pytest.raises((ArgumentTypeError, ScheduleError), match=f"(?s){problem}"):
            call()


def test_schedulers_are_asked_about_a_definition_and_inputs() -> None:
    """The forms of the reference's direct front end, whose first argument is the fusion."""
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.sum(fd.define_tensor([-1, -1], contiguity=True), 1))
    inputs, sched = [torch.ones(8, 64)], fd.sched
    assert sched.find_compatible_schedulers(fd, inputs) == [SchedulerType.reduction]
    assert not sched.can_schedule(fd, SchedulerType.pointwise, inputs)[0]
    assert sched.can_schedule(fusion=fd, scheduler_type=SchedulerType.reduction, inputs=inputs) == (True, "")
    params = sched.compute_heuristics(fd, SchedulerType.reduction, inputs)
    assert sched.compute_heuristics(fd, "reduction", inputs) == params
    assert fd._open_schedule is None and not fd._exist_schedule(inputs)

    assert sched.schedule(fd, SchedulerType.reduction, inputs) == params
    torch.testing.assert_close(fd.execute(inputs)[0], inputs[0].sum(1))
    assert [kernel.scheduler for kernel in fd._last_kernels()] == ["user"]
    fd._setup_schedule([torch.ones(4, 64)])
    params.lparams.bdimx = 32
    sched.schedule(fd, "reduction", heuristic_params=params)
    fd._finalize_schedule([torch.ones(4, 64)])
    assert fd.kernels_for([torch.ones(4, 64)])[0].params == params.freeze()

    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: sched.can_schedule(opened(), SchedulerType.reduction, inputs), "another definition"),
        (lambda: sched.can_schedule(fd, SchedulerType.reduction), r"\(fusion, scheduler_type, inputs\)"),  # type: ignore[call-overload]
        (lambda: sched.schedule(fd, SchedulerType.reduction, params), "outside of a schedule"),
        (lambda: sched.find_compatible_schedulers(fd, [torch.ones(8, 64).double()]), "dtype float"),
    ]
    for call, problem in wrong:
        with pytest.raises(FusewrightError, match=problem):
            call()


def test_new_tensors_have_names() -> None:
    fd = opened()
    sched = fd.sched
    copy = sched.cache_after(fd.x, LoadStoreOpType.set, CacheOp.streaming)
    sched.set_memory_type(copy, MemoryType.shared)
    sched.set_allocation_as_loop(copy)
    fork = sched.cache_fork(fd.sums)
    value = sched.cache_before(fd.out, op_type=LoadStoreOpType.set)
    fd.sums.split(1, 32)
    partial = sched.reduction_factor(fd.sums, dims=[-1])
    assert [sched.is_reduction(t) for t in (fd.x, copy, fd.sums, partial, value)] == [0, 0, 1, 1, 0]
    assert len(sched.tensors()) == 7
    names = {"T0_copy": copy, "T1_output": fork, "T2_value": value, "T1_partial": partial, "T1": fd.sums}
    for name, tensor in names.items():
        assert sched.to_string(sched.tensor(name)) == sched.to_string(tensor)
    for name, tensor in names.items():
        assert sched.to_string(tensor).startswith(f"{name}_")
    assert sched.to_string(sched.tensor(0)) == sched.to_string(fd.x)
    with pytest.raises(ScheduleError, match="expected: one of T0, T1, T2, T0_copy") as caught:
        sched.tensor("T9")
    assert "given: T9" in str(caught.value)
    with pytest.raises(ArgumentTypeError, match="name: str or int"):
        sched.tensor(fd.x)
    with pytest.raises(ScheduleError, match="T0 is an input and lies as it is passed"):
        sched.set_allocation_as_loop(fd.x)


def test_an_output_lies_as_its_definition_says() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        out = fd.ops.exp(x)
        fd.add_output(out)
    fd._setup_schedule([torch.ones(4, 8)])
    out.split(1, 4)
    out.merge(0)
    fd.sched.set_allocation_as_loop(out)
    out.reorder({0: 1})
    with pytest.raises(ScheduleError, match="T1 is an output and lies in memory as its definition says"):
        fd.sched.set_allocation_as_loop(out)


def test_the_allocation_domain_is_an_order_of_loop_axes(target: torch.device) -> None:
    """Of a shared tensor; registers and outputs have one order, and a call for another says so."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([8, 16], contiguity=True)
        tile = fd.ops.exp(x)
        out = tile + 1.0
        fd.add_output(out)
    given = [torch.randn(8, 16, device=target)]
    fd._setup_schedule(given)
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: tile.set_allocation_domain([1, 0], True), "a list of axes, x.axis"),  # type: ignore[list-item]
        (lambda: tile.set_allocation_domain([x.axis(0)], True), r"axes of Tensor\(index=1"),
        (lambda: tile.set_allocation_domain([tile.axis(0)], False), "new_contiguity: True"),
        (lambda: tile.set_allocation_domain([tile.axis(1), tile.axis(0)], True), "set_memory_type places"),
        (lambda: out.set_allocation_domain([out.axis(1), out.axis(0)], True), r"the axes \[0, 1\]"),
        (lambda: x.set_allocation_domain([x.axis(0), x.axis(1)], True), "T0 is an input"),
    ]
    for call, problem in wrong:
        with pytest.raises((ArgumentTypeError, ScheduleError), match=f"(?s){problem}"):
            call()
    tile.set_memory_type(MemoryType.shared)
    tile.set_allocation_domain([tile.axis(-1), tile.axis(0)], new_contiguity=True)
    out.set_allocation_domain([out.axis(0), out.axis(1)], new_contiguity=True)
    assert "store_along(T1, [-1, 0])" in fd.sched.to_python()
    fd._finalize_schedule(given)
    torch.testing.assert_close(fd.execute(given)[0], given[0].exp() + 1.0)


def test_which_schedulers_take_it_and_why_not() -> None:
    """A reduction with nothing after it is no case for the persistent scheduler."""
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.sum(fd.define_tensor([-1, -1], contiguity=True), 1))
    fd._setup_schedule([torch.ones(8, 64)])
    sched = fd.sched
    assert sched.find_compatible_schedulers() == [SchedulerType.reduction]
    reasons = {
        "pointwise": "cannot find reference tensor",
        "inner_persistent": "nothing uses the result of the reduction",
        "matmul": "there is no such scheduler (yet)",
    }
    for name, reason in reasons.items():
        accepted, text = sched.can_schedule(SchedulerType[name])
        assert not accepted and text.strip() == f"Scheduler _{name}_ ***rejected*** because : {reason}"
        with pytest.raises(RejectedError) as caught:
            sched.schedule(SchedulerType[name])
        assert text in str(caught.value)
    with pytest.raises(RejectedError, match="_matmul_"):
        sched.compute_matmul_heuristics()


def test_hyperparameters_are_what_a_kernel_of_rows_and_columns_has() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        fd.add_output(fd.ops.sum(x, 0))
        fd.add_output(fd.ops.sum(x, 1))
    given = torch.randn(40, 512)
    fd._setup_schedule([given])
    asked: Any = fd.sched.schedule_hyperparameters()
    assert (asked.vectorize_factor, asked.unroll_factor, asked.is_warp_specialized) == (1, 1, False)
    assert (asked.threads_per_block_min, asked.threads_per_block_max) == (1, 1)
    asked.vectorize_factor, asked.unroll_factor, asked.threads_per_block_max = 2, 4, 128
    params: Any = fd.sched.compute_heuristics(SchedulerType.inner_outer)
    assert (params.vectorization_factor, params.unroll_factor) == (2, 4)
    assert params.lparams.bdimx * params.lparams.bdimy * params.lparams.bdimz <= 128
    fd.sched.schedule()
    fd._finalize_schedule([given])
    for out, dim in zip(fd.execute([given]), (0, 1), strict=True):
        torch.testing.assert_close(out, given.sum(dim), rtol=1e-5, atol=1e-4)


# ---- kernels of a fusion -----------------------------------------------------------------------------------


class Several(FusionDefinition):
    """Two kernels, and what torch computes between them."""

    def definition(self) -> None:
        a = self.define_tensor([-1, -1], contiguity=True)
        b = self.define_tensor([-1, -1], contiguity=True)
        self.e = self.ops.exp(a)
        self.p = self.ops.matmul(self.e, b)
        self.add_output(self.ops.softmax(self.p, 1))


PAIR = [torch.randn(16, 32), torch.randn(32, 64)]


def test_a_kernel_of_several_is_scheduled_by_hand() -> None:
    """In `schedule()`, or for one call; the other kernels stay automatic."""
    automatic = Several()
    (expected,) = automatic.execute(PAIR)
    text = automatic.last_schedule()
    first = automatic._last_kernels()[0]
    names: dict[str, Any] = {}
    exec("from fusewright import *", names)
    exec(text, names)

    class Pasted(Several):
        schedule = names["schedule"]

    pasted = Pasted()
    for fd in (pasted, pasted):
        torch.testing.assert_close(fd.execute(PAIR), [expected], rtol=0, atol=0)
    assert pasted.last_schedule() == text
    for new, old in zip(pasted._last_kernels(), automatic._last_kernels(), strict=True):
        assert new.cuda_text.replace(new.name, old.name) == old.cuda_text

    def narrow(fd: FusionDefinition) -> None:
        fd.sched.segment(0)
        params = fd.sched.compute_pointwise_heuristics()
        params.lparams.bdimx = 32
        fd.sched.schedule()

    torch.testing.assert_close(automatic.execute(PAIR, schedules={0: narrow}), [expected])
    assert [k.scheduler for k in automatic._last_kernels()] == ["user", "inner_persistent"]
    assert "__launch_bounds__(32)" in automatic.last_cuda_code()
    automatic.execute(PAIR)
    assert automatic._last_kernels()[0] is first


def test_what_segments_refuse() -> None:
    fd = Several()
    fd._setup_schedule(PAIR)
    for call, problem in (
        (lambda: fd.sched.segment(1), "segment 1 is none that a kernel computes"),
        (lambda: fd.sched.segment(3), "one of 3 segments"),
        (lambda: fd.sched.segment("0"), "index: int"),
    ):
        with pytest.raises((ScheduleError, ArgumentTypeError), match=problem):
            call()
    fd.sched.segment(2)
    with pytest.raises(ScheduleError, match="T2 is no tensor of this segment"):
        fd.e.split(0, 2)
    fd.p.split(0, 2)
    assert 'fd.sched.segment(2)\n    T3 = fd.sched.tensor("T3")\n    fd.sched.split(T3, 0, 2)' in (
        fd.sched.to_python()
    )
    with pytest.raises(ScheduleError, match="schedules another one"):
        fd.execute(PAIR, schedules={0: lambda fd: fd.sched.segment(2)})
    whole = opened()
    whole.sums.split(1, 4)
    with pytest.raises(ScheduleError, match="scheduled as one kernel before"):
        whole.sched.segment(0)


# ---- while the definition is written -----------------------------------------------------------------------


def test_tensors_are_scheduled_while_they_are_defined(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        total = fd.ops.sum(x, 1)
        total.split(1, 32).axis(0).parallelize(ParallelType.grid_x)
        partial = total.rfactor([1])
        out = total * 2.0
        partial.axis(-1).parallelize(ParallelType.block_x)
        partial.transform_like()
        partial.parallelize_like()
        partial.inline_at(-1, best_effort=True)
        fd.add_output(out)
    given = torch.randn(6, 100, device=target)
    for _ in range(2):
        torch.testing.assert_close(fd.execute([given])[0], given.sum(1) * 2.0)
    assert "fd.sched.rfactor(T1, [1])" in fd.last_schedule() and "blockIdx.x" in fd.last_cuda_code()


def test_an_early_call_that_is_wrong_names_its_line() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        fd.add_output(x.split(0, 0) + 1.0)
    with pytest.raises(ScheduleError, match="Factor must be greater than 0") as caught:
        fd.execute([torch.ones(4)])
    assert "x.split(0, 0)" in str(caught.value)


def test_numbers_of_numpy_are_numbers_of_primitives() -> None:
    class Exp(FusionDefinition):
        def definition(self) -> None:
            self.y = self.ops.exp(self.define_tensor([-1, -1]))
            self.add_output(self.y)

        def schedule(self) -> None:
            self.sched.split(self.y, np.int64(1), np.int32(4))
            self.sched.reorder(self.y, {np.int64(1): np.int64(0)})

    x = torch.ones(8, 8)
    assert torch.allclose(Exp().execute([x])[0], x.exp())


@pytest.mark.parametrize("method", ["is_reduction", "siblings", "to_string", "set_device_mesh", "swizzle1d"])
def test_what_is_asked_about_takes_a_tensor(method: str) -> None:
    more = {"set_device_mesh": [DeviceMesh([0])], "swizzle1d": [0, ParallelType.mesh_x]}.get(method, [])
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        fd.add_output(x + 1.0)
    for given in (3, None, [x], torch.ones(2)):
        fd.schedule = lambda given=given: getattr(fd.sched, method)(given, *more)  # type: ignore[method-assign]
        with pytest.raises(ArgumentTypeError, match=rf"{method}\(\): .* Expected tensor: Tensor, got"):
            fd.execute([torch.ones(4)])
    fd.schedule = lambda: getattr(fd.sched, method)(x, *more)  # type: ignore[assignment, method-assign]
    assert torch.equal(fd.execute([torch.ones(4)])[0], torch.full((4,), 2.0))
