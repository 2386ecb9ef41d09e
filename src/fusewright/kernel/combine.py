"""Several kernels as one, which each run in some of its blocks.

    b = blockIdx.x
    if b < end0:                   the blocks of part 0
      p0.blockIdx.x = b
      ...
    if end0 <= b:                  and of part 1
      p1.blockIdx.x = b - end0
      ...

The ends are parameters: the host adds up how many blocks each part has for the sizes of a call. What a part
calls `n` is `p1.n` in the whole, so parts may be equal. A block belongs to one part: barriers and collectives
stay those of a whole block, and all parts have their shared memory at the same place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar, cast

from fusewright.core.enums import ParallelType
from fusewright.kernel.ir import (
    BLOCK_AXES,
    THREAD_AXES,
    Alignment,
    Buffer,
    If,
    IndexValue,
    Kernel,
    Let,
    Param,
    Ref,
    ScalarParam,
    ScalarRef,
    Stmt,
    TensorParam,
    WorkspaceParam,
    index_name,
    index_symbol,
    walk,
)
from fusewright.sym import Expr, Symbol, as_int, const, floordiv, le, lt, maximum, mod, substitute, symbol

_THREADS = frozenset(index_name(axis) for axis in THREAD_AXES)
_BLOCKS = tuple(index_name(axis) for axis in BLOCK_AXES)
_ONE = const(1)

AnyT = TypeVar("AnyT")


def common_block(kernel: Kernel) -> tuple[int, int, int] | None:
    """The block that a kernel shares with those that it may be combined with; None if with none.

    The block has to be constant, since the text may rely on it. Workspaces are laid out by the whole grid.
    """
    x, y, z = map(as_int, kernel.block)
    if x is None or y is None or z is None:
        return None
    if any(isinstance(param, WorkspaceParam) for param in kernel.params):
        return None
    return x, y, z


def part_symbol(part: int, own: Symbol) -> Symbol:
    """What a symbol of part number `part` is called in the whole, with the same bounds."""
    return _Part(part).symbol(own)


def block_count(grid: Sequence[Expr]) -> Expr:
    """The blocks of a launch: an extent is at least 1."""
    count: Expr = _ONE
    for extent in grid:
        count = count * maximum(1, extent)
    return count


def combine(name: str, parts: Sequence[Kernel]) -> Kernel:
    """One kernel that does what `parts` do, which have one `common_block` and index type.

    No part may touch what another writes. Its parameters are those of the parts in order, then
    for each part the number of blocks of it and those before it together: `end0`, `end1`, ...
    """
    first = parts[0]
    ends = [ScalarParam(f"end{i}", first.index_dtype, symbol(f"end{i}", lo=1)) for i in range(len(parts))]
    limits = [cast(Symbol, end.symbol) for end in ends]
    block = index_symbol(ParallelType.grid_x, limits[-1])
    renamed = [_Part(i) for i in range(len(parts))]
    params: list[Param] = []
    alignments: list[Alignment] = []
    bodies: list[tuple[Stmt, ...]] = []
    for i, (part, kernel) in enumerate(zip(renamed, parts)):
        params += [part.param(param) for param in kernel.params]
        alignments += [Alignment(part.buffer(a.buffer), a.bytes) for a in kernel.alignments]
        body = part.of(kernel.body)
        position = block - limits[i - 1] if i else block
        bodies.append((*part.positions(position, kernel.grid), *body))
    threads = [kernel.max_threads for kernel in parts]
    return Kernel(
        name,
        (*params, *ends),
        _choice(block, limits, bodies),
        (limits[-1], _ONE, _ONE),
        first.block,
        maximum(*[part.expr(kernel.shared_bytes) for part, kernel in zip(renamed, parts)]),
        first.index_dtype,
        max(threads) if all(threads) else 0,
        tuple(alignments),
    )


def statements(kernel: Kernel) -> int:
    """How many there are: what the size of its code goes by."""
    return sum(1 for _ in walk(kernel.body))


def _choice(block: Expr, ends: Sequence[Expr], bodies: Sequence[tuple[Stmt, ...]]) -> tuple[Stmt, ...]:
    """The body that `block` belongs to, found by halving."""
    if len(bodies) == 1:
        return bodies[0]
    half = len(bodies) // 2
    end = ends[half - 1]
    return (
        If(lt(block, end), _choice(block, ends[:half], bodies[:half])),
        If(le(end, block), _choice(block, ends[half:], bodies[half:])),
    )


class _Part:
    """The names of one part in the whole."""

    def __init__(self, number: int) -> None:
        self._prefix = f"p{number}."
        self._symbols: dict[Symbol, Expr] = {}
        self._buffers: dict[Buffer, Buffer] = {}
        self._params: dict[Param, Param] = {}

    def symbol(self, own: Symbol) -> Symbol:
        if own.name in _THREADS:
            return own
        found = self._symbols.get(own)
        if found is None:
            hi = self.expr(own.hi) if isinstance(own.hi, Expr) else own.hi
            found = self._symbols[own] = symbol(self._prefix + own.name, own.lo, hi, own.multiple_of)
        return cast(Symbol, found)

    def expr(self, expr: Expr) -> Expr:
        for each in expr.free_symbols:
            self.symbol(each)
        return substitute(expr, self._symbols)

    def buffer(self, own: Buffer) -> Buffer:
        found = self._buffers.get(own)
        if found is None:
            offset = None if own.offset is None else self.expr(own.offset)
            found = self._buffers[own] = dataclasses.replace(
                own, name=self._prefix + own.name, size=self.expr(own.size), offset=offset
            )
        return found

    def param(self, own: Param) -> Param:
        found = self._params.get(own)
        if found is None:
            if isinstance(own, ScalarParam):
                size = None if own.symbol is None else self.symbol(own.symbol)
                found = dataclasses.replace(own, name=self._prefix + own.name, symbol=size)
            elif isinstance(own, TensorParam):
                found = dataclasses.replace(own, buffer=self.buffer(own.buffer))
            else:
                found = dataclasses.replace(own, buffer=self.buffer(own.buffer))
            self._params[own] = found
        return found

    def of(self, value: AnyT) -> AnyT:
        """A statement, an operand, or several, with the names of the whole."""
        return cast(AnyT, self._of(value))

    def _of(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple([self._of(each) for each in value])
        if isinstance(value, Symbol):
            return self.symbol(value)
        if isinstance(value, Expr):
            return self.expr(value)
        if isinstance(value, Buffer):
            return self.buffer(value)
        if isinstance(value, Ref):
            return Ref(self.buffer(value.buffer), self.expr(value.index))
        if isinstance(value, ScalarRef):
            return ScalarRef(cast(ScalarParam, self.param(value.param)))
        if isinstance(value, IndexValue):
            return IndexValue(self.expr(value.expr), value.dtype)
        if isinstance(value, Stmt):
            changed = {f.name: self._of(getattr(value, f.name)) for f in dataclasses.fields(value)}
            return dataclasses.replace(value, **changed)
        return value  # an op, a constant, a width

    def positions(self, block: Expr, grid: Sequence[Expr]) -> list[Stmt]:
        """Gives the part's own blockIdx.x, .y and .z a value, from the number of its block."""
        used = {own.name: named for own, named in self._symbols.items() if own.name in _BLOCKS}
        extents = [maximum(1, self.expr(extent)) for extent in grid]
        found: list[Stmt] = []
        for axis, name in enumerate(_BLOCKS):
            position = block
            for extent in extents[:axis]:
                position = floordiv(position, extent)
            if any(as_int(extent) != 1 for extent in extents[axis + 1 :]):
                position = mod(position, extents[axis])
            if name in used:
                found.append(Let(cast(Symbol, used[name]), position))
        return found
