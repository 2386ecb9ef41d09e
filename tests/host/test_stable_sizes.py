"""Kernels for the sizes that a fusion has had so far, and the general ones that follow when sizes change."""

from __future__ import annotations

import re
import threading
from dataclasses import replace

import pytest
import torch

from fusewright.core.errors import ParamsError
from fusewright.core.options import Options
from fusewright.core.serialization import from_json, to_json
from fusewright.host.reuse.stable_sizes import StableSizes
from fusewright.ops import OPS
from fusewright.schedule import Schedule, replay
from fusewright.schedulers import InnerPersistentScheduler, PointwiseScheduler, apply
from fusewright.sym import symbol
from tests.host.fusions import DataType, Definition

# Read one by one, eight elements a thread; twice as long needs other params; vectors divide the last.
ODD, OTHER, LONGER, EVEN = 2301, 2295, 4603, 2304
PARAMS = InnerPersistentScheduler.params_type


def softmax(masked: bool = False, shape=(-1, -1), dims=(-1,)):
    d = Definition()
    x = d.tensor(shape)
    if masked:
        x = d.where(d.tensor(shape, dtype=DataType.Bool), x, -1.0)
    e = d.exp(d.sub(x, d.reduced("max", x, dims)))
    d.output(d.div(e, d.reduced("sum", e, dims)))
    return d.executor()


def kernels(executor, *shape):
    """Those for a call with inputs of this shape, which does not run."""
    inputs = [torch.zeros(shape, dtype=v.dtype.torch) for v in executor.fusion.inputs]
    return executor.compile(inputs).kernels


def assumed(executor, *shape):
    (kernel,) = kernels(executor, *shape)
    return kernel.params.assumed_reduction_sizes


def test_a_row_length_is_a_constant_until_it_changes(target):
    executor = softmax()
    made = set()
    for rows, length, sizes in (
        (3, ODD, (ODD,)),
        (5, ODD, (ODD,)),  # the number of rows changes, their length does not
        (3, OTHER, ()),
        (3, ODD, (ODD,)),  # the program that is bound to this signature
        (7, ODD, ()),
        (3, OTHER - 2, ()),
        (4, OTHER - 4, ()),
    ):
        x = torch.randn(rows, length, device=target)
        torch.testing.assert_close(executor.execute([x])[0], x.softmax(1))
        (kernel,) = executor.kernels_for([x])
        assert kernel.params.assumed_reduction_sizes == sizes, (rows, length)
        made.add(kernel)
    assert len(made) == 2
    constant, general = sorted(made, key=lambda kernel: not kernel.params.assumed_reduction_sizes)
    assert constant.reason.endswith("for rows of this length only") and str(ODD) in constant.cuda_text
    # The constant length lets two blocks share an SM, so its registers are limited. Nothing else differs.
    limit = constant.hardware.registers_a_thread(2 * constant.params.lparams.bdimx)
    limited = replace(general.params.cparams, maxrregcount=limit)
    assert constant.params == replace(general.params, assumed_reduction_sizes=(ODD,), cparams=limited)
    # A size that is a constant is no argument. Of three batches of 768 threads only the last is not full.
    assert len(constant.arguments) == len(general.arguments) - 1
    guards = set(re.findall(r"if \((.*)\) ", constant.cuda_text))
    assert {re.sub(r"j\d+", "j", guard) for guard in guards} == {f"j * 768 + threadIdx_x < {ODD}"}


def test_every_family_of_params_has_one_general_kernel():
    executor = softmax()
    seen = [kernels(executor, 3, length)[0] for length in (LONGER, ODD, LONGER - 2, OTHER, LONGER - 4)]
    assert [bool(k.params.assumed_reduction_sizes) for k in seen] == [True, False, False, False, False]
    assert seen[1] is seen[3] and seen[2] is seen[4] and len(set(seen)) == 3


def test_equal_fusions_make_equal_kernels_for_equal_calls():
    first, second = softmax(), softmax()
    (a,), (b,) = kernels(first, 3, ODD), kernels(second, 3, ODD)
    assert a.name == b.name and a.params == b.params


def test_which_rows_are_constant():
    assert assumed(softmax(), 3, ODD) == (ODD,)
    assert assumed(softmax(), 300, EVEN) == ()  # few wide accesses
    assert assumed(softmax(), 3, 99) == ()  # few accesses
    assert assumed(softmax(masked=True), 300, EVEN) == (EVEN,)
    assert assumed(softmax(shape=(-1, ODD)), 3, ODD) == ()  # constant in the definition
    assert assumed(softmax(shape=(-1, -1, -1), dims=(1, 2)), 3, 59, 39) == (59 * 39,)
    assert assumed(softmax(shape=(-1, 59, -1), dims=(1, 2)), 3, 59, 39) == (59 * 39,)


