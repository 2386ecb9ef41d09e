"""Finds results that only one block has.

A grid reduction that is not an all-reduce (`TensorView.everywhere`) leaves its result in the block that
arrives last. All computation from the result is under the flag of this block. One pass over the nodes finds
the flags before the nodes are lowered, so it does not depend on the lowering rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fusewright.core.enums import ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.ir.node import Node, Reduction
from fusewright.ir.value import Val
from fusewright.kernel.ir import THREAD_AXES
from fusewright.lower.loops import LoopMap
from fusewright.sym import Symbol, as_int, symbol


@dataclass(frozen=True)
class Flag:
    """A flag: `symbol` is 1 in the block along `axes` that holds the result of a grid reduction, else 0."""

    symbol: Symbol
    axes: tuple[ParallelType, ...]


class LastBlock:
    """The flags of all nodes.

    Args:
        nodes: the nodes in program order.

    Raises:
        ScheduleError: a tensor depends on a grid reduction and is spread over the blocks of the reduction.
    """

    def __init__(self, nodes: Sequence[Node], loops: LoopMap) -> None:
        self._of_value: dict[Val, tuple[Flag, ...]] = {}
        self._set_by: dict[Node, Flag] = {}
        scratch = 0  # a flag has the number of the reduction's exchange buffer
        for node in nodes:
            flags = self.needed_by(node)
            for flag in flags:
                _refuse_spread(node, flag, loops)
            grid = reduced_across(node, loops).grid
            if grid and not node.output.everywhere:
                own = self._set_by[node] = Flag(symbol(f"last{scratch}", lo=0, hi=1), grid)
                flags = (*flags, own)
            scratch += bool(grid)
            if flags:
                self._of_value.update(dict.fromkeys(node.outputs, flags))

    def needed_by(self, node: Node) -> tuple[Flag, ...]:
        """The flags under which the inputs of `node` are valid."""
        found = (flag for value in node.inputs for flag in self._of_value.get(value, ()))
        return tuple(dict.fromkeys(found))

    def set_by(self, node: Node) -> Flag:
        """The flag of a grid reduction that is not an all-reduce."""
        return self._set_by[node]


def _refuse_spread(node: Node, flag: Flag, loops: LoopMap) -> None:
    for axis, loop in zip(node.output.loop, loops.of(node)):
        if loop.parallel in flag.axes and as_int(loop.extent) != 1:
            raise ScheduleError(
                f"{node.output.name} follows from a reduction across {loop.parallel.ir_name}, whose result "
                "the last of these blocks alone holds",
                expected=f"axes that are not bound to {loop.parallel.ir_name}",
                given=str(axis),
                hint="all_reduce gives it to all blocks; or reduce across the threads of a block, or cut "
                "there into two kernels (segment_set)",
            )


class Across(NamedTuple):
    """The parallel axes with more than one point along which a node reduces.

    Attributes:
        threads, cluster, grid: axes of threads, of the blocks of a cluster, and of other blocks.
    """

    threads: tuple[ParallelType, ...] = ()
    cluster: tuple[ParallelType, ...] = ()
    grid: tuple[ParallelType, ...] = ()


def reduced_across(node: Node, loops: LoopMap) -> Across:
    """The parallel axes along which `node` reduces."""
    if not isinstance(node, Reduction):
        return Across()
    across = [
        loop.parallel
        for axis, loop in zip(node.output.loop, loops.of(node))
        if axis.is_reduction and loop.is_parallel and as_int(loop.extent) != 1
    ]
    cluster = tuple(p for p in across if p is ParallelType.cluster_x)
    grid = tuple(p for p in across if p.is_grid and p not in cluster)
    return Across(tuple(p for p in THREAD_AXES if p in across), cluster, grid)
