"""Rows that a block holds in shared memory: right, in vectors, and without bank conflicts."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from fusewright import DataType, FusionDefinition, schedulers
from fusewright.core.errors import ParamsError
from fusewright.core.hardware import DESCRIBED, described
from fusewright.core.tracing import Tracer
from fusewright.cuda.nvrtc import NvrtcOptions, compile_cubin
from fusewright.ir import Fusion
from fusewright.kernel import ir as k
from fusewright.lower import LowerOptions, SizeArgument, lower
from fusewright.ops.evaluate import bind_sizes
from fusewright.rewrite import canonicalize
from fusewright.schedule import Schedule
from fusewright.schedulers import InnerPersistentScheduler, LaunchParams, ReductionParams
from fusewright.schedulers.persistent.held_rows import Held, held_bytes
from fusewright.schedulers.persistent.shared_rows import MAX_THREADS
from fusewright.schedulers.persistent.streamed_rows import chunk_elements, streamed
from fusewright.sym import evaluate
from tests.lower.running import run
from tests.schedulers.banks import shared_accesses
from tests.schedulers.proposals import built, facts_of, normalized, softmax_of

SCHEDULER = InnerPersistentScheduler()


def masked_rows(dims: Sequence[int]) -> Fusion:
    """Rows of three element sizes, which two reductions and what follows them read."""
    rank = len(dims) + 1
    with FusionDefinition() as fd:
        x, y, mask = (
            fd.define_tensor([-1] * rank, True, t) for t in (DataType.BFloat16, DataType.Float, DataType.Bool)
        )
        kept = fd.ops.where(mask, fd.ops.cast(x, DataType.Float), 0.0)
        total = fd.ops.sum(kept, list(dims), keepdim=True)
        weighted = fd.ops.sum(kept * y, list(dims), keepdim=True)
        fd.add_output(kept - y * weighted - total)
    fusion = fd._finished().fusion
    canonicalize(fusion)
    return fusion


def params_of(width: int, rows: int = 1, sizes: tuple[int, ...] = ()) -> ReductionParams:
    """Two batches a thread, of `width` elements each."""
    return ReductionParams(
        fastest_dim=True,
        persistent_kernel=True,
        project_persistent_buffers=True,
        persistent_in_shared_memory=True,
        unroll_factor_inner_reduction=width,
        vectorize_inner_reduction=width > 1,
        batches_per_block_inner_reduction=2,
        pad_inner_reduction_to_warp=True,
        assumed_reduction_sizes=sizes,
        lparams=LaunchParams(bdimy=rows),
    )


def inputs_of(*shape: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(sum(shape))
    x, y, mask = (torch.randn(shape, generator=generator) for _ in range(3))
    return [x.bfloat16(), y, mask > 0]


def is_of(copy: k.Copy, buffers: set[str]) -> bool:
    return any(isinstance(side, k.Ref) and side.buffer.name in buffers for side in (copy.src, copy.dst))


@pytest.mark.parametrize(
    "dims, shape, params",
    [
        ((1,), (3, 500), params_of(4)),
        ((1,), (3, 301), params_of(1)),
        ((1,), (5, 500), params_of(4, rows=2)),
        ((1,), (3, 500), params_of(4, sizes=(500,))),
        ((0, 2, 3), (2, 3, 6, 24), params_of(4)),
        ((1,), (5, 900), replace(params_of(4, rows=2), blocks_per_cluster=3)),
        ((0, 2, 3), (2, 3, 6, 24), replace(params_of(4), blocks_per_cluster=2)),
        ((1,), (3, 900), replace(params_of(4, sizes=(900,)), blocks_per_cluster=4)),
    ],
    ids=[
        "vectors",
        "elements",
        "two rows a block",
        "constant length",
        "several dimensions",
        "two rows a cluster",
        "several dimensions in a cluster",
        "constant length in a cluster",
    ],
)
def test_rows_in_shared_memory(dims: Sequence[int], shape: tuple[int, ...], params: ReductionParams) -> None:
    fusion, inputs = masked_rows(dims), inputs_of(*shape)
    schedule = Schedule(fusion)
    SCHEDULER.apply(schedule, params)
    lowered = lower(schedule.fusion, LowerOptions("k"), Tracer())
    sizes = bind_sizes(schedule.fusion, inputs)
    known = {s: evaluate(a.extent, sizes) for s, a in lowered.symbols.items() if isinstance(a, SizeArgument)}
    accesses = shared_accesses(lowered.kernel, known)
    assert len(accesses) >= 3
    assert {text: ways for text, ways in accesses if ways > 1} == {}
    width = params.unroll_factor_inner_reduction
    held = {name.split("[")[0] for name, _ in accesses}
    copies = [s for s in k.walk(lowered.kernel.body) if isinstance(s, k.Copy) and is_of(s, held)]
    assert copies
    assert {copy.width for copy in copies} == {width}

    (result,) = run(schedule, inputs)
    x, y, mask = (each.double() for each in inputs)
    kept = x * mask
    expected = kept - y * (kept * y).sum(dims, keepdim=True) - kept.sum(dims, keepdim=True)
    torch.testing.assert_close(result.double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("by_warp", "sizes", "cluster"), [(True, (), 1), (False, (480,), 1), (False, (), 3)])
def test_rows_that_are_copied_ahead(by_warp: bool, sizes: tuple[int, ...], cluster: int) -> None:
    """Three inputs of three element sizes, in rings of chunks that run on from one row into the next."""
    params = replace(
        params_of(4, sizes=sizes),
        lparams=LaunchParams(bdimx=32),
        circular_stages=4,
        warp_specialized=by_warp,
        persistent_blocks=3,
        blocks_per_cluster=cluster,
    )
    schedule, inputs = Schedule(masked_rows([1])), inputs_of(7, 480)
    SCHEDULER.apply(schedule, params)
    assert sum(tensor.circular is not None for tensor in schedule.tensors()) == 3
    (result,) = run(schedule, inputs)
    x, y, mask = (each.double() for each in inputs)
    kept = x * mask
    expected = kept - y * (kept * y).sum(1, keepdim=True) - kept.sum(1, keepdim=True)
    torch.testing.assert_close(result.double(), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(
        ParamsError, match=r"circular_stages.*has no bulk copies|blocks_per_cluster.*no clusters"
    ):
        params.validate(DESCRIBED["a100"])
    params.validate(DESCRIBED["h200"])


def test_long_rows_of_one_input_are_copied_ahead() -> None:
    def found(
        rows: int = 2048, length: int = 65536, width: int = 8, copied: int = 2, gpu: str = "h200"
    ) -> ReductionParams | None:
        params = streamed(rows, length, width, Held(2, 2, copied), False, described(gpu))
        if params is not None:
            params.validate(described(gpu))
        return params

    params = found()
    assert params is not None and params.circular_stages >= 8
    beside_weights = streamed(2048, 65536, 8, Held(2, 2, 2), True, described("h200"))
    assert beside_weights is not None
    assert chunk_elements(beside_weights) > chunk_elements(params)
    assert found(gpu="a100") is None  # no bulk copies
    assert found(length=131072) is found(length=16384) is None  # too long, too short
    assert found(width=4) is found(rows=300) is None
    assert found(copied=0) is streamed(2048, 65536, 8, Held(4, 4, 2), False, described("h200")) is None


def test_rows_of_which_registers_hold_one_on_an_sm_are_held_in_shared_memory() -> None:
    softmax = built(lambda fusion: softmax_of(fusion, [1]))

    def found(length: int, fusion: Fusion = softmax, stable: bool = True) -> ReductionParams:
        facts = facts_of(fusion, [(4096, length)])
        facts = replace(facts, stable=frozenset(facts.sizes)) if stable else facts
        params = schedulers.propose(SCHEDULER, fusion, facts, described("h200"))
        assert isinstance(params, ReductionParams)
        return params

    for length in (32000, 30001):
        params = found(length)
        assert params.persistent_in_shared_memory and params.lparams.bdimx <= MAX_THREADS
        assert params.blocks_per_cluster == 1 and not params.circular_stages
        # Vectors that rows align by themselves are faster without a constant.
        assert params.assumed_reduction_sizes == (() if params.shift_rows else (length,))
    assert not found(32000, stable=False).assumed_reduction_sizes
    assert not found(16384).persistent_in_shared_memory  # registers hold two
    assert found(65536).blocks_per_cluster > 1  # shared memory holds one, too
    # Nothing is held but the row itself, in no more registers than the row has bytes.
    assert not found(32768, normalized(DataType.BFloat16)).persistent_in_shared_memory


def test_rows_whose_results_meet_later_are_held_at_once() -> None:
    """Neither is needed for the other's reductions, and both are for what follows from all."""
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1, -1], True, DataType.Float) for _ in range(2))
        fd.add_output(fd.ops.softmax(x, 1) * fd.ops.softmax(y, 1))
    fusion = fd._finished().fusion
    canonicalize(fusion)
    assert held_bytes(fusion, project=True).at_once == 2 * DataType.Float.size


