"""Each kind of mistake, planted in a small kernel, is found and reported with its place."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fusewright.core.dtype import DataType
from fusewright.core.errors import OutOfBoundsError, RaceError, SimulationError, UninitializedReadError
from fusewright.core.hardware import DESCRIBED
from fusewright.core.op import ReductionOp
from fusewright.kernel.ir import (
    TRUE,
    Alloc,
    Barrier,
    BlockReduce,
    Buffer,
    ClusterReduce,
    Compute,
    Copy,
    For,
    GridBarrier,
    GridReduce,
    GridScan,
    If,
    Imm,
    IndexValue,
    Init,
    Let,
    LetValue,
    Ref,
    Scatter,
    Stmt,
    WorkspaceParam,
    index_symbol,
)
from fusewright.ops.reductions import SUM
from fusewright.sim import SimOptions, simulate
from fusewright.sym import Expr, add, const, eq, floordiv, le, lt, mod, mul, symbol
from tests.kernel import builders
from tests.kernel.builders import ADD, BX, GX, at, grid_exchange, kernel, local, shared, tensor
from tests.sim.case import BLOCKS, F32, LANE, LANES, PARTIAL, STEP, THREADS, B, Case, T

# ---- bounds and alignment ---------------------------------------------------------------------


def test_out_of_bounds_by_one_names_statement_block_and_thread(case: Case) -> None:
    with pytest.raises(OutOfBoundsError) as caught:
        case.run(case.load(LANE + 1))
    facts = caught.value.facts
    assert (facts["block"], facts["thread"], facts["index"]) == ((1, 0, 0), (7, 0, 0), LANES)
    assert facts["statement"] == "r[0] = x[8*blockIdx.x + threadIdx.x + 1]"
    assert "index 16 out of bounds of `x`, which has 16 elements" in str(caught.value)


@pytest.mark.parametrize("index", [LANE - 1, add(LANE, 1)])
def test_a_guarded_lane_touches_no_memory(case: Case, index: Expr) -> None:
    case.run(If(lt(0, T), (If(lt(T, THREADS - 1), (case.load(index), case.put(), case.store())),)))


def test_out_of_bounds_of_registers_and_shared_memory(case: Case) -> None:
    with pytest.raises(OutOfBoundsError, match="index 4 out of bounds of `r`"):
        case.run(case.load(into=4))
    with pytest.raises(OutOfBoundsError, match="index 8 out of bounds of `s`"):
        case.run(case.load(), case.put(T + 1))


def test_the_storage_bounds_an_argument_that_is_smaller_than_declared(case: Case) -> None:
    with pytest.raises(OutOfBoundsError, match="`x`, which has 15 elements"):
        simulate(case.kernel([case.load()]), [torch.zeros(15), torch.empty(LANES)])


def test_misaligned_vectors(case: Case) -> None:
    vectors = [Copy(at(case.r), at(case.x.buffer, mul(2, mod(LANE, 4))), 4)]
    with pytest.raises(
        SimulationError, match=r"index 2 of `x` is no multiple of the vector width 4.*\(1, 0, 0\)"
    ):
        case.run(*vectors)
    aligned = [Copy(at(case.r), at(case.x.buffer, mul(4, mod(LANE, 4))), 4)]
    case.run(*aligned)
    with pytest.raises(SimulationError, match="`x`, which starts 4 bytes after a multiple"):
        simulate(case.kernel(aligned), [torch.zeros(LANES + 1)[1:], torch.empty(LANES)])


def test_a_shared_buffer_must_fit_its_arena(case: Case) -> None:
    with pytest.raises(OutOfBoundsError, match="bytes 16 to 47 of a shared memory of 32 bytes"):
        case.run(Alloc(shared("late", F32, THREADS, 16)))


# ---- initialisation ---------------------------------------------------------------------------


def test_reading_unwritten_registers(case: Case) -> None:
    with pytest.raises(
        UninitializedReadError, match=r"element 0 of `r` is read and was never written, at `y\["
    ):
        case.run(case.store())
    with pytest.raises(UninitializedReadError, match=r"block \(0, 0, 0\), thread \(3, 0, 0\)"):
        case.run(If(lt(T, 3), (case.load(),)), case.store())
    # Two halves make a whole, and a guard may be repeated.
    case.run(If(lt(T, 3), (case.load(),)), If(lt(2, T), (case.load(),)), case.store())
    case.run(If(lt(T, 3), (case.load(),)), If(lt(T, 3), (case.store(),)))


def test_registers_indexed_by_thread(case: Case) -> None:
    body = [For(STEP, const(4), (Copy(at(case.r, STEP), at(case.x.buffer, LANE)),))]
    dynamic = Copy(at(case.y.buffer, LANE), at(case.r, mod(T, 4)))
    report_args = [torch.arange(float(LANES)), torch.empty(LANES)]
    simulate(case.kernel([*body, dynamic]), report_args)
    assert torch.equal(report_args[1], report_args[0])
    with pytest.raises(UninitializedReadError, match=r"element 1 of `r`.*thread \(1, 0, 0\)"):
        case.run(case.load(), dynamic)


def test_reading_unwritten_shared_memory(case: Case) -> None:
    with pytest.raises(UninitializedReadError, match="element 0 of `s`"):
        case.run(case.get())
    # A buffer that reuses the bytes of another does not inherit its values.
    other = shared("other", F32, THREADS)
    with pytest.raises(UninitializedReadError, match="element 0 of `other`"):
        case.run(case.load(), case.put(), Barrier(), Alloc(other), Copy(at(case.r), at(other, T)))


# ---- values of an earlier iteration -----------------------------------------------------------


def _rounds(case: Case, load_guard: Expr, *rest: Stmt) -> For:
    """Three rounds, each of which loads a register where the guard holds, and then does the rest."""
    return For(STEP, const(3), (If(load_guard, (case.load(),)), *rest))


def test_a_register_that_this_iteration_did_not_write(case: Case) -> None:
    within = lt(STEP * THREADS + T, 20)
    use = Copy(at(case.s, T), at(case.r))
    case.run(_rounds(case, within, If(within, (use,))))
    with pytest.raises(UninitializedReadError, match=r"element 0 of `r`.*thread \(4, 0, 0\)"):
        case.run(_rounds(case, within, use))
    case.run(_rounds(case, within, use), uninitialized=False)


def test_shared_memory_that_this_iteration_did_not_write(case: Case) -> None:
    within = lt(STEP * THREADS + T, 20)
    other = THREADS - 1 - T
    reversed_ = If(lt(STEP * THREADS + other, 20), (Copy(at(case.r, 1), at(case.s, other)),))
    unguarded = Copy(at(case.r, 1), at(case.s, other))
    round_ = (case.load(), If(within, (case.put(),)), Barrier())
    case.run(For(STEP, const(3), (*round_, reversed_, Barrier())))
    with pytest.raises(UninitializedReadError, match=r"element 7 of `s`.*thread \(0, 0, 0\)"):
        case.run(For(STEP, const(3), (*round_, unguarded, Barrier())))


def test_values_that_a_kernel_carries_from_one_iteration_to_the_next(case: Case) -> None:
    """An accumulator, a pipeline, a vector that several iterations use, what is read after the loop."""
    first = eq(mod(STEP, 2), 0)
    use, total = Copy(at(case.s, T), at(case.r)), local("total", F32)
    increment = Compute(ADD, at(total), (at(total), at(case.r)), F32)
    case.run(Alloc(total), Init(SUM, (at(total),)), _rounds(case, TRUE, increment))
    case.run(case.load(), For(STEP, const(3), (use, case.load())))
    case.run(_rounds(case, eq(STEP, 0)), use)
    pair = (If(first, (case.load(into=0), case.load(into=1))), Copy(at(case.s, T), at(case.r, mod(STEP, 2))))
    case.run(For(STEP, const(3), pair))
    index = symbol("index", hi=1)
    named = (pair[0], Let(index, mod(STEP, 2)), Copy(at(case.s, T), at(case.r, index)))
    case.run(For(STEP, const(3), named))


# ---- outputs ----------------------------------------------------------------------------------


def test_reading_an_output_before_it_is_written(case: Case) -> None:
    read = Copy(at(case.r), at(case.y.buffer, LANE))
    with pytest.raises(UninitializedReadError, match="element 0 of `y`"):
        case.run(read)
    case.run(case.load(), case.store(), read)
    case.run(read, uninitialized=False)


def test_unwritten_outputs_hold_nan(case: Case) -> None:
    args = [torch.arange(float(LANES)), torch.zeros(LANES)]
    simulate(case.kernel([case.load(), If(eq(T, 0), (case.store(),))]), args, options=PARTIAL)
    assert args[1].isnan().sum() == LANES - BLOCKS


# ---- races ------------------------------------------------------------------------------------


def test_a_missing_barrier_is_a_race() -> None:
    x, y = torch.randn(512), torch.empty(512)
    with pytest.raises(RaceError) as caught:
        simulate(builders.block_reverse(with_barrier=False), [x, y, 512])
    facts = caught.value.facts
    assert (facts["block"], facts["thread"], facts["index"]) == ((0, 0, 0), (0, 0, 0), 252)
    assert "which thread (63, 0, 0) of block (0, 0, 0) wrote with no barrier between" in str(caught.value)
    simulate(builders.block_reverse(with_barrier=True), [x, y, 512])


def test_a_missing_grid_barrier_is_a_race() -> None:
    kernel = builders.grid_reverse(with_barrier=False)
    args = [torch.randn(128), torch.empty(128), torch.empty(128), torch.zeros(16, dtype=torch.int64)]
    with pytest.raises(RaceError, match=r"which thread .* wrote with no barrier between"):
        simulate(kernel, [*args, torch.zeros(1, dtype=torch.int32)])


def test_a_grid_barrier_is_for_all_blocks(case: Case) -> None:
    semaphore = WorkspaceParam(tensor("semaphore", DataType.Int32, const(1)).buffer, zeroed=True)
    kernel = case.kernel([If(eq(B, 0), (GridBarrier(semaphore.buffer),))], [semaphore])
    args = [torch.zeros(LANES), torch.zeros(LANES), torch.zeros(1, dtype=torch.int32)]
    with pytest.raises(SimulationError, match=r"reached by other blocks but not this one.*block \(1, 0, 0\)"):
        simulate(kernel, args, options=PARTIAL)


def test_a_cluster_reduction_is_for_all_blocks_of_the_cluster() -> None:
    whole = builders.cluster_rows()
    args = [torch.zeros(3, 256), torch.zeros(3, 256), 3]
    first = lt(index_symbol(GX, whole.grid[0]), 6)
    under = [If(first, (stmt,)) if isinstance(stmt, ClusterReduce) else stmt for stmt in whole.body]
    with pytest.raises(
        SimulationError, match=r"other blocks of the cluster but not this .*block \(6, 0, 0\)"
    ):
        simulate(replace(whole, body=tuple(under)), args, options=PARTIAL)
    with pytest.raises(OutOfBoundsError, match="`exchange` has 16 elements, but the collective needs 48"):
        simulate(replace(whole, cluster=12), args)
    with pytest.raises(SimulationError, match=r"the grid along x is 12, the limit a multiple of 8"):
        simulate(replace(whole, cluster=8), args)
    with pytest.raises(SimulationError, match="a cluster is 4, the limit 1"):
        simulate(whole, args, hardware=DESCRIBED["a100"])


def test_writing_after_others_read_needs_a_barrier(case: Case) -> None:
    ready: list[Stmt] = [case.load(), case.put(), Barrier(), case.get(THREADS - 1 - T)]
    with pytest.raises(RaceError, match=r"writes element 0 of `s`, which thread \(7, 0, 0\) .* read"):
        case.run(*ready, case.put())
    case.run(*ready, Barrier(), case.put())
    broadcast: list[Stmt] = [case.load(), case.put(), Barrier(), case.get(0)]
    with pytest.raises(RaceError, match=r"writes element 0 of `s`, which several threads of block .* read"):
        case.run(*broadcast, If(eq(T, 0), (case.put(),)))


def test_a_loop_that_reuses_shared_memory_needs_two_barriers(case: Case) -> None:
    once: list[Stmt] = [case.put(), Barrier(), case.get(THREADS - 1 - T)]
    with pytest.raises(RaceError, match="`s`, which thread"):
        case.run(case.load(), For(STEP, const(2), tuple(once)))
    case.run(case.load(), For(STEP, const(2), (*once, Barrier())))


def test_two_threads_that_write_one_address_race_even_with_one_value(case: Case) -> None:
    one = Copy(at(case.s), Imm(1.0, F32))
    with pytest.raises(RaceError, match="writes element 0 of `s`"):
        case.run(one)
    case.run(If(eq(T, 0), (one,)))
    with pytest.raises(RaceError, match=r"writes element 0 of `s`, which thread \(0, 0, 0\)"):
        case.run(If(eq(T, 0), (one,)), If(eq(T, 1), (one,)))
    case.run(one, races=False)


def test_a_barrier_orders_global_memory_within_a_block_only(case: Case) -> None:
    written: list[Stmt] = [case.load(), case.store(), Barrier()]
    neighbour = Copy(at(case.r), at(case.y.buffer, B * THREADS + (THREADS - 1 - T)))
    case.run(*written, neighbour)
    other_block = Copy(at(case.r), at(case.y.buffer, LANES - 1 - LANE))
    with pytest.raises(RaceError, match=r"which thread \(7, 0, 0\) of block \(1, 0, 0\) wrote"):
        case.run(*written, other_block)


@pytest.mark.parametrize("max_lanes", [1, LANES])
def test_blocks_that_write_one_address_race_whichever_run_together(case: Case, max_lanes: int) -> None:
    body = [case.load(), case.store(T)]
    with pytest.raises(RaceError, match=r"writes element 0 of `y`"):
        simulate(
            case.kernel(body),
            [torch.zeros(LANES), torch.zeros(LANES)],
            options=SimOptions(max_lanes=max_lanes),
        )


def test_overlapping_arguments_race_with_each_other(case: Case) -> None:
    storage = torch.arange(float(LANES + 1))
    shift = case.kernel([case.load(), case.store()])
    with pytest.raises(RaceError, match=r"writes element 0 of `y`, which thread \(1, 0, 0\) .* read"):
        simulate(shift, [storage[:LANES], storage[1:]])
    simulate(shift, [storage[:LANES], storage[:LANES]])


# ---- collectives ------------------------------------------------------------------------------


def _block_sum(case: Case, workspace: Buffer, pred: Expr = TRUE, total: Buffer | None = None) -> list[Stmt]:
    total = total or local("total", F32)
    return [
        Alloc(total),
        Init(SUM, (at(total),)),
        BlockReduce(SUM, (at(total),), (at(case.r),), (BX,), pred, (workspace,)),
    ]


@pytest.mark.parametrize("what", ["barrier", "block reduction"])
def test_a_collective_that_some_threads_miss(case: Case, what: str) -> None:
    body = [Barrier()] if what == "barrier" else _block_sum(case, case.s)
    divergent = If(lt(T, 5), tuple(body))
    with pytest.raises(
        SimulationError,
        match=rf"a {what} is reached by other threads .* block \(0, 0, 0\), thread \(5, 0, 0\)",
    ):
        case.run(case.load(), divergent)
    case.run(case.load(), If(lt(B, 1), tuple(body)))


def test_a_loop_whose_extent_differs_between_threads(case: Case) -> None:
    with pytest.raises(SimulationError, match=r"the extent of the loop differs .*thread \(0, 0, 0\)"):
        case.run(For(STEP, floordiv(T, 2), (case.load(),)))
    report = case.run(For(STEP, B + 1, (Barrier(),)))
    assert report.barriers == 3  # one in block 0, two in block 1


def test_a_block_reduction_ignores_lanes_without_predicate_and_clobbers_its_workspace(case: Case) -> None:
    total = local("total", F32)
    reduce = _block_sum(case, case.s, lt(T, 3), total)
    args = [torch.arange(float(LANES)), torch.zeros(LANES)]
    result = Copy(at(case.y.buffer, LANE), at(total))
    simulate(case.kernel([If(lt(T, 3), (case.load(),)), *reduce, result]), args)
    assert args[1].tolist() == [3.0] * THREADS + [27.0] * THREADS
    with pytest.raises(UninitializedReadError, match="element 0 of `s`"):
        case.run(case.load(), case.put(), *reduce, case.get())
    small = shared("small", F32, THREADS - 1)
    with pytest.raises(OutOfBoundsError, match="`small` has 7 elements, but the collective needs 8"):
        case.run(case.load(), Alloc(small), *_block_sum(case, small))


class GridCase(Case):
    """A sum over both blocks into `total`, in the last block."""

    def __init__(self) -> None:
        super().__init__()
        self.total = local("total", F32)
        self.exchange = WorkspaceParam(grid_exchange(BLOCKS), zeroed=True)
        self.is_last = symbol("is_last", hi=1)
        self.reduce = GridReduce(
            SUM,
            (at(self.total),),
            (at(self.r),),
            (GX,),
            (BX,),
            TRUE,
            (self.s,),
            self.exchange.buffer,
            self.is_last,
        )
        self.before: list[Stmt] = [self.load(), Alloc(self.total), Init(SUM, (at(self.total),))]

    def run_grid(self, *body: Stmt, said: int = 0, room: int = 3 * BLOCKS) -> torch.Tensor:
        y = torch.zeros(LANES)
        simulate(
            self.kernel([*self.before, *body], [self.exchange]),
            [
                torch.arange(float(LANES)),
                y,
                torch.full((room,), said, dtype=torch.int64),
            ],
            options=PARTIAL,
        )
        return y


def test_a_grid_reduction_is_valid_in_the_last_block_only() -> None:
    case = GridCase()
    result = Copy(at(case.y.buffer, LANE), at(case.total))
    y = case.run_grid(case.reduce, If(case.is_last, (result,)))
    assert y[y.isfinite()].tolist() == [sum(range(LANES))] * THREADS
    with pytest.raises(UninitializedReadError, match=r"element 0 of `total`.*block \(0, 0, 0\)"):
        case.run_grid(case.reduce, result)


def test_a_grid_reduction_needs_its_scratch_and_all_blocks() -> None:
    case = GridCase()
    with pytest.raises(SimulationError, match="`exchange` is not zero when the collective starts"):
        case.run_grid(case.reduce, said=1)
    with pytest.raises(OutOfBoundsError, match="`exchange` has 5 elements, but the collective needs 6"):
        case.run_grid(case.reduce, room=5)
    with pytest.raises(SimulationError, match=r"reached by other blocks .* block \(1, 0, 0\)"):
        case.run_grid(If(eq(B, 0), (case.reduce,)))
    with pytest.raises(RaceError, match="`exchange` for a second grid reduction"):
        case.run_grid(For(STEP, const(2), (case.reduce,)))


def _grid_scan(case: GridCase) -> GridScan:
    case.exchange = WorkspaceParam(grid_exchange(BLOCKS, turns=4), zeroed=True)
    r, total, exchange = at(case.r), at(case.total), case.exchange.buffer
    return GridScan(SUM, (r,), (r,), (total,), GX, BX, (), exchange)


def test_a_grid_scan_finds_what_blocks_before_found() -> None:
    case = GridCase()
    of_block = Copy(at(case.r), at(case.x.buffer, B + 1))  # 1 in the first block, 2 in the second
    result = Copy(at(case.y.buffer, LANE), at(case.r))
    y = case.run_grid(of_block, _grid_scan(case), result, room=6 * BLOCKS)
    assert y.tolist() == [0.0] * THREADS + [1.0] * THREADS
    again = [of_block, _grid_scan(case)]
    y = case.run_grid(For(STEP, const(2), (*again,)), result, room=6 * BLOCKS)  # from a carry of 3 on
    assert y.tolist() == [3.0] * THREADS + [4.0] * THREADS


def test_a_grid_scan_needs_all_blocks_and_the_same_of_all_threads() -> None:
    case = GridCase()
    of_block, scan = Copy(at(case.r), at(case.x.buffer, B)), _grid_scan(case)
    with pytest.raises(SimulationError, match="`r` differs between threads of a block that scan with others"):
        case.run_grid(scan, room=6 * BLOCKS)
    with pytest.raises(OutOfBoundsError, match="`exchange` has 11 elements, but the collective needs 12"):
        case.run_grid(of_block, scan, room=6 * BLOCKS - 1)
    with pytest.raises(SimulationError, match=r"reached by other blocks .* block \(1, 0, 0\)"):
        case.run_grid(of_block, If(eq(B, 0), (scan,)), room=6 * BLOCKS)


# ---- the rest ---------------------------------------------------------------------------------


def test_names_end_with_their_body(case: Case) -> None:
    name = symbol("name", hi=LANES - 1)
    with pytest.raises(SimulationError, match="`name` is used where it has no value"):
        case.run(If(lt(T, 3), (Let(name, T),)), case.load(name))
    inner = local("inner", F32)
    with pytest.raises(SimulationError, match="`inner` is used where it is not declared"):
        case.run(For(STEP, const(1), (Alloc(inner),)), Copy(at(inner), at(case.x.buffer, LANE)))


def test_a_copy_is_no_cast(case: Case) -> None:
    half = local("half", DataType.Half)
    with pytest.raises(
        SimulationError, match=r"torch.float32 is stored to `half` of torch.float16 without a cast"
    ):
        case.run(Alloc(half), Copy(at(half), at(case.x.buffer, LANE)))
    case.run(Alloc(half), Compute(ADD, at(half), (at(case.x.buffer, LANE), Imm(1.0, F32)), F32))


def test_launches_that_no_gpu_takes(case: Case) -> None:
    valid = case.kernel([case.load()])
    args = [torch.zeros(LANES), torch.zeros(LANES)]
    for launch, problem in (
        ({"block": (1025, 1, 1)}, r"the block is \(1025, 1, 1\), the limit"),
        ({"block": (64, 32, 1)}, "threads a block is 2048, the limit 1024"),
        ({"grid": (1, 65536, 1)}, r"the grid is \(1, 65536, 1\)"),
        ({"shared_bytes": 100 * 1024}, "shared memory of a block is 102400, the limit 101376"),
    ):
        with pytest.raises(SimulationError, match=problem):
            simulate(valid, args, hardware=DESCRIBED["l4"], **launch)
    with pytest.raises(SimulationError, match="launch bounds 4"):
        simulate(replace(valid, max_threads=4), args)


def test_a_vector_race_names_the_element(case: Case) -> None:
    vectors = Copy(Ref(case.s, mul(4, mod(T, 2))), at(case.r), 4)
    fill = [Copy(at(case.r, k), Imm(0.0, F32)) for k in range(4)]
    with pytest.raises(RaceError, match=r"writes element [0-7] of `s`"):
        case.run(*fill, vectors)
    case.run(*fill, If(lt(T, 2), (vectors,)))


def test_elements_are_changed_by_several_threads() -> None:
    """Each is added to once for each thread, in any order; a value that names no element is reported."""
    row = symbol("row", lo=-1, hi=7)
    index, y = local("index", DataType.Int), tensor("y", F32, const(LANES))
    place = mod(LANE, 9)

    def updated(extent: int, op: ReductionOp | None) -> torch.Tensor:
        body = [
            Alloc(index),
            Copy(at(index), IndexValue(place, DataType.Int)),
            LetValue(row, at(index), const(8), lt(place, extent), strict=True),
            Scatter(at(y.buffer, row), Imm(1.0, F32), op, pred=le(0, row)),
        ]
        values = torch.zeros(LANES)
        simulate(kernel("case", [replace(y, is_updated=True)], body, [BLOCKS], [THREADS]), [values])
        return values

    expected = torch.zeros(LANES).index_add_(0, torch.arange(LANES) % 9, torch.ones(LANES))
    expected[8:] = 0
    assert torch.equal(updated(8, SUM), expected)
    assert torch.equal(updated(8, None), expected.clamp(max=1))
    with pytest.raises(OutOfBoundsError, match="index 8 is out of bounds for a dimension with size 8"):
        updated(9, SUM)
