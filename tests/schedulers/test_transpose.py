"""The transpose scheduler: right for all layouts and sizes, and chosen where it pays."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import ParamsError
from fusewright.core.hardware import described
from fusewright.host.executor import FusionExecutor
from fusewright.schedule import Schedule
from fusewright.schedulers import (
    Facts,
    LaunchParams,
    Planner,
    Reject,
    TransposeParams,
    TransposeScheduler,
    apply,
)
from tests.integration.cases import widened
from tests.integration.tolerance import assert_close
from tests.lower.running import run
from tests.schedulers.transposes import (
    BF16,
    F32,
    F64,
    Define,
    biased,
    cast_both_ways,
    check,
    compiled,
    define,
    framed,
    keys,
    masked,
    permuted,
    random,
    rows_by_index,
    separate,
    several_of_each,
    three_layouts,
    turned_sum,
    with_its_transpose,
)

# ---- numerics


@pytest.mark.sampled(0.4, "rows", "columns", "dtype")
@pytest.mark.parametrize("dtype", [BF16, F32, F64], ids=str)
@pytest.mark.parametrize(
    "rows, columns", [(3, 3), (7, 33), (64, 128), (130, 72), (200, 8), (3, 1000), (1000, 3), (65, 63)]
)
def test_two_dimensions(target: torch.device, rows: int, columns: int, dtype: torch.dtype) -> None:
    x, y = random(rows, columns, dtype=dtype).to(target), random(columns, rows, dtype=dtype).to(target)
    check(turned_sum, lambda x, y: (x.t() + y).to(dtype), [x, y])


@pytest.mark.parametrize(
    "shape, dims",
    [
        ((2, 3, 14, 20), (0, 2, 3, 1)),
        ((2, 14, 14, 24), (0, 3, 1, 2)),
        ((3, 7, 7, 5), (0, 3, 1, 2)),
        ((5, 33, 40), (0, 2, 1)),
        ((5, 33, 40), (2, 1, 0)),
        ((5, 33, 40), (2, 0, 1)),
        ((3, 4, 5, 18, 20), (2, 1, 0, 4, 3)),
        ((2, 40, 1, 36), (0, 3, 2, 1)),
    ],
    ids=str,
)
def test_permutations(target: torch.device, shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    body, reference = permuted(*dims)
    check(body, reference, [random(*shape).to(target)])


@pytest.mark.parametrize(
    "body, reference, shapes",
    [
        (with_its_transpose, lambda x: x.t().exp().sin() + x, ((70, 70),)),
        (cast_both_ways, lambda x: (x * 0.5, x.t() * -0.5), ((72, 96),)),
        (
            several_of_each,
            lambda x, y, z, w: (x.t() + y, x * z.t() - w, y * 3),
            ((70, 96), (96, 70), (96, 70), (70, 96)),
        ),
        (separate, lambda x: (x.t().exp(), x.sin()), ((50, 72),)),
        (
            biased,
            lambda x, b, r: x.permute(0, 3, 1, 2) + b[:, None, None] * r,
            ((2, 6, 20, 36), (36,), (20,)),
        ),
        (
            three_layouts,
            lambda x, y, z: x.permute(0, 2, 1) + y.permute(2, 1, 0) + z,
            ((33, 34, 35), (34, 35, 33), (33, 35, 34)),
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_fusions(
    target: torch.device, body: Define, reference: Any, shapes: Sequence[tuple[int, ...]]
) -> None:
    check(body, reference, [random(*shape).to(target) for shape in shapes])


def test_mask(target: torch.device) -> None:
    x, mask = random(72, 100).to(target), random(100, 72).to(target) > 0
    check(masked, lambda x, m: torch.where(m, x.t(), 0.0), [x, mask])


@pytest.mark.parametrize("sizes", [(2, 33, 3, 20), (1, 65, 2, 7), (3, 32, 2, 16)], ids=str)
def test_reads_by_index(target: torch.device, sizes: tuple[int, int, int, int]) -> None:
    batch, length, heads, size = sizes
    body, reference = keys(*sizes)
    check(body, reference, [random(batch * length, 3 * heads * size, dtype=BF16).to(target)])


def test_a_slice_in_a_frame(target: torch.device) -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(x[:, 4:], [4, 0, 0, 1]).t() * 2

    check(framed, reference, [random(50, 72).to(target)])


def test_rows_at_loaded_indices_are_read_by_the_threads_that_load_these(target: torch.device) -> None:
    x, rows = random(40, 72).to(target), torch.arange(50, device=target) * 7 % 40
    check(rows_by_index, lambda x, rows: x[rows].t() * 2, [x, rows], "pointwise")


@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_layouts_of_inputs(target: torch.device, dtype: torch.dtype) -> None:
    """A transposed input is in the second group as a permuted one is; padding only changes strides."""

    def add(fd: FusionDefinition, x: Any, y: Any) -> None:
        fd.add_output(fd.ops.cast(y + x, y.dtype))  # which lies as y

    y = random(96, 70, dtype=dtype).to(target)
    for x in (
        random(70, 96, dtype=dtype).t(),
        random(70, 104, dtype=dtype)[:, 3:99].t(),
        random(71, 97, dtype=dtype)[1:, 1:].t(),
    ):
        check(add, lambda x, y: x + y, [x.to(target), y])
    check(add, lambda x, y: x + y, [random(70, 192, dtype=dtype).to(target)[:, ::2].t(), y], "pointwise")


def test_in_place(target: torch.device) -> None:
    """An output over the transposed input: no block may read what another has written."""

    def body(fd: FusionDefinition, x: Any, y: Any) -> None:
        fd.add_output(fd.ops.permute(x, [1, 0]) + y, alias_input=x)

    x, y = random(66, 66).to(target), random(66, 66, dtype=F32).to(target) * 2
    expected = x.double().t() + y.double()
    define(body, [x, y]).execute([x, y])
    assert_close(x, expected)


@given(st.data())
@settings(max_examples=10)
def test_random_permutations(data: st.DataObject) -> None:
    """Sums of permuted inputs, some permuted back, with arbitrary params."""
    rank = data.draw(st.integers(2, 4), "rank")
    shape = data.draw(st.lists(st.sampled_from((1, 2, 3, 5, 8, 12, 17, 40)), min_size=rank, max_size=rank))
    orders = data.draw(st.lists(st.permutations(range(rank)), min_size=1, max_size=3), "orders")
    back = data.draw(st.permutations(range(rank)), "back")
    # inputs[k].permute(order) has `shape`
    inputs = [random(*[shape[i] for i in sorted(range(rank), key=lambda i: order[i])]) for order in orders]

    def body(fd: FusionDefinition, *xs: Any) -> None:
        total = fd.ops.permute(xs[0], list(orders[0])) * 2.0
        for x, order in zip(xs[1:], orders[1:]):
            total = fd.ops.sin(total) + fd.ops.permute(x, list(order))
        fd.add_output(total)
        fd.add_output(fd.ops.permute(total - 1.0, list(back)))

    total = inputs[0].double().permute(orders[0]) * 2
    for x, order in zip(inputs[1:], orders[1:]):
        total = total.sin() + x.double().permute(order)
    fd = define(body, inputs)
    results = fd.execute(inputs)
    executor = FusionExecutor(fd._finished().fusion)
    (kernel, *more) = executor.compile(inputs).kernels
    if not more and isinstance(kernel.params, TransposeParams):
        schedule = Schedule(executor.segments().segments[0].fusion)
        edit = data.draw(edited(kernel.params), "params")
        apply(TransposeScheduler(), schedule, edit, kernel.hardware)
        results += run(schedule, inputs)
    for i, actual in enumerate(results):
        assert_close(actual, (total, (total - 1).permute(back))[i % 2])


def edited(params: TransposeParams) -> st.SearchStrategy[TransposeParams]:
    """Params with other tiles, of vectors that are as wide or narrower, and another number of threads."""
    width1, width2 = params.vectorize_factor1, params.vectorize_factor2
    widths = st.tuples(st.sampled_from((width1, 1)), st.sampled_from((width2, 1)))
    counts = st.tuples(st.integers(1, 12), st.integers(1, 12))

    def make(widths: tuple[int, int], counts: tuple[int, int], threads: int) -> TransposeParams:
        return dataclasses.replace(
            params,
            vectorize_factor1=widths[0],
            vectorize_factor2=widths[1],
            tile_size1=widths[0] * counts[0],
            tile_size2=widths[1] * counts[1],
            lparams=LaunchParams(bdimx=threads),
        )

    return st.builds(make, widths, counts, st.sampled_from((32, 50, 128)))


# ---- structure


def verdict(body: Define, *inputs: torch.Tensor) -> Planner | Reject:
    return TransposeScheduler().prepare(define(body, inputs)._finished().fusion)


def test_rejections() -> None:
    def sum_rows(fd: FusionDefinition, x: Any) -> None:
        fd.add_output(fd.ops.sum(fd.ops.permute(x, [1, 0]), [1]))

    def outer_sum(fd: FusionDefinition, x: Any, y: Any) -> None:
        fd.add_output(x + y)

    one_layout = Reject("all tensors of full rank are contiguous along the same dimension")
    assert verdict(permuted(1, 0, 2)[0], random(4, 5, 6)) == one_layout
    assert verdict(outer_sum, random(4, 1), random(1, 5)) == one_layout
    assert verdict(sum_rows, random(4, 5)) == Reject("cannot find reference tensor")
    assert verdict(turned_sum, random(4, 5), random(5, 4))


def propose(body: Define, inputs: Sequence[torch.Tensor]) -> TransposeParams:
    executor = FusionExecutor(define(body, inputs)._finished().fusion)
    executor.compile(list(inputs))
    (segment,) = executor.segments().segments
    fusion = segment.fusion
    sizes = {}
    for tensor, x in zip(fusion.inputs, inputs):
        sizes |= {a.extent: n for a, n in zip(tensor.shape, x.shape) if a.extent.free_symbols}
    facts = Facts(sizes, tuple(x.stride() for x in inputs), (256,) * len(inputs))
    params = TransposeScheduler().prepare(fusion)(facts, described("h200")).params
    params.validate(described("h200"))
    return params


@pytest.mark.parametrize(
    "dims, shape, dtype, tiles, widths, merged",
    [
        ((1, 0), (4096, 16384), BF16, (128, 64), (8, 4), ((), ())),
        ((1, 0), (4096, 16384), F32, (64, 64), (4, 4), ((), ())),
        # Without vectors, long pieces of the output.
        ((1, 0), (4095, 16383), BF16, (128, 32), (1, 1), ((), ())),
        ((1, 0), (4096, 16383), BF16, (64, 128), (8, 1), ((), ())),
        ((1, 0), (4095, 16383), F32, (128, 32), (1, 1), ((), ())),
        # Narrow vectors of both: larger tiles, by more threads.
        ((0, 2, 1), (84, 194, 990), BF16, (256, 64), (2, 2), ((), ())),
        ((1, 0), (2910, 10140), BF16, (256, 64), (2, 4), ((), ())),
        ((1, 0), (4094, 10142), F32, (64, 64), (2, 2), ((), ())),
        # Wide vectors of the second alone: half of these, and longer pieces of the first.
        ((1, 0), (4564, 1984), BF16, (128, 64), (4, 4), ((), ())),
        # Of the second alone, none of the first: narrower ones.
        ((1, 0), (3081, 8000), BF16, (128, 64), (1, 2), ((), ())),
        ((1, 0), (4095, 16384), F32, (128, 32), (1, 1), ((), ())),
        # Elements as wide as an access, or half as wide, are those vectors.
        ((1, 0), (4095, 16384), torch.float64, (128, 16), (1, 1), ((), ())),
        ((1, 0), (17, 2), torch.complex128, (32, 2), (1, 1), ((), ())),
        # One channel or few: the other side is longer. Rows and columns are one dimension.
        ((0, 3, 1, 2), (64, 224, 224, 3), F32, (256, 3), (4, 1), ((2,), ())),
        ((0, 2, 3, 1), (64, 3, 224, 224), F32, (3, 256), (1, 4), ((), (1,))),
        ((0, 2, 3, 1), (16, 257, 129, 63), BF16, (264, 48), (1, 1), ((), (1,))),
        ((2, 0, 1), (1000, 9, 200), BF16, (128, 64), (1, 2), ((1,), ())),
        # What lies between other dimensions in one of the tensors is not.
        ((3, 1, 0, 2), (40, 50, 80, 70), BF16, (64, 128), (8, 2), ((), ())),
        # A tile of 129 elements would be two.
        ((0, 3, 1, 4, 2), (5, 17, 31, 63, 129), BF16, (32, 32), (1, 1), ((), ())),
        # Of rows of 67 a tile of 128 would be half empty.
        ((0, 2, 3, 1), (16, 67, 129, 131), BF16, (72, 72), (1, 1), ((), (1,))),
        # Vectors along both: no longer tile than shared memory has banks for.
        ((1, 0), (1048576, 32), BF16, (128, 32), (8, 4), ((), ())),
        # Rows of 14 fill a tile together.
        ((0, 3, 1, 2), (64, 14, 14, 256), BF16, (128, 64), (2, 4), ((2,), ())),
    ],
)
def test_proposals(
    dims: tuple[int, ...],
    shape: tuple[int, ...],
    dtype: torch.dtype,
    tiles: tuple[int, int],
    widths: tuple[int, int],
    merged: Any,
) -> None:
    params = propose(permuted(*dims)[0], [torch.empty(shape, dtype=dtype)])
    assert (params.vectorize_factor1, params.vectorize_factor2) == widths
    assert (params.tile_size1, params.tile_size2) == tiles
    assert (params.dims_merged_with_1, params.dims_merged_with_2) == merged
    assert (params.threads > 256) == (tiles in ((256, 64), (264, 48)))


@pytest.mark.parametrize(
    "edit, field",
    [
        ({"tile_size1": 0}, "tile_size1"),
        ({"tile_size2": 20, "vectorize_factor2": 8}, "tile_size2"),
        ({"vectorize_factor1": 3}, "vectorize_factor1"),
        ({"tile_size1": 1024, "tile_size2": 1024}, "tile_size1 * tile_size2"),
        ({"dims_merged_with_1": (1,)}, "dims_merged_with_1"),
        ({"dims_merged_with_2": (7,)}, "dims_merged_with_2"),
        ({"assumed_sizes": (40,)}, "`assumed_sizes`: expected () or (i1, i0), got (40,)"),
        ({"assumed_sizes": (40, 0)}, "`assumed_sizes[1]`: expected 1 or more, got 0"),
    ],
    ids=str,
)
def test_params_that_make_no_sense(edit: dict[str, Any], field: str) -> None:
    segment, _ = compiled(permuted(1, 0)[0], [random(40, 40)])
    with pytest.raises(ParamsError, match=re.escape(field)):
        apply(TransposeScheduler(), Schedule(segment.fusion), TransposeParams(**edit), described("h200"))


def test_sizes_are_constants_until_they_change(target: torch.device) -> None:
    """Those that indices are divided by, where elements are moved one by one; not the outermost one."""
    body, reference = permuted(0, 2, 3, 1)
    executor = FusionExecutor(define(body, [random(2, 35, 3, 21, dtype=BF16)])._finished().fusion)
    made = []
    for batch, rows, sizes in (
        (2, 3, (3, 21, 35)),
        (5, 3, (3, 21, 35)),
        (2, 4, ()),
        (2, 3, (3, 21, 35)),
        (1, 3, ()),
    ):
        x = random(batch, 35, rows, 21, dtype=BF16).to(target)
        assert_close(executor.execute([x])[0], reference(widened(x)))
        (kernel,) = executor.kernels_for([x])
        assert kernel.params.assumed_sizes == sizes
        made.append(kernel)
    assert len({kernel.name for kernel in made}) == 2
    constant, general = made[0], made[2]
    divisors = re.findall(r"[/%] (?!\d)", constant.cuda_text.partition("{")[2])
    assert not divisors and re.search(r"[/%] max", general.cuda_text)
    even = executor.compile([torch.zeros(2, 40, 3, 16, dtype=BF16)]).kernels[0]
    assert even.params.vectorize_factor1 == 8 and not even.params.assumed_sizes


# ---- which kernels it computes


def test_vectors_go_across_a_dimension_that_a_stack_adds(target: torch.device) -> None:
    """The output's index, split by 2 and by its last size, is one that vectors follow."""
    x = torch.randn(3, 5, 4, device=target).permute(2, 1, 0)
    with FusionDefinition() as fd:
        T0 = fd.from_pytorch(x)
        fd.add_output(fd.ops.stack([T0, T0], 2))
    [result] = fd.execute([x])
    assert torch.equal(result, torch.stack([x, x], 2))