def bisected(steps: int) -> FusionDefinition:
    """Bounds of each row's median: in each step one goes to the middle of both, as many lie above it."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.BFloat16)
        wide = fd.ops.cast(x, DataType.Float)
        low, high = fd.ops.min(wide, dims=[1], keepdim=True), fd.ops.max(wide, dims=[1], keepdim=True)
        for _ in range(steps):
            middle = (low + high) * 0.5
            above = fd.ops.cast(wide > middle, DataType.Float)
            many = fd.ops.sum(above, dims=[1], keepdim=True) > 8.0
            low, high = fd.ops.where(many, middle, low), fd.ops.where(many, high, middle)
        fd.add_output(fd.ops.where(wide > low, wide, 0.0))
    return fd


def test_results_of_rows_that_follow_from_each_other_are_computed_once(target: torch.device) -> None:
    """Each bound is used by both of the next step: anew for each use they would be 2^8 by the last one."""
    fusion = bisected(8)._finished().fusion
    canonicalize(fusion)
    scheduler = InnerPersistentScheduler()
    facts = facts_of(fusion, [(128, 32000)])
    params = schedulers.propose(scheduler, fusion, facts, described("h200"))
    assert isinstance(params, ReductionParams) and params.project_persistent_buffers
    schedule = Schedule(fusion)
    scheduler.apply(schedule, params)
    assert len(schedule.fusion.nodes) < 3 * len(fusion.nodes)
    fd = bisected(3)
    inputs = [torch.randn(3, 48, dtype=torch.bfloat16, device=target)]
    fd.validate(inputs)
    assert [kernel.scheduler for kernel in fd.kernels_for(inputs)] == ["inner_persistent"]


def test_rows_of_many_reductions_that_hold_one_value_at_a_time_are_one_kernel(target: torch.device) -> None:
    """Nothing is computed anew, however many reductions read what is held."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True)
        shares = fd.ops.softmax(x / 1.7, 1)
        kept = fd.ops.where(shares >= 0.05 * fd.ops.max(shares, [1], keepdim=True), shares, 0.0)
        fd.add_output(kept / fd.ops.sum(kept, [1], keepdim=True))
        fd.add_output(fd.ops.sum(shares * fd.ops.log(shares + 1e-20), [1]))
        fd.add_output(fd.ops.sum(fd.ops.cast(kept > 0, DataType.Int), [1]))
    given = torch.randn(40, 300, device=target)
    found, entropies, counts = fd.execute([given])
    expected = (given / 1.7).softmax(1)
    torch.testing.assert_close(entropies, (expected * expected.log()).sum(1))
    expected = torch.where(expected >= 0.05 * expected.amax(1, keepdim=True), expected, 0.0)
    torch.testing.assert_close(found, expected / expected.sum(1, keepdim=True))
    assert torch.equal(counts, (expected > 0).sum(1))
    assert [kernel.scheduler for kernel in fd._last_kernels()] == ["inner_persistent"]


