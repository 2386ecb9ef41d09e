"""Rows of a block that pass through shared memory as one run, whatever their length."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import ParamsError
from fusewright.core.hardware import described
from fusewright.kernel import ir as k
from fusewright.kernel.collectives import BlockReduce
from fusewright.schedulers.params import LaunchParams, ReductionParams
from fusewright.schedulers.persistent.staged_rows import staged

LENGTH = 21
# of whole blocks of 8, and of a last one that is not
WHOLE, MORE = 16, 21


def _definition(x: torch.Tensor, weight: torch.Tensor) -> FusionDefinition:
    with FusionDefinition() as fd:
        values, scale = (fd.ops.cast(fd.from_pytorch(t), dtype=DataType.Float) for t in (x, weight))
        e = fd.ops.exp(values - fd.ops.max(values, dims=[1], keepdim=True))
        found = e / fd.ops.sum(e, dims=[1], keepdim=True) * scale
        fd.add_output(fd.ops.cast(found, dtype=DataType.Half))
    return fd


def _staged(params: ReductionParams, rows: int) -> ReductionParams:
    """A warp for each row, and eight rows of a block."""
    return replace(
        params,
        staged_vector=8,
        whole_blocks=rows % 8 == 0,
        unroll_factor_inner_reduction=1,
        vectorize_inner_reduction=False,
        batches_per_block_inner_reduction=1,
        assumed_reduction_sizes=(LENGTH,),
        lparams=LaunchParams(bdimx=32, bdimy=8),
    )


def _run(
    threads: int, block_rows: int, in_flight: int, vector: int, rows: int = WHOLE, together: int = 1
) -> FusionDefinition:
    """The definition after a call with such params, whose result is right."""
    x, weight = torch.randn(rows, LENGTH).half(), torch.randn(LENGTH).half()
    fd = _definition(x, weight)
    [before] = fd.kernels_for([x, weight], device="cpu")
    params = replace(
        before.params,
        staged_vector=vector,
        whole_blocks=rows == WHOLE,
        unroll_factor_inner_reduction=together,
        vectorize_inner_reduction=False,
        batches_per_block_inner_reduction=-(-LENGTH // (threads * together)),
        unroll_factor_iter_dom=in_flight,
        assumed_reduction_sizes=(LENGTH,),
        lparams=LaunchParams(bdimx=threads, bdimy=block_rows),
    )
    [found] = fd.execute([x, weight], schedules={0: params})
    expected = torch.softmax(x.float(), 1) * weight.float()
    torch.testing.assert_close(found, expected.half(), rtol=2e-3, atol=2e-3)
    return fd


@pytest.mark.parametrize("rows", [WHOLE, MORE])
@pytest.mark.parametrize("shape", [(32, 8, 1), (8, 4, 2)], ids=str)
def test_the_rows_of_a_block_pass_as_one_run(shape, rows):
    kernel = _run(*shape, vector=8, rows=rows)._last_kernels()[0].kernel
    copies = [
        stmt for stmt in k.walk(kernel.body) if isinstance(stmt, k.Copy) and isinstance(stmt.src, k.Ref)
    ]
    stores = {copy.width for copy in copies if copy.dst.buffer.space is k.Space.GLOBAL}
    loads = {copy.width for copy in copies if copy.src.buffer.space is k.Space.GLOBAL}
    assert stores == ({8} if rows == WHOLE else {1, 8}), "one by one at the end of the tensor"
    assert loads == {1, 8}, "the weight's elements, and the rows"
    # One before rows are read and one before they are stored, none in the loops that write them.
    assert sum(isinstance(stmt, k.Barrier) for stmt in kernel.body) == 2
    assert sum(isinstance(stmt, k.Barrier) for stmt in k.walk(kernel.body)) == 2


@pytest.mark.parametrize("rows", [WHOLE, MORE])
def test_threads_take_neighbours_of_a_row(rows: int) -> None:
    _run(4, 8, 1, vector=8, rows=rows, together=4)


def _of_groups(x: torch.Tensor, weight: torch.Tensor) -> FusionDefinition:
    """A norm of groups, [n, groups, members, ..], with a weight of each member."""
    reduced = list(range(2, x.ndim))
    with FusionDefinition() as fd:
        values, scale = (fd.ops.cast(fd.from_pytorch(t), dtype=DataType.Float) for t in (x, weight))
        scale = fd.ops.broadcast(scale, [True, False, False, *(True for _ in reduced[1:])])
        variance, mean = fd.ops.var_mean(values, reduced, correction=0, keepdim=True)
        found = (values - mean) * fd.ops.rsqrt(variance + 0.1) * scale
        fd.add_output(fd.ops.cast(found, dtype=DataType.Half))
    return fd


@pytest.mark.parametrize("groups", [8, 7])
def test_rows_of_several_dimensions_pass_as_one_run(groups: int) -> None:
    x, weight = torch.randn(2, groups, 3, 7).half(), torch.randn(groups, 3).half()
    fd = _of_groups(x, weight)
    [before] = fd.kernels_for([x, weight], device="cpu")
    params = replace(
        before.params,
        staged_vector=8,
        whole_blocks=groups == 8,
        unroll_factor_inner_reduction=2,
        vectorize_inner_reduction=False,
        batches_per_block_inner_reduction=3,
        assumed_reduction_sizes=(3, 7),
        lparams=LaunchParams(bdimx=4, bdimy=8),
    )
    [found] = fd.execute([x, weight], schedules={0: params})
    variance, mean = torch.var_mean(x.float(), (2, 3), correction=0, keepdim=True)
    expected = (x.float() - mean) * torch.rsqrt(variance + 0.1) * weight.float()[None, :, :, None]
    torch.testing.assert_close(found, expected.half(), rtol=2e-3, atol=2e-3)


def test_groups_of_odd_images_are_staged() -> None:
    x, weight = torch.empty(256, 32, 3, 7, 7).half(), torch.empty(32, 3).half()
    [kernel] = _of_groups(x, weight).kernels_for([x, weight], device="cpu")
    assert kernel.params.staged_vector == 8 and kernel.params.assumed_reduction_sizes == (3, 49)


#: elements, width of vectors, whether rows read something in common -> threads of a row, rows of a block,
#: elements that a thread has side by side
CHOSEN = {
    (257, 8, False): (16, 8, 4),
    (513, 8, False): (32, 8, 2),
    (513, 8, True): (32, 8, 2),
    (1001, 8, True): (64, 8, 2),
    (65, 8, True): (8, 8, 3),  # twice the rows, of which a thread has two
    (129, 8, True): (16, 4, 1),
    (257, 8, True): (16, 4, 4),  # two rows share what is read of weights
    (129, 8, False): (16, 4, 1),  # by more a third would be in vain
    (257, 4, False): (32, 4, 1),  # a word each
    (65, 4, False): None,  # a block of so few rows would have too few threads
    (1057, 8, False): None,
    (529, 4, False): None,
}


@pytest.mark.parametrize("length, width, shares", CHOSEN)
def test_short_rows_that_are_many_are_staged(length: int, width: int, shares: bool) -> None:
    found = staged(65536, 65536, length, width, 32 // width, shares, described("h200"))
    threads = found and (found.lparams.bdimx, found.lparams.bdimy, found.unroll_factor_inner_reduction)
    assert threads == CHOSEN[length, width, shares]
    assert staged(1000, 1000, length, width, 32 // width, shares, described("h200")) is None


@pytest.mark.parametrize(
    "rows, length, shares, lanes, block",
    [
        (1_000_000, 35, False, 8, 16),
        (1_000_000, 91, False, 8, 16),
        (1_000_000, 49, True, 16, 8),
        (1_000_000, 91, True, 8, 16),
        (1_000_000, 129, False, 16, 8),
        (4_000, 35, False, 16, 8),  # blocks of more rows would be too few
    ],
)
def test_blocks_have_twice_as_many_rows_of_a_few_elements(
    rows: int, length: int, shares: bool, lanes: int, block: int
) -> None:
    params = staged(rows, rows, length, 8, 4, shares, described("h200"))
    assert params is not None and params.lparams.bdimx == lanes
    assert params.lparams.bdimy * params.rows_in_flight == block


@pytest.mark.parametrize("length, is_staged", [(2, False), (3, True), (4, False), (6, True)])
def test_rows_of_which_a_vector_has_whole_ones_are_not_staged(length: int, is_staged: bool) -> None:
    found = staged(80_000, 8, length, 8, 4, False, described("h200"))
    assert (found is not None) == is_staged


#: rows, elements, width of vectors -> threads of a row, rows of a block, rows of a thread
THIN = {
    (4_000_000, 3, 8): (1, 128, 4),  # threads load at least a vector each
    (4_000_000, 7, 8): (1, 128, 2),
    (4_000_000, 15, 8): (1, 128, 1),
    (4_000_000, 5, 4): (1, 128, 1),
    (4_000_000, 17, 8): (16, 4, 2),
    (60_000, 3, 8): (1, 32, 4),
    (30_000, 3, 8): (1, 32, 2),
    (12_672, 3, 8): (1, 32, 1),  # so many blocks an SM as there are to be
    (12_671, 3, 8): (16, 4, 2),
}


@pytest.mark.parametrize("rows, length, width", THIN)
def test_a_thread_has_rows_of_a_few_elements(rows: int, length: int, width: int) -> None:
    found = staged(rows, rows, length, width, 32 // width, False, described("h200"))
    assert found is not None
    shape = (found.lparams.bdimx, found.lparams.bdimy, found.unroll_factor_iter_dom)
    assert shape == THIN[rows, length, width]
    assert found.whole_blocks == (rows % (shape[1] * shape[2]) == 0)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rows, length", [(4 * 66_560, 3), (4 * 66_560 + 5, 3), (14_001, 15)])
@pytest.mark.sampled(0.5)
def test_rows_of_a_few_elements_are_not_reduced_across_threads(
    rows: int, length: int, weighted: bool
) -> None:
    x, weight = torch.randn(rows, length).bfloat16(), torch.randn(length).bfloat16()
    with FusionDefinition() as fd:
        values = fd.from_pytorch(x)
        scale = fd.from_pytorch(weight) if weighted else None
        fd.add_output(fd.ops.layer_norm(values, [length], scale)[0])
    inputs = [x, weight] if weighted else [x]
    [kernel] = fd.kernels_for(inputs, device="cpu")
    assert kernel.params.staged_vector == 8 and kernel.params.lparams.bdimx == 1
    nodes = list(k.walk(kernel.kernel.kernel.body))
    assert not any(isinstance(node, BlockReduce) for node in nodes)
    [found] = fd.execute(inputs)
    expected = torch.nn.functional.layer_norm(x.float(), (length,), weight.float() if weighted else None)
    torch.testing.assert_close(found, expected.bfloat16(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("swapped", [False, True])
def test_rows_along_several_dimensions_are_one_run(swapped):
    x = torch.randn(3, 133, 8, 65).bfloat16()
    x = x.transpose(1, 2) if swapped else x
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.softmax(fd.from_pytorch(x), dim=3))
    [kernel] = fd.kernels_for([x], device="cpu")
    assert kernel.params.staged_vector == 8
    [found] = fd.execute([x])
    torch.testing.assert_close(found, torch.softmax(x.float(), 3).bfloat16(), rtol=1e-2, atol=1e-3)


def test_a_block_has_a_multiple_of_the_vector_of_rows():
    with pytest.raises(ParamsError, match=r"staged_vector.*a divisor of 4, the rows of a block"):
        _run(32, 4, 1, vector=8)


@pytest.mark.parametrize("rows", [WHOLE, MORE])
@pytest.mark.parametrize("dtype", [DataType.Int8, DataType.BFloat16], ids=str)
def test_rows_that_lie_along_another_dimension(dtype: DataType, rows: int) -> None:
    """Largest values of the middle dimension, which is the innermost in memory."""
    with FusionDefinition() as fd:
        shape, order = [2, -1, -1], [2, 0, 1]
        x = fd.define_tensor(shape, contiguity=True, dtype=DataType.BFloat16, stride_order=order)
        values = fd.ops.cast(x, dtype=DataType.Float)
        largest = fd.ops.max(fd.ops.abs(values), dims=[1], keepdim=True)
        fd.add_output(fd.ops.cast(fd.ops.round(values / largest * 100.0), dtype=dtype))
    given = torch.randn(2, rows, LENGTH).bfloat16().transpose(1, 2)
    [before] = fd.kernels_for([given], device="cpu")
    params = _staged(before.params, 2 * rows)
    [found] = fd.execute([given], schedules={0: params})
    expected = (given.float() / given.float().abs().amax(1, keepdim=True) * 100.0).round()
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=0)
    copies = [stmt for stmt in k.walk(fd._last_kernels()[0].kernel.body) if isinstance(stmt, k.Copy)]
    assert 8 in {copy.width for copy in copies if copy.dst.buffer.space is k.Space.GLOBAL}


def test_a_reduction_of_two_results_of_staged_rows() -> None:
    """The place of each row's largest value, beside the row without that value."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.BFloat16)
        values = fd.ops.cast(x, dtype=DataType.Float)
        largest = fd.ops.max(values, dims=[1], keepdim=True)
        fd.add_output(fd.ops.cast(values - largest, dtype=DataType.BFloat16))
        fd.add_output(fd.ops.argmax(values, dim=1))
    given = torch.randn(WHOLE, LENGTH).bfloat16()
    [before] = fd.kernels_for([given], device="cpu")
    params = _staged(before.params, WHOLE)
    without, place = fd.execute([given], schedules={0: params})
    expected = given.float() - given.float().amax(1, keepdim=True)
    torch.testing.assert_close(without.float(), expected.bfloat16().float(), rtol=0, atol=0)
    assert torch.equal(place, given.float().argmax(1))