@pytest.mark.parametrize("gap", [0, 1])
def test_a_short_side_takes_a_dimension_that_lies_inside_of_both(target: torch.device, gap: int) -> None:
    """k, q, b in memory becomes q, k... of each b: runs of 4 elements along b alone would fill no sector."""
    memory = torch.randn(64, 40, 4 + gap, device=target).to(BF16)[..., :4]
    x = memory.permute(2, 1, 0)

    def body(fd: FusionDefinition, x: Any) -> None:
        fd.add_output(fd.ops.stride_order(x, [2, 1, 0]))

    fd = define(body, [x])
    [kernel] = fd.kernels_for([x])
    assert isinstance(kernel.params, TransposeParams)
    assert (kernel.params.dims_merged_with_1, kernel.params.dims_merged_with_2) == ((), (1,))
    [result] = fd.execute([x])
    assert torch.equal(result, x) and result.is_contiguous()


def test_a_stack_of_odd_rows_is_tiled_along_all_of_their_memory(target: torch.device) -> None:
    """Tiles of 256 along rows of 1025 would leave one element of each row to a block of its own."""
    x, y = (torch.randn(31, 1025, device=target).to(BF16) for _ in range(2))
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.stack([fd.from_pytorch(x), fd.from_pytorch(y)], 2))
    [kernel] = fd.kernels_for([x, y])
    assert isinstance(kernel.params, TransposeParams) and kernel.params.dims_merged_with_2 == (0,)
    [result] = fd.execute([x, y])
    assert torch.equal(result, torch.stack([x, y], 2))


