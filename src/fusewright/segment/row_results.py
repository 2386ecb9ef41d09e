"""Moves work that is computed once per row to the kernel that reduces the row.

    first {variance}, second {rows, each times rsqrt(variance + e)}
    becomes    first {variance, rsqrt(variance + e)}, second {rows, each times that}

A kernel without a reduction computes these values again for every element. Values that depend only on
reductions are rounded correctly, which takes many instructions. Without this move the last kernel of a batch
norm with channels-last images took twice as long on an H200.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fusewright.ir import Node, Reduction, Scan, TensorView, Val

Group = list[Node]


def with_row_results(
    groups: Sequence[Group], position: Mapping[Node, int], is_taken: Callable[[Sequence[Node]], bool]
) -> list[Group]:
    """The groups, producers first, with work per row moved to the kernel that reduces the row.

    Args:
        position: the position of each node in topological order.
        is_taken: whether a scheduler accepts a group of nodes.
    """
    result = list(groups)
    maker = {out: i for i, group in enumerate(result) for node in group for out in node.outputs}
    for i, group in enumerate(result):
        if group[0].traits.whole or any(isinstance(node, (Reduction, Scan)) for node in group):
            continue
        moved, target = _movable(group, i, maker)
        if not moved or result[target][0].traits.whole or not _hands_on_no_more(group, moved):
            continue
        rest = [node for node in group if node not in moved]
        joined = sorted([*result[target], *moved], key=position.__getitem__)
        if rest and is_taken(joined) and is_taken(rest):
            result[target], result[i] = joined, rest
            maker.update((out, target) for node in moved for out in node.outputs)
    return result


def _movable(group: Group, place: int, maker: Mapping[Val, int]) -> tuple[list[Node], int]:
    """The nodes that depend only on reductions of other groups, and the last of these groups.

    A node that reads only inputs does not count, even if it counts as reduced (`Node.reduced`).
    """
    moved: list[Node] = []
    target = -1
    made: set[Val] = set()
    for node in group:
        read = [v for v in node.inputs if isinstance(v, TensorView) and v.definition is not None]
        others = [maker[v] for v in read if v not in made and v in maker]
        known = len(others) + sum(v in made for v in read)
        follows = 0 < known == len(read) and place not in others
        if follows and node.reduced and node.traits.pointwise:
            moved.append(node)
            made.update(node.outputs)
            target = max([target, *others])
    return moved, target


def _hands_on_no_more(group: Group, moved: Sequence[Node]) -> bool:
    """Whether the move adds no tensor that a kernel reads.

    The rest of the group then reads results of the moved nodes instead of their operands.
    """
    inside = set(moved)
    made = {out for node in moved for out in node.outputs}
    rest = {v for node in group if node not in inside for v in node.inputs}
    before = {v for node in moved for v in node.tensor_inputs if v.definition is not None} - made - rest
    return len(made & rest) <= len(before)
