"""Chooses params for sweeps over data that is reduced and then needed again, and how much of it is read
again.

As many blocks as the GPU has SMs share the rows, or tiles of columns, and process them at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import trunc

from fusewright.core.hardware import WARP_SIZE, HardwareInfo
from fusewright.schedulers.base import Cost, Facts
from fusewright.schedulers.cost import GRID_REDUCTION_SECONDS, CostModel, busy_share
from fusewright.schedulers.params import CompileParams, LaunchParams, ReductionParams
from fusewright.schedulers.reduction.planner import ReductionPlanner
from fusewright.schedulers.reduction.step_loads import REGISTERS_TO_WORK
from fusewright.schedulers.reduction.variances import has_welford
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least, power_of_two_at_most, whole_warps

# ---- threads ----

# Threads of a block: two blocks share an SM with rows, of so many threads together. One has it with columns,
# whose threads pass on more and need the registers for that.
#   H200, bf16, of a copy's speed: softmax down 131072 rows of 128 in tiles of 64 columns 0.69, 0.62 with
#   twice as many threads; batch norm of 64x64x112x112, channels last, 0.52 to 0.56, and 0.47.
THREADS_OF_ROWS = 448  # of a block
THREADS_AN_SM = 896  # of all blocks
THREADS_OF_COLUMNS = 512  # of a block
# Threads of a block at least, of small tensors, before each has several vectors in flight.
FEW_THREADS = 256
# Blocks that share a row at least.
LEAST_SHARE = 4

# ---- what is in flight ----

# Bytes that a thread has in flight: the vectors of one step of its loop.
#   H200, batch norm of 256 channels of 802816 bf16, in turns of 32, of a copy's speed: 0.70, with 32 bytes
#   0.68.
BYTES_IN_FLIGHT = 64
# Registers of a thread, and steps, from which on it loads the next step while it works on one.
#   H200, bf16, of a copy's speed: softmax down 131072 rows of 128 0.72, without 0.69; of 65536 rows of 64,
#   two steps, 0.52 so, 0.54 without.
REGISTERS_TO_PREFETCH = 128  # of a thread
STEPS_TO_PREFETCH = 4  # of a block

# ---- tiles of columns ----

# Bytes of a tile's row, of the narrowest tensor, which memory is read in runs of; the second for many
# columns.
TILE_ROW_BYTES = (256, 512)
# The same of what is near once it was read, where blocks mostly wait for each other: half of a row at most,
# and no more nor less than this. Blocks have fewer columns to tell each other of then.
#   H200, softmax of bf16, of a copy's speed: of 131072 rows of 128 0.69 with 128 bytes, 0.55 with 256, 0.54
#   with 64; of 65536 rows of 64 0.52 with 64 bytes, 0.42 with 128.
NEAR_ROW_BYTES = 128  # at most
LEAST_ROW_BYTES = 64  # at least

# ---- what is held from sweep to sweep ----

# Bytes of shared memory that the alignment of all buffers may take.
SHARED_SLACK = 512
# Share of the L2 cache that holds what a sweep read last when the next begins there.
FOUND_IN_L2 = 0.5

# ---- cost ----

# Share of a copy's speed that is left, as all blocks wait for each other after each sweep.
SPEED = 0.88
# Share of its arithmetic that a sweep of rows adds to the time of its memory, where it waits for what it
# loads at each step: two blocks of an SM have too few threads to hide it.
#   H200, us, estimated without it, measured, and measured without sweeps: a LAMB step 92, 131 and 91; x + r
#   by its norm 39, 73 and 50; rows of 2097152 standardized 163, 320 and 172; a LARS step, with a quarter of
#   the arithmetic, 66, 61 and 71.
EXPOSED_ARITHMETIC = 1.0
# The same of columns, of which threads have several steps in flight.
#   H200, 131072 rows of 128, us, estimated with it and measured: centered 28 and 25, standard scores in two
#   passes 32 and 31, of floats 55 and 56, GELU by the root of its mean square 34 and 34, softmax 33 and 29;
#   standard scores of a sum that is stored, which rounds it in each sweep, 57 and 74.
EXPOSED_OF_COLUMNS = 0.15
# Share of that speed that is left where Welford's steps find a variance down columns: with a division each,
# in few threads.
#   H200, us, estimated with it and measured: standard scores of 16.8 million bf16 45 and 42 to 52, floats 84
#   and 70, of a sum that is stored, too, 86 and 91 to 117.
WELFORD_SPEED = 0.55


@dataclass(frozen=True, slots=True)
class Swept:
    """The data that is swept.

    Attributes:
        rows, length: the number of rows or columns, and the number of reduced elements of each.
        width: elements per vector.
        element_bytes: the bytes of all loads of a point.
        narrowest_bytes: the bytes of the narrowest load of a point.
        step_registers: the registers that hold a vector of each load, also of those that lack dimensions.
        state_bytes: the bytes that a thread passes on for one row or column.
        sizes: the reduced sizes, if the kernel is specialized for them; else ().
        sweeps: the number of sweeps over all elements, including the first.
        reductions: the number of reductions, for whose results all blocks wait one after another.
        has_welford: whether Welford's steps compute a variance.
    """

    rows: int
    length: int
    width: int
    element_bytes: int
    narrowest_bytes: int
    step_registers: int
    state_bytes: int
    sizes: tuple[int, ...]
    sweeps: int
    reductions: int
    has_welford: bool

    def vectors_in_flight(self, threads: int, hardware: HardwareInfo) -> int:
        """Returns the vectors of each load that a thread has in flight, of so many threads of an SM: a power
        of two.
        """
        vectors = BYTES_IN_FLIGHT // (self.width * self.element_bytes)
        room = hardware.registers_a_thread(threads) - REGISTERS_TO_WORK
        return power_of_two_at_most(max(1, min(vectors, room // max(1, self.step_registers))))


def swept(planner: ReductionPlanner, width: int, constant: bool, facts: Facts) -> Swept | None:
    """Returns the data that a planner's fusion sweeps, in vectors of `width`; None if there is nothing to
    read, or no vector.

    constant: whether a kernel for only these sizes is acceptable.
    """
    space = planner.space
    full = [access.tensor.dtype.size for access in space.full_loads]
    rows, length = space.iteration_size(facts), space.reduction_size(facts)
    if width == 1 or not full or not rows or not length:
        return None
    return Swept(
        rows,
        length,
        width,
        element_bytes=sum(full),
        narrowest_bytes=min(full),
        step_registers=planner.step_loads.registers(width),
        state_bytes=planner.state_bytes,
        sizes=space.reduction_sizes(facts) if constant else (),
        sweeps=1 + planner.chain,
        reductions=planner.reductions,
        has_welford=has_welford(planner.fusion),
    )


@dataclass(frozen=True, slots=True)
class Sweeping:
    """Params, and the estimated cost of their kernel."""

    params: ReductionParams
    estimate: Callable[[], Cost]


@dataclass(frozen=True, slots=True)
class _Grid:
    """The data that blocks process at the same time.

    Attributes:
        blocks: the number of blocks, `resident` of them per SM.
        steps: the steps of each block's loop over its elements, of `vectors` each.
        exchanged: the bytes of shared memory in which a block reduces.
        threads: the threads per SM for which registers suffice.
        turns: the number of turns in which blocks take rows.
    """

    blocks: int
    resident: int
    steps: int
    vectors: int
    exchanged: int
    threads: int = THREADS_AN_SM
    turns: int = 1


def sweep_rows(what: Swept, cost: CostModel, facts: Facts, hardware: HardwareInfo) -> Sweeping | None:
    """Returns params for blocks that share rows; None if one block per row is enough.

    Rows are processed in turns of as many as stay close after they were read, in shared memory or in the L2
    cache.
    H200, 256 channels of 802816 bf16, of a copy's speed: 0.70 in turns of 32, 0.66 of 64, 0.63 of 16.
    """
    resident = THREADS_AN_SM // THREADS_OF_ROWS
    places = resident * hardware.sm_count
    if places < LEAST_SHARE:
        return None
    near = hardware.sm_count * hardware.shared_memory_per_sm + FOUND_IN_L2 * hardware.l2_bytes
    fitting = max(1, trunc(near) // max(1, what.length * what.element_bytes))
    turns = ceil_div(what.rows, min(fitting, places // LEAST_SHARE))
    at_once = ceil_div(what.rows, turns)  # in turns of equal length
    share = places // at_once
    vectors = ceil_div(what.length, what.width)
    enough = power_of_two_at_least(ceil_div(vectors, share * FEW_THREADS))
    unroll = min(what.vectors_in_flight(THREADS_AN_SM, hardware), enough)
    threads = min(THREADS_OF_ROWS, whole_warps(ceil_div(vectors, share * unroll)))
    share = min(share, ceil_div(vectors, threads * unroll))
    if share < 2:
        return None
    steps = ceil_div(vectors, share * threads * unroll)
    params = ReductionParams(
        fastest_dim=True,
        unroll_factor_inner_reduction=what.width,
        vectorize_inner_reduction=what.width > 1,
        unroll_factor_top_of_vectorization=unroll,
        pad_inner_reduction_to_warp=True,
        persistent_blocks=at_once if turns > 1 else 0,
        lparams=LaunchParams(gdimy=share, bdimx=threads),
        reason=f"{what.rows} rows of {what.length}, {at_once} at a time: {share} blocks of {threads} threads "
        "a row",
    )
    exchanged = threads // WARP_SIZE * what.state_bytes
    grid = _Grid(at_once * share, resident, steps, threads * unroll, exchanged, turns=turns)
    return _held(what, params, grid, cost, facts, hardware)


def sweep_columns(what: Swept, cost: CostModel, facts: Facts, hardware: HardwareInfo) -> Sweeping | None:
    """Returns params for blocks that share tiles of columns; None if there are too many columns for that."""
    near = hardware.sm_count * hardware.shared_memory_per_sm + FOUND_IN_L2 * hardware.l2_bytes
    half = max(LEAST_ROW_BYTES, power_of_two_at_most(what.rows * what.narrowest_bytes // 2))
    is_near = what.rows * what.length * what.element_bytes <= near
    for row_bytes in (min(NEAR_ROW_BYTES, half),) * is_near + TILE_ROW_BYTES:
        tile = _tile(what, row_bytes, hardware)
        if tile is not None:
            return _held(what, *tile, cost, facts, hardware)
    return None


def _tile(what: Swept, row_bytes: int, hardware: HardwareInfo) -> tuple[ReductionParams, _Grid] | None:
    """Returns params for tiles whose rows have so many bytes; None if these are too many to be shared."""
    unroll = what.vectors_in_flight(THREADS_OF_COLUMNS, hardware)
    along = max(1, row_bytes // (what.width * what.narrowest_bytes))
    along = min(along, power_of_two_at_least(ceil_div(what.rows, what.width)))
    down = THREADS_OF_COLUMNS // along
    tiles = ceil_div(what.rows, along * what.width)
    share = hardware.sm_count // max(1, tiles)
    if share < 2 or not what.length:
        return None
    steps = ceil_div(what.length, share * down * unroll)
    # As many blocks as have that many steps each, all of the same length where it can be.
    share = ceil_div(what.length, steps * down * unroll)
    params = ReductionParams(
        fastest_dim=False,
        unroll_factor_iter_dom=what.width,
        vectorize_iter_dom=what.width > 1,
        unroll_factor_inner_reduction=unroll,
        lparams=LaunchParams(gdimy=share, bdimx=along, bdimy=down),
        reason=f"{what.rows} columns of {what.length}: {share} blocks of {along} x {down} threads "
        f"a tile of {along * what.width} columns",
    )
    # Threads of a warp that have the same columns combine by shuffles.
    exchanged = along * down * what.width * what.state_bytes // max(1, WARP_SIZE // along)
    return params, _Grid(tiles * share, 1, steps, along * down * unroll, exchanged, along * down)


def _held(
    what: Swept, params: ReductionParams, grid: _Grid, cost: CostModel, facts: Facts, hardware: HardwareInfo
) -> Sweeping:
    """Returns the params with what blocks hold of their steps from sweep to sweep, and the kernel's cost."""
    each = grid.vectors * what.width * what.element_bytes
    of_block = hardware.shared_memory_per_sm // grid.resident - hardware.shared_memory_reserved
    room = min(of_block, hardware.shared_memory_per_block_optin) - SHARED_SLACK - grid.exchanged
    held = max(0, min(grid.steps, room // each))
    # Registers keep the last step that the first sweep has loaded, if it is the only one that is not held.
    steps = grid.steps if held and held + 1 >= grid.steps else held
    near = grid.blocks * steps * each + FOUND_IN_L2 * hardware.l2_bytes
    of_turn = what.rows * what.length * what.element_bytes / grid.turns
    again = max(0.0, 1 - near / of_turn) if steps < grid.steps else 0.0
    registers = hardware.registers_a_thread(grid.threads)
    params = replace(
        params,
        persistent_kernel=True,
        project_persistent_buffers=True,
        batches_per_block_inner_reduction=0,
        held_steps=held,
        sweeps_backward=held < grid.steps,
        streams_last_sweep=steps < grid.steps,
        prefetches_steps=registers >= REGISTERS_TO_PREFETCH and grid.steps >= STEPS_TO_PREFETCH,
        assumed_reduction_sizes=what.sizes,
        cparams=CompileParams(maxrregcount=registers),
        reason=f"{params.reason}, which hold {steps} of {grid.steps} steps of {grid.vectors} vectors of "
        f"{what.width}",
    )
    waits = what.reductions * grid.turns
    computing = what.sweeps * cost.computing_seconds(facts, hardware)
    exposed, speed = EXPOSED_OF_COLUMNS * computing, SPEED * busy_share(grid.blocks, hardware)
    if params.fastest_dim:
        exposed = EXPOSED_ARITHMETIC * computing if steps < grid.steps else 0.0
    elif what.has_welford:
        speed *= WELFORD_SPEED
    estimate = cost.estimate(
        facts,
        hardware,
        reads=1 + (what.sweeps - 1) * again,
        speed=speed,
        steps=waits * GRID_REDUCTION_SECONDS + exposed,
    )
    return Sweeping(params, estimate)
