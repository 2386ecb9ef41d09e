"""The iteration space of a fusion that reduces rows, reads them again with the results, and reduces columns
of the same domain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusewright.analyze.axis_map import contradiction, is_own_load
from fusewright.analyze.kept import kept
from fusewright.analyze.kinds import foreign_node, reductions_by_output
from fusewright.analyze.parameters import too_many_parameters
from fusewright.core.once import cached_property
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Reduction
from fusewright.ir.value import TensorView
from fusewright.schedulers.reduction.space import (
    ReductionSpace,
    all_outputs,
    computed_after,
    main_load,
    memory_order,
    reduced_axes,
    space_of,
    uncovered,
    unrelated,
)
from fusewright.schedulers.reference_map import AxisMap, loads, reference_maps


@dataclass(frozen=True, eq=False)
class InnerOuterPersistentSpace:
    """The iteration space of all tensors of the fusion.

    Attributes:
        rows: the space of all tensors with an element for each point or each row. Its reductions are those of
            rows; its iteration axes are the rows, and its reduction axes the columns.
        column_reductions: the first output of every reduction of columns, producers first.
        of_columns: the tensors with one element per column: those reductions, values computed from them, and
            values computed only for these.
    """

    rows: ReductionSpace
    column_reductions: tuple[TensorView, ...]
    of_columns: frozenset[TensorView]

    @cached_property
    def of_rows(self) -> ReductionSpace:
        """`rows` without the loads and stores of tensors of columns."""
        loads = (
            load for load in self.rows.loads if load.node is None or load.node.output not in self.of_columns
        )
        stores = (store for store in self.rows.stores if store.tensor not in self.of_columns)
        return replace(self.rows, loads=tuple(loads), stores=tuple(stores))

    @property
    def column_inputs(self) -> tuple[TensorView, ...]:
        """The inputs that rows are computed with and that have one element for each column."""
        columns = {axis for axis in self.rows.reduction if not axis.is_broadcast}
        fits: dict[TensorView, bool] = {}
        for access in self.rows.loads:
            if access.node is not None and access.node.output not in self.of_columns:
                own = not access.by_index and access.concrete == columns
                fits[access.tensor] = own and fits.get(access.tensor, True)
        return tuple(tensor for tensor, fit in fits.items() if fit)


@kept
def inner_outer_persistent_space(fusion: Fusion) -> InnerOuterPersistentSpace | str:
    """The space of a fusion whose reductions reduce its rows, which are used again with the results, or its
    columns, whose results are not; or the reason why there is none.
    """
    foreign = foreign_node(fusion, Reduction) or too_many_parameters(fusion)
    if foreign is not None:
        return foreign
    reductions = reductions_by_output(fusion)
    if len(reductions) < 2:
        return "it has less than two reductions"
    # Those of rows are those whose results are read again with what is reduced.
    reference = max(reductions, key=lambda t: sum(not a.is_broadcast for a in t.logical))
    maps = reference_maps(reference, reference.logical)
    reduced = reduced_axes(reference, reductions, maps)
    if isinstance(reduced, str):
        return reduced
    main = main_load(fusion, reference, loads(fusion, maps))
    order = memory_order(reference, main)
    inner = [axes for axes in dict.fromkeys(reduced.values()) if order[-1] in axes]
    outer = [axes for axes in dict.fromkeys(reduced.values()) if order[-1] not in axes]
    if len(inner) != 1 or len(outer) != 1:
        return "its reductions do not reduce rows and columns"
    if inner[0] & outer[0] or len(inner[0] | outer[0]) < len(order):
        return "what its reductions of columns keep is not what those of rows reduce"
    row_reductions = tuple(t for t in reductions if reduced[t] == inner[0])
    column_reductions = tuple(t for t in reductions if reduced[t] == outer[0])
    return _with_sides(fusion, row_reductions, column_reductions)


def _with_sides(
    fusion: Fusion, row_reductions: tuple[TensorView, ...], column_reductions: tuple[TensorView, ...]
) -> InnerOuterPersistentSpace | str:
    reference = row_reductions[0]
    maps = reference_maps(reference, reference.logical)
    of_columns = _of_columns(fusion, column_reductions)
    after = computed_after(fusion, row_reductions) - of_columns
    problem = _meeting(fusion, of_columns)
    if problem is None and not any(_is_full(reference, maps.get(tensor, {})) for tensor in after):
        problem = "no row is read again with the results of its reductions"
    problem = problem or contradiction(fusion, maps)
    problem = problem or uncovered(fusion, reference, maps, after, leave_out=of_columns)
    problem = problem or _misfit(fusion, reference, maps, of_columns)
    if problem is not None:
        return problem
    rows = space_of(fusion, reference, row_reductions, maps, after)
    if not rows.is_inner:
        return "the contiguous dimension is not reduced along the rows"
    return InnerOuterPersistentSpace(rows, column_reductions, frozenset(of_columns))


def _is_full(reference: TensorView, covered: AxisMap) -> bool:
    own = [covered.get(axis) for axis in reference.logical]
    return all(axis is not None and not axis.is_broadcast and not axis.is_reduction for axis in own)


def _of_columns(fusion: Fusion, column_reductions: tuple[TensorView, ...]) -> set[TensorView]:
    """The column reductions, what follows from them, and what is computed for that alone."""
    outputs = set(fusion.output_tensors())
    found = set(all_outputs(column_reductions))
    for node in fusion.tensor_nodes():
        if any(tensor in found for tensor in node.tensor_inputs):
            found.update(node.tensor_outputs)
    for node in reversed(fusion.tensor_nodes()):
        users = [user for out in node.outputs for user in out.uses]
        others = not users or any(out in outputs for out in node.outputs)
        if not others and all(user.output in found and not isinstance(user, Reduction) for user in users):
            found.update(node.tensor_outputs)
    return found


def _meeting(fusion: Fusion, of_columns: set[TensorView]) -> str | None:
    """Where the columns' results meet rows again, or one load does not serve both, or None."""
    for node in fusion.tensor_nodes():
        if node.output not in of_columns:
            continue
        for tensor in node.tensor_inputs:
            crosses = not fusion.is_input(tensor) and tensor not in of_columns
            if crosses and not (isinstance(node, Reduction)):
                return f"{node.output.name} reads {tensor.name} with the results of columns"
    for value in fusion.inputs:
        if not isinstance(value, TensorView) or value.is_cpu:
            continue
        shared = [use for use in value.uses if not is_own_load(fusion, use) or use.inputs[0] is not value]
        sides = {use.output in of_columns and not isinstance(use, Reduction) for use in shared}
        if len(sides) > 1:
            return f"{value.name} is read both with rows and with the results of columns"
    return None


def _misfit(
    fusion: Fusion, reference: TensorView, maps: dict[TensorView, AxisMap], of_columns: set[TensorView]
) -> str | None:
    """Why a tensor of columns does not fit their loops, or None."""
    columns = {axis for axis in reference.logical if axis.is_reduction}
    outputs = set(fusion.output_tensors())
    for tensor in of_columns:
        covered = maps.get(tensor, {})
        problem = unrelated(tensor, reference, maps)
        if problem is not None:
            return problem
        own = {a for a, mine in covered.items() if not mine.is_broadcast and not mine.is_reduction}
        if not own <= columns:
            return f"{tensor.name} meets the results of columns with rows again"
        if not tensor.is_reduction and any(axis not in covered for axis in columns):
            return f"{tensor.name} lacks a dimension of the reduction {reference.name}"
        if tensor in outputs and own != columns:
            return f"output {tensor.name} has not all columns"
    return None
