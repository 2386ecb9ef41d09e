"""What the threads of a reduction kernel compute again: values that a row, or a column, has one of."""

from __future__ import annotations

from fusewright.core.once import cached_property
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Indexed, Node
from fusewright.schedulers.base import Facts
from fusewright.schedulers.cost import index_arithmetic
from fusewright.schedulers.params import ReductionParams
from fusewright.schedulers.reduction.space import ReductionSpace
from fusewright.schedulers.slots import RoundedSlots
from fusewright.sym import Expr, Product


class RowArithmetic:
    """The arithmetic of values that lack all reduced dimensions and that reduced elements follow from.

    Each thread of a row computes such a value. A thread with one row does this in front of the elements; a
    thread with several rows does it with each element of a step, except for loads. A value that has one point
    in all is not counted.
        A softmax of 16 scores for each of 1600064 rows of 16, four threads a row: 69 exponentials for a row
        in a thread of four rows, 21 in a thread of one (sm_90a). H200: 219 us, estimated as 306.
    """

    def __init__(self, fusion: Fusion, space: ReductionSpace) -> None:
        self._fusion = fusion
        self._space = space

    @cached_property
    def _values(self) -> list[tuple[Product, int, int]]:
        """For values with the same dimensions: their points, and the slots of their loads and of the rest."""
        rounded, positions = RoundedSlots(self._fusion), index_arithmetic(self._fusion)
        slots: dict[tuple[Expr, ...], list[int]] = {}
        for node in _of_rows(self._fusion, self._space):
            if node not in positions:
                own = tuple(axis.extent for axis in node.output.maybe_root if not axis.is_broadcast)
                slots.setdefault(own, [0, 0])[not isinstance(node, Indexed)] += rounded.of(node)
        return [(Product(own), loads, rest) for own, (loads, rest) in slots.items() if own]

    def repeated_slots(self, params: ReductionParams, facts: Facts) -> int:
        """Returns the slots (`core.op.Spelling`) of all threads beyond those of computing each value once."""
        if not self._values:
            return 0
        rows, length = self._space.iteration_size(facts), self._space.reduction_size(facts)
        threads = _threads_of_a_row(params)
        elements = _elements_of_a_step(params) if params.rows_in_flight > 1 else 1
        of_loads, of_rest = rows * threads, rows * min(length, threads * elements)
        return sum(
            loads * max(0, of_loads - points.value(facts.sizes))
            + rest * max(0, of_rest - points.value(facts.sizes))
            for points, loads, rest in self._values
        )


def _threads_of_a_row(params: ReductionParams) -> int:
    """Returns the threads that share a row, or a column."""
    launch = params.lparams
    inside = launch.bdimx if params.fastest_dim or params.lanes_down_columns else launch.bdimy
    return max(1, inside) * max(1, launch.gdimy)


def _elements_of_a_step(params: ReductionParams) -> int:
    """Returns the elements of each row that a thread of an inner kernel has in flight."""
    return params.vector_widths[0] * params.unroll_factor_top_of_vectorization


def _of_rows(fusion: Fusion, space: ReductionSpace) -> list[Node]:
    """Returns the nodes whose values lack all reduced dimensions and that reduced elements follow from."""
    reduced = [axis for axis in space.reduction if not axis.is_broadcast]
    inside: set[Node] = set()
    found = []
    for node in reversed(fusion.ordered_nodes()):
        if node.is_scalar or any(out in space.after for out in node.tensor_outputs):
            continue
        axes = space.maps.get(node.output, {})
        has_elements = node.output.is_reduction or any(
            axis in axes and not axes[axis].is_broadcast for axis in reduced
        )
        if has_elements:
            inside.add(node)
        elif any(use in inside for out in node.tensor_outputs for use in out.uses):
            inside.add(node)
            found.append(node)
    return found