def test_a_stack_of_padded_rows(target: torch.device) -> None:
    """The source's rows are shorter, so their neighbours are elsewhere."""
    x, y = torch.randn(40, 33, device=target).to(BF16), torch.randn(40, 36, device=target).to(BF16)
    with FusionDefinition() as fd:
        padded = fd.ops.pad(fd.from_pytorch(x), [1, 2])
        fd.add_output(fd.ops.stack([padded, fd.from_pytorch(y)], 2))
    [result] = fd.execute([x, y])
    assert torch.equal(result, torch.stack([torch.nn.functional.pad(x, [1, 2]), y], 2))


@pytest.mark.parametrize("dim", [0, 1])
def test_threads_gather_along_the_memory_of_the_source(target: torch.device, dim: int) -> None:
    """Their indices are in one run of the source; the results pass through the tile."""
    x = torch.randn(509, 130, device=target).to(BF16).t()
    index = torch.randint(0, x.shape[dim], (509, 130), device=target).t()
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.gather(fd.from_pytorch(x), fd.from_pytorch(index), dim))
    [kernel] = fd.kernels_for([x, index])
    assert kernel.scheduler == "transpose"
    tiles = re.findall(r"fw::(\w+)\* \w+ = reinterpret_cast", kernel.cuda_text)
    assert ("bfloat16" in tiles) == (dim == 0)
    [result] = fd.execute([x, index])
    assert torch.equal(result, x.gather(dim, index))


