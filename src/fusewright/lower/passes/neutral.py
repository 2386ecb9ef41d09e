"""Fills loads with the neutral element of their only use.

    a = x[i] if p else 0                    a = x[i] if p else identity
    b = float(a)                    ->      b = float(a)
    c = b if p else identity                c = b

Then elements beyond the end of a row need no predicate after the load, which has one predicate per vector.
This requires that nothing else reads the load, since its fill becomes a real value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from fusewright.core.dtype import DataType
from fusewright.core.op import converted
from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.guards import with_pred
from fusewright.ops.elementwise import CAST
from fusewright.sym import bounds, substitute


def fill_with_neutral_elements(kernel: k.Kernel) -> k.Kernel:
    accesses: dict[k.Buffer, list[_Leaf]] = {}
    for leaf in _leaves(kernel.body, ()):
        for buffer in dict.fromkeys((*access.read_buffers(leaf.stmt), *access.written_buffers(leaf.stmt))):
            accesses.setdefault(buffer, []).append(leaf)
    changed: dict[k.Stmt, k.Stmt] = {}
    for leaf in dict.fromkeys(each for listed in accesses.values() for each in listed):
        found = _chosen(leaf.stmt)
        if found is None:
            continue
        source, neutral, plain = found
        load = _only_load(leaf, source, neutral, accesses)
        if load is not None:
            changed[leaf.stmt] = plain
            fill = k.Imm(neutral.value, load.dst.buffer.dtype)
            changed[load] = dataclasses.replace(load, fill=fill, fill_is_value=True)
    return k.with_body(kernel, k.rewritten(kernel.body, lambda stmt: [changed.get(stmt) or stmt]))


@dataclass(frozen=True, eq=False)
class _Leaf:
    """A statement without a body, and the loops around it, outermost first."""

    stmt: k.Stmt
    loops: tuple[k.For, ...]


def _leaves(body: Iterable[k.Stmt], loops: tuple[k.For, ...]) -> Iterable[_Leaf]:
    for stmt in body:
        if not k.children(stmt):
            yield _Leaf(stmt, loops)
        yield from _leaves(k.children(stmt), (*loops, stmt) if isinstance(stmt, k.For) else loops)


def _chosen(stmt: k.Stmt) -> tuple[k.Ref, k.Imm, k.Stmt] | None:
    """The parts of a selection between a register and a constant; None for other statements.

    Returns:
        The register, the constant, and the copy that always takes the register.
    """
    if not isinstance(stmt, k.Copy) or stmt.width > 1 or stmt.pred is k.TRUE or not stmt.fill_is_value:
        return None
    if not isinstance(stmt.fill, k.Imm) or not isinstance(stmt.src, k.Ref):
        return None
    return stmt.src, stmt.fill, with_pred(stmt, k.TRUE)


def _only_load(
    user: _Leaf, source: k.Ref, neutral: k.Imm, accesses: dict[k.Buffer, list[_Leaf]]
) -> k.Copy | None:
    """The load whose value `source` holds, perhaps after casts.

    None if its fill cannot be the neutral element. The load must have the same predicate as `user`, and
    nothing else may read it or the results of the casts.
    """
    reader, ref = user, source
    while True:
        touching = [leaf for leaf in accesses[ref.buffer] if leaf is not reader]
        if ref.buffer.space is not k.Space.LOCAL or len(touching) != 1:
            return None
        [writer] = touching
        stmt = writer.stmt
        if isinstance(stmt, k.Compute) and stmt.op is CAST and isinstance(stmt.args[0], k.Ref):
            exact = _is_exact(neutral, stmt.args[0].buffer.dtype)
            if writer.loops != reader.loops or stmt.dst != ref or not exact:
                return None
            reader, ref = writer, stmt.args[0]
            continue
        if not isinstance(stmt, k.Copy) or stmt.fill is None or stmt.fill_is_value:
            return None
        return stmt if _is_filled_elsewhere(writer, reader, ref, user.stmt) else None


def _is_exact(value: k.Imm, dtype: DataType) -> bool:
    """Whether type `dtype` represents this value exactly."""
    given = torch.tensor(value.value, dtype=value.dtype.values)
    return bool(converted(converted(given, dtype), value.dtype) == given)


def _is_filled_elsewhere(load: _Leaf, reader: _Leaf, ref: k.Ref, user: k.Stmt) -> bool:
    """Whether the element that is read is a fill exactly where the user's predicate does not hold."""
    copy = load.stmt
    assert isinstance(copy, k.Copy) and isinstance(user, k.Copy)
    table = access.same_iterations(load.loops, reader.loops)
    if table is None:
        return False
    low, high = bounds(substitute(ref.index, table) - copy.dst.index)
    if low is None or high is None or low < 0 or high >= copy.width:
        return False
    return substitute(user.pred, table) is copy.pred
