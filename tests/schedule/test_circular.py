"""Circular buffers: rows that are copied ahead, by a thread of the block or by a warp of its own."""

from __future__ import annotations

import pytest
import torch

from fusewright.core.enums import MemoryType
from fusewright.core.enums import ParallelType as P
from fusewright.core.errors import ScheduleError
from fusewright.cuda.nvrtc import NvrtcOptions, compile_cubin
from fusewright.cuda.printer import print_kernel
from fusewright.ir import Fusion, TensorView
from fusewright.ops.build_elementwise import apply_to_tensor
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import sum_
from fusewright.schedule import Schedule, replay
from tests.lower.running import lowered, run
from tests.readback.kernels import check_kernel

BLOCKS, THREADS, WIDTH = 3, 32, 4
ROWS, COLUMNS = 7, 1000


def scheduled(*, chunk: int = 256, pos: int = -1) -> tuple[Schedule, list[TensorView]]:
    """x / sum(x) + z over rows, a persistent grid; x and z are held in shared memory, not filled ahead yet.

    [I, R] -> [rows, blocks | chunks, vectors, threads, vector], merged to [.., chunks, run] of what is held.
    """
    fusion = Fusion()
    x, z = define_tensor(fusion, [-1, -1], True), define_tensor(fusion, [-1, -1], True)
    share = apply_to_tensor(fusion, "div", x, sum_(fusion, x, [1], keepdim=True))
    add_output(fusion, apply_to_tensor(fusion, "add", share, z))
    fusion.unify_extents()
    s = Schedule(fusion)
    inputs = [s.map[x], s.map[z]]
    held = [s.cache_after(each) for each in inputs]
    for each in held:
        s.set_memory_type(each, MemoryType.shared)
    [out] = s.fusion.output_tensors()
    s.cache_before(out)
    [total] = (t for t in s.tensors() if s.is_reduction(t))
    s.assume(inputs[0], 1, 1, 1024)
    s.split(total, 1, chunk)
    s.split(total, 0, BLOCKS)
    s.parallelize(total, 1, P.grid_x)
    s.split(total, 3, WIDTH)
    s.split(total, 3, THREADS)
    s.parallelize(total, 4, P.block_x)
    s.transform_like(total)
    partial = s.rfactor(total, [2, 3, 5])
    s.transform_like(partial)
    s.parallelize_like(partial)
    vectors = [out]
    for each in held:
        for use in list(each.uses):
            vectors.append(s.cache_after(each, cached_uses=[use.output]))
        s.parallelize(each, 4, P.serial)
        s.merge(each, 3)
        s.merge(each, 3)
    for each in vectors:
        s.parallelize(each, -1, P.vectorize)
    return s, held


def inlined(s: Schedule, held: list[TensorView]) -> Schedule:
    partial = next(t for t in s.tensors() if s.is_reduction(t) and len(t.loop) == 6)
    s.inline_at(partial, 2, best_effort=True, selected=held)
    s.inline_most([t for t in s.tensors() if t.definition is not None and t.consumers and t not in held])
    return s


def in_chunks(by_warp: bool) -> Schedule:
    s, held = scheduled()
    for each in held:
        if by_warp:
            s.warp_specialize(each, 6, -1, P.block_x)
        else:
            s.circular_buffer(each, 6)
    return inlined(s, held)


def in_rows() -> Schedule:
    """A stage is a row, in chunks that are copied one by one; x by a warp of its own, z by a thread."""
    s, held = scheduled()
    s.warp_specialize(held[0], 2, 1, P.block_x, pos=2)
    s.circular_buffer(held[1], 3, 1, pos=2)
    return inlined(s, held)


@pytest.mark.parametrize("make", [lambda: in_chunks(True), lambda: in_chunks(False), in_rows])
def test_rows_are_copied_ahead(make) -> None:
    s = make()
    x, z = torch.rand(ROWS, COLUMNS), torch.rand(ROWS, COLUMNS)
    [y] = run(s, [x, z])
    torch.testing.assert_close(y, x / x.sum(1, keepdim=True) + z)
    again = replay(s.original, s.trace())
    assert [str(t) for t in again.tensors()] == [str(t) for t in s.tensors()]
    assert [t.circular for t in again.tensors()] == [t.circular for t in s.tensors()]


def test_the_text_of_a_ring_compiles() -> None:
    kernel = lowered(in_chunks(True)).kernel
    source = print_kernel(kernel)
    check_kernel(kernel, source)
    assert compile_cubin(source.text, NvrtcOptions("sm_90a")).resources[source.name].spill_loads == 0


def test_what_a_circular_buffer_cannot_be() -> None:
    s, held = scheduled()
    [out] = s.fusion.output_tensors()
    with pytest.raises(ScheduleError, match="no copy of an input in shared memory"):
        s.circular_buffer(out, 2)
    with pytest.raises(ScheduleError, match="takes 2 stages or more"):
        s.circular_buffer(held[0], 1)
    with pytest.raises(ScheduleError, match="how many of 3 stages are filled ahead"):
        s.circular_buffer(held[0], 3, 3)
    with pytest.raises(ScheduleError, match="num_registers are those"):
        s.warp_specialize(held[0], 3, 1, P.block_x, [240, 40])
    with pytest.raises(ScheduleError, match="is one of the block"):
        s.warp_specialize(held[0], 3, 1, P.grid_x)


def test_too_few_stages_for_a_row() -> None:
    s, held = scheduled()
    s.circular_buffer(held[0], 4)
    with pytest.raises(ScheduleError, match=r"read in .* stages before any is read no more, but only 3"):
        lowered(inlined(s, held))