def test_a_softmax_whose_largest_two_are_found_is_one_kernel(target: torch.device) -> None:
    """Its exponentials are needed before and after each of three reductions."""
    with FusionDefinition() as fd:
        p = fd.ops.softmax(fd.define_tensor([-1, -1], True, DataType.Float), 1)
        first = fd.ops.max(p, dims=[1], keepdim=True)
        second = fd.ops.max(fd.ops.where(p >= first, -1.0, p), dims=[1], keepdim=True)
        kept = fd.ops.where(p >= second, p, 0.0)
        fd.add_output(kept / fd.ops.sum(kept, dims=[1], keepdim=True))
    inputs = [torch.randn(5, 60, device=target)]
    fd.validate(inputs)
    assert [kernel.scheduler for kernel in fd.kernels_for(inputs)] == ["inner_persistent"]


#: dtype, columns -> whether the kernel is for this length only, its vectors, whether rows are shifted.
LENGTHS = {
    (DataType.Float, 16384): (True, 4, False),  # two blocks of 512 threads have room so
    (DataType.Float, 4096): (False, 4, False),
    (DataType.BFloat16, 16384): (False, 8, False),
    (DataType.BFloat16, 4097): (True, 8, True),  # the ends of rows alone have guards
    (DataType.Float, 4097): (True, 4, True),
    (DataType.Float, 3001): (True, 1, False),
    (DataType.Float, 50257): (True, 4, True),  # clusters hold them
}