@pytest.mark.parametrize("channels, scheduler", [(2, "pointwise"), (4, "pointwise"), (6, "transpose")])
def test_short_runs_of_an_input_are_read_by_element(channels: int, scheduler: str) -> None:
    """Bytes of channels-last images, channels first: tiles would hold few bytes of each run."""
    x = torch.randint(0, 256, (3, 40, 24, channels)).to(torch.uint8)
    with FusionDefinition() as fd:
        values = fd.ops.cast(fd.from_pytorch(x), dtype=DataType.Float)
        fd.add_output(fd.ops.cast(fd.ops.permute(values * 2.0, [0, 3, 1, 2]), dtype=DataType.BFloat16))
    [kernel] = fd.kernels_for([x])
    assert kernel.scheduler == scheduler
    [out] = fd.execute([x])
    assert torch.equal(out, (x * 2.0).permute(0, 3, 1, 2).to(torch.bfloat16))


def test_vectors_of_a_side_are_whole_accesses_if_the_widest_are() -> None:
    """A mask of bools beside floats takes no shorter tiles than floats do."""
    with FusionDefinition() as fd:
        x, y = (
            fd.define_tensor([24577, 2048], contiguity=True, stride_order=order) for order in ([1, 0], [0, 1])
        )
        mask = fd.define_tensor([24577, 2048], contiguity=True, dtype=DataType.Bool)
        fd.add_output(fd.ops.stride_order(fd.ops.where(mask, x, 0.0) + y, [0, 1]))
    empty = torch.empty(24577, 2048, device="meta")
    inputs = [empty, torch.empty(2048, 24577, device="meta").T, torch.empty_like(empty, dtype=torch.bool)]
    params = fd.kernels_for(inputs, device="cuda")[0].params
    assert isinstance(params, TransposeParams) and (params.tile_size1, params.tile_size2) == (64, 64)