def padded(contiguity=True):
    d = Definition()
    d.output(OPS["pad"].build(d.fusion, d.tensor(contiguity=contiguity), [1, 3], None))
    return d.executor()


def test_a_size_that_indices_are_divided_by_is_a_constant_until_it_changes(target):
    executor = padded()
    made = set()
    for rows, length, sizes in ((3, 7, (7,)), (5, 7, (7,)), (3, 9, ()), (7, 7, ())):
        x = torch.randn(rows, length, device=target)
        torch.testing.assert_close(executor.execute([x])[0], torch.nn.functional.pad(x, (1, 3)))
        (kernel,) = executor.kernels_for([x])
        assert kernel.params.assumed_sizes == sizes, (rows, length)
        made.add(kernel)
    assert len(made) == 2
    with pytest.raises(ParamsError, match=r"`assumed_sizes`: expected \(\) or \(i1\), got \(7, 2\)"):
        params = replace(kernel.params, assumed_sizes=(7, 2))
        apply(PointwiseScheduler(), Schedule(executor.fusion), params, kernel.hardware)


def test_what_does_not_divide_indices_is_no_constant():
    d = Definition()
    x, y = d.tensor(), d.tensor((1, -1))
    d.output(d.add(x, y))
    executor = d.executor()
    served = executor.compile([torch.zeros(4, 4096), torch.zeros(1, 4096)]).kernels[0]
    assert served.params.break_point == 1 and served.params.assumed_sizes == ()
    d = Definition()
    d.output(d.exp(d.tensor((-1, -1, -1))))
    assert kernels(d.executor(), 3, 5, 7)[0].params.assumed_sizes == ()
    d = Definition()
    d.output(d.exp(d.tensor((-1, -1, -1), contiguity=[False, True, True])))
    strided = torch.zeros(3, 6, 7)[:, :5]
    assert d.executor().compile([strided]).kernels[0].params.assumed_sizes == (5, 7)


def test_disabled_constants():
    x = torch.zeros(3, ODD)
    (kernel,) = softmax().compile([x], options=Options().with_switches(disable="constant_sizes")).kernels
    assert kernel.params.assumed_reduction_sizes == ()


def test_params_keep_in_json_and_schedules_replay():
    executor = softmax(shape=(-1, -1, -1), dims=(1, 2))
    x = torch.randn(3, 59, 39)
    (out,) = executor.execute([x])
    torch.testing.assert_close(out, x.flatten(1).softmax(1).view(3, 59, 39))
    (kernel,) = executor.kernels_for([x])
    assert kernel.params.lparams.bdimx > 0
    assert from_json(PARAMS, to_json(kernel.params)) == kernel.params
    again = replay(kernel.schedule.original, kernel.schedule.trace())
    assert str(again.fusion) == str(kernel.schedule.fusion)
    assert again.fusion.ranges == kernel.schedule.fusion.ranges
    assert [call.args[1:] for call in kernel.schedule.trace() if call.method == "assume"] == [
        (1, 59 * 39, 59 * 39),
    ]


@pytest.mark.parametrize(
    "sizes, bdimx, message",
    [
        ((ODD, 2), -1, rf"`assumed_reduction_sizes`: expected \(\) or \(i1\), got \({ODD}, 2\)"),
        ((0,), -1, r"`assumed_reduction_sizes\[0\]`: expected 1 or more, got 0"),
        ((ODD,), 32, rf"`lparams.bdimx`: expected -1 or 768, for rows of {ODD}, got 32"),
    ],
)
def test_params_that_do_not_fit_the_rows(sizes, bdimx, message):
    executor = softmax()
    [kernel] = kernels(executor, 3, ODD)
    params = kernel.params
    edited = replace(params, assumed_reduction_sizes=sizes, lparams=replace(params.lparams, bdimx=bdimx))
    with pytest.raises(ParamsError, match=message):
        apply(InnerPersistentScheduler(), Schedule(executor.fusion), edited, kernel.hardware)


def test_two_first_calls_at_once_agree_on_one_size():
    size, rows = symbol("i0"), symbol("i1")
    for _ in range(50):
        record, found = StableSizes(), {}
        barrier = threading.Barrier(4)

        def call(value, record=record, found=found, barrier=barrier):
            barrier.wait()
            found[value] = record.with_call({rows: 3, size: value})

        threads = [threading.Thread(target=call, args=(value,)) for value in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(size in stable for stable in found.values()) <= 1
        assert all(rows in stable for stable in found.values())
        assert record.with_call({rows: 3, size: 0}) == {rows}
        assert record.with_call({rows: 4, size: 0}) == record.with_call({rows: 3, size: 0}) == frozenset()