@pytest.mark.parametrize("dtype, columns", LENGTHS)
def test_lengths_are_constants_where_that_saves_guards_or_registers(dtype: DataType, columns: int) -> None:
    fusion = built(lambda fusion: softmax_of(fusion, [1], dtype))
    facts = facts_of(fusion, [(8192, columns)])
    general = schedulers.propose(SCHEDULER, fusion, facts, described("h200"))
    assert isinstance(general, ReductionParams) and not general.assumed_reduction_sizes
    found = schedulers.propose(
        SCHEDULER, fusion, replace(facts, stable=frozenset(facts.sizes)), described("h200")
    )
    assert isinstance(found, ReductionParams)
    how = (bool(found.assumed_reduction_sizes), found.unroll_factor_inner_reduction, found.shift_rows)
    assert how == LENGTHS[dtype, columns]
    # The compiler keeps the room that two blocks of 512 threads have, and that for many floats a thread.
    assert found.cparams.maxrregcount == (64 if dtype is DataType.Float and columns in (4096, 16384) else 255)
    assert (found.blocks_per_cluster > 1) == (columns == 50257)


def test_rows_that_are_computed_with_weights_and_held_have_a_constant_length() -> None:
    with FusionDefinition() as fd:
        x, weight = (fd.define_tensor([-1] * rank, True, DataType.BFloat16) for rank in (2, 1))
        row = fd.ops.cast(x, DataType.Float) * fd.ops.broadcast(weight, [True, False])
        largest = fd.ops.max(fd.ops.abs(row), dims=[1], keepdim=True)
        fd.add_output(fd.ops.cast(row / largest, DataType.Float8_e4m3fn))
    fusion = fd._finished().fusion
    canonicalize(fusion)
    facts = facts_of(fusion, [(4096, 4096), (4096,)])
    for stable, expected in ((frozenset(facts.sizes), (4096,)), (frozenset(), ())):
        params = schedulers.propose(SCHEDULER, fusion, replace(facts, stable=stable), described("h200"))
        assert isinstance(params, ReductionParams) and params.assumed_reduction_sizes == expected