def test_vectors_of_a_double_and_a_bool_divide_the_rows() -> None:
    with FusionDefinition() as fd:
        x, y = (
            fd.define_tensor([4097, 8190], contiguity=True, stride_order=order, dtype=DataType.Double)
            for order in ([1, 0], [0, 1])
        )
        mask = fd.define_tensor([4097, 8190], contiguity=True, dtype=DataType.Bool)
        fd.add_output(fd.ops.stride_order(fd.ops.where(mask, x, y), [0, 1]))
    empty = torch.empty(4097, 8190, device="meta", dtype=torch.double)
    turned = torch.empty(8190, 4097, device="meta", dtype=torch.double).T
    [kernel] = fd.kernels_for([empty, turned, torch.empty_like(empty, dtype=torch.bool)], device="cuda")
    assert isinstance(kernel.params, TransposeParams) and kernel.params.vectorize_factor2 in (1, 2)


def test_long_runs_of_a_result_are_stored_by_tiles() -> None:
    """However short the input's are that an element is read from: neighbours of the result are stored."""
    x = torch.randint(0, 256, (3, 2, 40, 24)).to(torch.uint8)
    with FusionDefinition() as fd:
        values = fd.ops.cast(fd.from_pytorch(x), dtype=DataType.Float)
        fd.add_output(fd.ops.cast(fd.ops.permute(values * 2.0, [0, 2, 3, 1]), dtype=DataType.BFloat16))
    [kernel] = fd.kernels_for([x])
    assert kernel.scheduler == "transpose"


