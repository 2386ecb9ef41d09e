"""Moves work that is computed once per row to the kernel that reduces the row.

    first {variance}, second {rows, each times rsqrt(variance + e)}
    becomes    first {variance, rsqrt(variance + e)}, second {rows, each times that}

A kernel without a reduction computes at every element. Values that depend only on reductions are rounded
correctly, which takes many instructions. The last kernel of a batch norm whose images are channels last took
twice as long that way (an H200).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fusewright.ir import Node, Reduction, Scan, TensorView, Val

Group = list[Node]


def with_row_results(
    groups: Sequence[Group], position: Mapping[Node, int], is_taken: Callable[[Sequence[Node]], bool]
) -> list[Group]:
    """The groups, producers first, after work that a kernel with a reduction could do has moved there.

    Args:
        position: of nodes, producers first.
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
    """The nodes that follow from what other groups have reduced, and the last of these groups.

    What reads inputs alone is no such node, even where it reduces copies that an expanded dimension shows.
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
    """Whether the rest reads no more tensors of the moved nodes than these read of other groups."""
    inside = set(moved)
    made = {out for node in moved for out in node.outputs}
    rest = {v for node in group if node not in inside for v in node.inputs}
    before = {v for node in moved for v in node.tensor_inputs if v.definition is not None} - made - rest
    return len(made & rest) <= len(before)