@pytest.mark.parametrize(
    ("dtype", "length", "limit"),
    [
        (DataType.BFloat16, 9999, 255),
        (DataType.BFloat16, 11999, 40),
        (DataType.BFloat16, 12999, 255),
        (DataType.Float, 9999, 32),
        (DataType.Float, 4999, 255),
    ],
)
def test_two_blocks_that_hold_rows_element_by_element_share_an_sm(
    dtype: DataType, length: int, limit: int
) -> None:
    """Where threads hold enough in half of the registers; of fewer threads several have room anyway."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[2048, length], contiguity=[True, True], dtype=dtype)
        bias = fd.define_tensor(shape=[length], contiguity=[True], dtype=DataType.Float)
        scores = fd.ops.cast(x, DataType.Float) - bias
        shifted = fd.ops.exp(scores - fd.ops.max(scores, [1], keepdim=True))
        fd.add_output(shifted / fd.ops.sum(shifted, [1], keepdim=True))
    [kernel] = fd.kernels_for([torch.zeros(2048, length, dtype=dtype.torch), torch.zeros(length)])
    assert kernel.params.cparams.maxrregcount == limit and not kernel.params.vectorize_inner_reduction
    assert kernel.resources is not None and not kernel.resources.spill_stores


def test_what_rows_have_in_common_is_loaded_ahead(target: torch.device) -> None:
    """A row of constant length: the first of these loads has no predicate."""
    with FusionDefinition() as fd:
        x, w = fd.define_tensor([-1, -1], True), fd.define_tensor([-1], True)
        variance, mean = fd.ops.var_mean(x, dims=[1], correction=0, keepdim=True)
        fd.add_output((x - mean) * fd.ops.rsqrt(variance + 1e-5) * w)
    params = replace(
        params_of(4, sizes=(512,)),
        lparams=LaunchParams(bdimx=32),
        circular_stages=3,
        warp_specialized=True,
        persistent_blocks=2,
    )
    inputs = [torch.randn(5, 512, device=target), torch.randn(512, device=target)]
    (result,) = fd.execute(inputs, schedules={0: params})
    expected = torch.nn.functional.layer_norm(inputs[0], (512,), inputs[1], eps=1e-5)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
    assert "_next" in fd.kernels_for(inputs, schedules={0: params})[0].cuda_text


def cross_entropy(target: torch.device) -> tuple[FusionDefinition, list[torch.Tensor], torch.Tensor]:
    """The definition of a loss and its softmax, inputs, and the loss of them."""
    with FusionDefinition() as fd:
        x, t = fd.define_tensor([-1, -1], True), fd.define_tensor([-1, 1], [True, None], DataType.Int)
        lse = fd.ops.log(fd.ops.sum(fd.ops.exp(x), dims=[1], keepdim=True))
        fd.add_output(lse - fd.ops.take_along_axis(x, t, dim=1))
        fd.add_output(fd.ops.exp(x - lse))
    inputs = [torch.randn(5, 512, device=target), torch.randint(512, (5, 1), device=target)]
    return fd, inputs, -torch.log_softmax(inputs[0], 1).gather(1, inputs[1])


def test_what_an_index_chooses_is_not_loaded_ahead_beside_rows_that_are(target: torch.device) -> None:
    """The element of each row that its target names: its place is known once the target is loaded."""
    fd, inputs, expected = cross_entropy(target)
    params = replace(
        params_of(4, sizes=(512,)), lparams=LaunchParams(bdimx=32), circular_stages=3, persistent_blocks=2
    )
    loss, chances = fd.execute(inputs, schedules={0: params})
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(chances, torch.softmax(inputs[0], 1), rtol=1e-4, atol=1e-6)


def test_what_an_index_chooses_once_a_row_is_loaded_with_the_row(target: torch.device) -> None:
    fd, inputs, expected = cross_entropy(target)
    loss, _ = fd.execute(inputs)
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-5)
    [kernel] = fd.kernels_for(inputs)
    text = kernel.cuda_text[kernel.cuda_text.index("__global__") :]
    assert max(text.rindex("= T1["), text.rindex("? T0[")) < text.index("block_reduce")


def short_rows(threads: int, batches: int, rows: int, in_flight: int) -> ReductionParams:
    """Rows of which a part of a warp holds each, in registers."""
    return ReductionParams(
        fastest_dim=True,
        persistent_kernel=True,
        unroll_factor_inner_reduction=4,
        vectorize_inner_reduction=True,
        batches_per_block_inner_reduction=batches,
        unroll_factor_iter_dom=in_flight,
        pad_inner_reduction_to_warp=True,
        lparams=LaunchParams(bdimx=threads, bdimy=rows),
    )


@pytest.mark.parametrize("params", [short_rows(4, 2, 8, 3), short_rows(8, 1, 4, 1)])
def test_parts_of_warps_hold_rows(params: ReductionParams, target: torch.device) -> None:
    """Several rows in flight, of which the last overrun the tensor; a chain of reductions with two states."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Float)
        variance, mean = fd.ops.var_mean(x, dims=[-1], correction=0, keepdim=True)
        e = fd.ops.exp((x - mean) * fd.ops.rsqrt(variance + 1e-5))
        fd.add_output(e / fd.ops.sum(e, dims=[-1], keepdim=True))
    x = torch.randn(41, 28, device=target)
    (result,) = fd.execute([x], schedules={0: params})
    expected = torch.softmax(torch.nn.functional.layer_norm(x.double(), (28,), eps=1e-5), -1)
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rows, whole", [(7, False), (8, True)])
@pytest.mark.parametrize("cluster, in_shared", [(1, False), (1, True), (2, True)])
def test_rows_in_flight_share_what_all_rows_read(
    rows: int, whole: bool, cluster: int, in_shared: bool, target: torch.device
) -> None:
    """Weights are loaded before the first of two rows is stored, and not again for the other."""
    inputs = [torch.randn(*size, device=target) for size in ((rows, 512), (512,), (512,))]
    with FusionDefinition() as fd:
        x, weight, bias = map(fd.from_pytorch, inputs)
        variance, mean = fd.ops.var_mean(x, dims=[1], correction=0, keepdim=True)
        fd.add_output((x - mean) * fd.ops.rsqrt(variance + 1e-5) * weight + bias)
        fd.add_output(mean)
    params = replace(
        short_rows(32, 4 // cluster, 1, 2),
        project_persistent_buffers=in_shared,
        persistent_in_shared_memory=in_shared,
        blocks_per_cluster=cluster,
        assumed_reduction_sizes=(512,),
        whole_blocks=whole,
    )
    result, mean = fd.execute(inputs, schedules={0: params})
    expected = torch.nn.functional.layer_norm(inputs[0], (512,), *inputs[1:], eps=1e-5)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(mean, inputs[0].mean(1, keepdim=True), rtol=1e-4, atol=1e-5)
    text = fd.last_cuda_code()
    rest = text[text.rindex("&T1[") :]  # of which the first line has no loop over rows yet
    assert rest.count("fw::store<") == 2 or re.search(r"< 2; \+\+\w+\)[^}]*T\d+_copy", rest)
    assert text.count("* 2 + 1 < i") == 0 if whole else text.count("* 2 + 1 < i") > 0


def _predicates(image: bytes, opcode: int) -> list[int]:
    """Of instructions of machine code the predicates they are under, 7 for none, by the low bits of each."""
    assert image[:4] == b"\x7fELF"
    [start] = struct.unpack_from("<Q", image, 0x28)
    each, count = struct.unpack_from("<HH", image, 0x3A)
    found = []
    for section in range(start, start + each * count, each):
        kind, flags, _, at, size = struct.unpack_from("<IQQQQ", image, section + 4)
        if kind == 1 and flags & 4:  # it has bits, which are executed
            words = [struct.unpack_from("<Q", image, i)[0] for i in range(at, at + size, 16)]
            found += [word >> 12 & 15 for word in words if word & 0xFFF == opcode]
    return found


def test_whole_warps_reduce_under_no_predicate() -> None:
    """Threads that are known at run time alone may be whole warps or not; ptxas mistook that for another
    condition where a short branch became a predicate."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Float)
        shifted = x - fd.ops.max(x, dims=[1], keepdim=True)
        fd.add_output(shifted - fd.ops.log(fd.ops.sum(fd.ops.exp(shifted), dims=[1], keepdim=True)))
    params = replace(
        short_rows(-1, 2, 1, 1),
        lparams=LaunchParams(),
        pad_inner_reduction_to_warp=False,
        blocks_per_cluster=4,
    )
    [kernel] = fd.kernels_for([torch.randn(2, 9216)], schedules={0: params})
    image = compile_cubin(kernel.code.text, NvrtcOptions("sm_90a")).image
    found = _predicates(image, opcode=0x3C4)  # REDUX
    assert found and set(found) == {7}


def _scaled(inputs: Sequence[torch.Tensor]) -> FusionDefinition:
    """Rows scaled by what is found in each and by weights, as float."""
    with FusionDefinition() as fd:
        x, weight = (fd.ops.cast(fd.from_pytorch(each), DataType.Float) for each in inputs)
        fd.add_output(x * fd.ops.rsqrt(fd.ops.mean(x * x, dims=[1], keepdim=True) + 1e-5) * weight)
    return fd


@pytest.mark.parametrize("batches, width", [(2, 8), (1, 16)], ids=["stores", "loads"])
def test_rows_in_flight_share_weights_where_a_vector_is_several_accesses(
    batches: int, width: int, target: torch.device
) -> None:
    inputs = [torch.randn(*size, device=target).bfloat16() for size in ((7, 512), (512,))]
    fd = _scaled(inputs)
    params = replace(short_rows(32, batches, 1, 2), unroll_factor_inner_reduction=width)
    [result] = fd.execute(inputs, schedules={0: params})
    expected = torch.nn.functional.rms_norm(inputs[0].float(), (512,), inputs[1].float(), eps=1e-5)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
    assert fd.last_cuda_code().count("fw::store<4>") > 0


def test_rows_in_several_pieces_of_memory_are_not_shifted() -> None:
    """A channel has 49 elements of each image: a vector that starts elsewhere would leave them."""
    fusion = built(lambda f: softmax_of(f, [0, 2], rank=3))
    params = schedulers.propose(SCHEDULER, fusion, facts_of(fusion, [(256, 2048, 49)]), described("h200"))
    assert not params.shift_rows
    schedulers.apply(SCHEDULER, Schedule(fusion), params, described("h200"))


@pytest.mark.parametrize("shape, dims", [((1, 6, 4, 16), [0, 2, 3]), ((6, 4, 16, 1), [1, 2, 3])])
def test_reduced_dimensions_of_one_element_change_nothing(shape: tuple[int, ...], dims: list[int]) -> None:
    """A batch of one image, normalized by its channels, is rows in one kernel, and is stored in vectors."""
    x = torch.randn(shape).bfloat16()
    with FusionDefinition() as fd:
        values = fd.ops.cast(fd.from_pytorch(x), DataType.Float)
        variance, mean = fd.ops.var_mean(values, dims, correction=0, keepdim=True)
        result = fd.ops.reshape((values - mean) * fd.ops.rsqrt(variance + 1e-5), [2, 3, 4, 16])
        fd.add_output(fd.ops.cast(result, DataType.BFloat16))
    [kernel] = fd.kernels_for([x])
    assert kernel.scheduler == "inner_persistent"
    assert "load<8>(" in kernel.cuda_text and "store<8>(" in kernel.cuda_text


def test_a_dimension_of_one_element_behind_the_result_of_a_row_leaves_its_vectors() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Float)
        fd.add_output(fd.ops.broadcast(fd.ops.softmax(x, 1), [False, False, True]))
    [kernel] = fd.kernels_for([torch.empty(64, 1024)])
    assert "store<4>(" in kernel.cuda_text


def test_sizes_that_a_reshape_has_merged_may_be_constants(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1] * 4, True)
        n, c, h, w = (fd.ops.size(x, dim) for dim in range(4))
        rows = fd.ops.reshape(x, [n, c, h * w])
        variance, mean = fd.ops.var_mean(rows, [0, 2], correction=0, keepdim=True)
        normal = (rows - mean) * fd.ops.rsqrt(variance + 1e-5)
        fd.add_output(fd.ops.reshape(normal, [n, c, h, w]))
    given = torch.randn(2, 3, 4, 8, device=target)
    [found] = fd.execute([given], schedules={0: {"assumed_reduction_sizes": (2, 32)}})
    torch.testing.assert_close(found, torch.nn.functional.batch_norm(given, None, None, training=True))
    with pytest.raises(ParamsError, match=r"\(\) or \(i0, i2\*i3\), got \(2, 4, 8\)"):
        fd.execute([given], schedules={0: {"assumed_reduction_sizes": (2, 4, 8)}})


def test_a_computed_size_may_be_a_constant_in_a_product(target: torch.device) -> None:
    """Whose factors stay apart, as those that say which weight an element has."""
    with FusionDefinition() as fd:
        x, weight = fd.define_tensor([-1] * 3, True), fd.define_tensor([-1], True)
        n, c, length = (fd.ops.size(x, dim) for dim in range(3))
        rows = fd.ops.reshape(x, [n, 2, fd.ops.div(c, 2) * length])
        variance, mean = fd.ops.var_mean(rows, [2], correction=0, keepdim=True)
        normal = (rows - mean) * fd.ops.rsqrt(variance + 1e-5)
        scale = fd.ops.broadcast(weight, [True, False, True])
        fd.add_output(fd.ops.reshape(normal, [n, c, length]) * scale)
    given = torch.randn(2, 6, 8, device=target)
    scales = torch.rand(6, device=target)
    [found] = fd.execute([given, scales], schedules={0: {"assumed_reduction_sizes": (8, 3)}})
    torch.testing.assert_close(found, torch.nn.functional.group_norm(given, 2, scales))


def test_what_is_held_in_shared_memory_and_stored_is_stored_in_vectors(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A column of a long row's length, of which sums are held that are an output, too."""
    x = torch.randn(80000, 1)
    with FusionDefinition() as fd:
        given, number = fd.from_pytorch(x, static_sizes=True), fd.define_scalar(dtype=DataType.Double)
        shifted = fd.ops.add(number, given)
        squares = fd.ops.mul(shifted, given)
        fd.add_output(shifted)
        fd.add_output(fd.ops.div(fd.ops.sum(squares, [0]), squares))
        fd.add_output(fd.ops.sub(shifted, fd.ops.mul(given, fd.ops.sum(squares, [1], keepdim=True))))
    made = fd.execute([x, 2.0])
    torch.testing.assert_close(made[0], x + 2)
    torch.testing.assert_close(
        made[1], ((x + 2) * x).double().sum(0).float() / ((x + 2) * x), rtol=1e-3, atol=1e-3
    )
    torch.testing.assert_close(made[2], x + 2 - x * ((x + 2) * x), rtol=1e-4, atol=1e-4)
    assert not caplog.records, caplog.text