@pytest.mark.parametrize(
    ("channels", "dtype", "along", "threads"),
    [(4, BF16, 256, 128), (8, BF16, 128, 128), (2, F32, 256, 128), (12, torch.uint8, 256, 256)],
    ids=str,
)
def test_tiles_of_few_channels_have_two_kilobytes(
    channels: int, dtype: torch.dtype, along: int, threads: int
) -> None:
    """And threads of more than one vector, where a block would have many."""
    x = torch.empty(16, 131064, channels, dtype=dtype)
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.set(fd.ops.permute(fd.from_pytorch(x), [0, 2, 1])))
    [kernel] = fd.kernels_for([x])
    params = kernel.params
    assert isinstance(params, TransposeParams)
    assert (params.tile_size1, params.threads) == (along, threads)


@pytest.mark.parametrize(("batch", "merged"), [(16, True), (1, False)])
def test_tiles_of_a_short_side_are_long_where_blocks_start_slowly(batch: int, merged: bool) -> None:
    """Pairs of pixels beside each other: rows of 112 would be 57344 blocks of a warp."""
    x = torch.empty(batch, 16, 2, 2, 112, 112, dtype=BF16)
    params = propose(permuted(0, 1, 4, 2, 5, 3)[0], [x])
    assert params.tile_size1 == 2
    assert (params.tile_size2 >= 344) == merged and bool(params.dims_merged_with_2) == merged


def test_windows_of_many_loads_do_not_pass_through_tiles() -> None:
    """Tiles for each of 25 loads take far longer than their bytes, and than reading along their rows."""
    shape, steps = (64, 720, 320), 25
    with FusionDefinition() as fd:
        x = fd.from_pytorch(torch.empty(shape, dtype=BF16), static_sizes=True)
        padded = fd.ops.pad(fd.ops.permute(x, [0, 2, 1]), [steps // 2, steps // 2])
        trend = None
        for step in range(steps):
            part = fd.ops.slice(padded, [0, 0, step], [64, 320, step + 720])
            part = fd.ops.cast(part, dtype=DataType.Float)
            trend = part if trend is None else trend + part
        trend = fd.ops.permute(fd.ops.cast(trend, dtype=DataType.BFloat16), [0, 2, 1])
        fd.add_output(trend)
        fd.add_output(fd.ops.cast(x - trend, dtype=DataType.BFloat16))
    kernels = fd.kernels_for([torch.empty(shape, dtype=BF16)])
    assert [kernel.scheduler for kernel in kernels] == ["pointwise"]
