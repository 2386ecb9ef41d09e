"""Lowers vectors whose elements lie backward in memory, or are every n-th element of it.

    x_block[0:4] = x[n - 4 - i:+4]              x_block[0:8] = x[2 * i:+8]
    a[k] = x_block[3 - k]                       a[k] = x_block[2 * k + 1]

Blocks are loaded in as few vectors as there can be. Two loads of one block, such as of the even and of the
odd elements, become one (`lower.passes.repeated_loads`, `equal_loads`).
"""

from __future__ import annotations

from fusewright.analyze.stepped_runs import SteppedRun
from fusewright.core.enums import CacheOp
from fusewright.core.errors import ScheduleError
from fusewright.ir.node import Indexed, Node
from fusewright.kernel import ir as k
from fusewright.lower.context import Context
from fusewright.lower.loops import Item, Loop
from fusewright.lower.node_work import first_lane, index_values, item_of, padded, work_of
from fusewright.lower.partial_vectors import own_loops
from fusewright.sym import ZERO, as_int, const, mod, substitute, symbol


def picked_items(
    ctx: Context, node: Node, order: int, loops: tuple[Loop, ...], run: SteppedRun, cache: CacheOp
) -> list[Item]:
    """The loads of the blocks that contain a vector, and the copies of its elements in registers.

    Raises:
        ScheduleError: the blocks do not start at multiples of the vectors.
    """
    width = as_int(loops[-1].extent)
    assert isinstance(node, Indexed) and width is not None
    lane = symbol("lane", lo=0, hi=width - 1)
    indices = ctx.indices(node, (*loops[:-1], Loop(loops[-1].extent, loops[-1].parallel, 1, lane)))
    dst, src = ctx.result(node.output, indices), ctx.operand(node, 0, indices)
    assert isinstance(src, k.Ref)
    work = work_of(ctx, node, indices, lane)
    named = index_values(ctx, node, node.map.expressions, indices, work.pred, lane)
    work = padded(ctx, node, indices, work, lane)
    first, begin = first_lane(dst, lane), substitute(src.index, {lane: 0})
    size, count = run.block * width, as_int(dst.buffer.size)
    chunk = run.source_width(dst.buffer.dtype.size, width)
    at = indices.expression(run.first(width))
    # All strides are multiples of a vector, though not of a block.
    is_run = begin + run.step * lane is src.index and mod(begin - at, const(chunk)) is ZERO
    if not is_run or first is None or count is None:
        raise ScheduleError(
            f"{node.output.name} is vectorized by {width}, but its elements in {node.source.name} are not "
            f"among {size} from a multiple of {chunk} on",
            given=str(src.index),
            hint="leave the axis serial",
        )
    block = ctx.numbered_register(f"{dst.buffer.name}_block", dst.buffer.dtype, run.block * count)
    start = run.block * first.index
    loads = [
        work.load(k.Ref(block, start + n), k.Ref(src.buffer, begin - at + n), chunk, cache)
        for n in range(0, size, chunk)
    ]
    picked = k.Copy(k.Ref(dst.buffer, first.index + lane), k.Ref(block, start + at + run.step * lane))
    picks = k.For(lane, const(width), (picked,), unroll=True)
    around = own_loops(loops[:-1], node.output.inline_at)
    return [
        item_of(ctx, node, order, loops[:-1], work.statements([*named, *loads])),
        item_of(ctx, node, order + 1, around, work.statements([picks])),
    ]
