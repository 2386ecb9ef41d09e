"""How many elements a store by index writes."""

from __future__ import annotations

from fusewright.ir.index_map import position, position_of
from fusewright.ir.node import Stored
from fusewright.sym import ZERO, And, Expr, Le, Lt, maximum, minimum


def stored_extents(node: Stored) -> tuple[Expr, ...]:
    """The number of positions that a store has elements of, along each dimension of its source.

    Conditions that do not bound the position along a dimension are left out, so there may be fewer.
    """
    root = node.output.maybe_root
    pred = node.map.pred
    told = pred.args if isinstance(pred, And) else (pred,)
    found: list[Expr] = []
    for dim, axis in enumerate(root):
        begin: Expr = ZERO
        end = axis.extent
        place = position(dim, axis.extent)
        for condition in told:
            if not isinstance(condition, (Lt, Le)) or place not in condition.args:
                continue
            first, second = condition.args
            bound = second if first is place else first
            if any(position_of(s) is not None for s in bound.free_symbols):
                continue
            if first is place:
                end = minimum(end, bound if isinstance(condition, Lt) else bound + 1)
            else:
                begin = maximum(begin, bound + 1 if isinstance(condition, Lt) else bound)
        found.append(end if begin is ZERO else maximum(end - begin, 0))
    return tuple(found)
