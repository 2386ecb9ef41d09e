"""Combines several kernels to one, in which each block executes one of them.

    if blockIdx.x < start2:
      bind c0.T0, c0.n, start.c0 by blockIdx.x from start1 to p0.T0, p0.n, start0; p1.T0, p1.n, start1:
        c0.blockIdx.x = blockIdx.x - start.c0
        ...                          parts 0 and 1, which are equal, with the parameters of one of them
    if start2 <= blockIdx.x:
      p2.blockIdx.x = blockIdx.x - start2
      ...                            part 2

The starts are parameters: the host computes how many blocks each part has for the sizes of a call. Part 1's
`n` is `p1.n` in the combined kernel. A block belongs to one part, so barriers and collectives remain those of
a whole block, and all parts have their shared memory at the same position.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar, cast

from fusewright.core.enums import ParallelType
from fusewright.kernel import ir as k
from fusewright.sym import Expr, Symbol, as_int, const, floordiv, le, lt, maximum, mod, substitute, symbol

_THREADS = frozenset(k.index_name(axis) for axis in k.THREAD_AXES)
_BLOCKS = tuple(k.index_name(axis) for axis in k.BLOCK_AXES)
_ONE = const(1)

AnyT = TypeVar("AnyT")


def common_block(kernel: k.Kernel) -> tuple[int, int, int] | None:
    """The block that a kernel must share with those that it is combined with; None if it cannot be combined.

    The block must be constant, since the text may rely on it. Workspaces are laid out by the whole grid, and
    all clusters of a launch have one size.
    """
    x, y, z = map(as_int, kernel.block)
    if x is None or y is None or z is None:
        return None
    if any(isinstance(param, k.WorkspaceParam) for param in kernel.params) or kernel.cluster > 1:
        return None
    return x, y, z


def part_symbol(part: int, own: Symbol) -> Symbol:
    """The symbol in the combined kernel for a symbol of part number `part`, with the same bounds."""
    return _Part(f"p{part}").symbol(own)


def block_count(grid: Sequence[Expr]) -> Expr:
    """The number of blocks of a launch, whose extents are at least 1."""
    count: Expr = _ONE
    for extent in grid:
        count = count * maximum(1, extent)
    return count


def combine(name: str, parts: Sequence[k.Kernel]) -> k.Kernel:
    """One kernel that does the work of `parts`.

    The parts have the same `common_block`, index type and `max_registers`, and none may access data that
    another writes. The parameters are those of the parts in order, then the numbers of their first blocks,
    `start0`, `start1`, ..., and the number of all blocks. Neighbouring parts that are the same object share
    their code.
    """
    first = parts[0]
    index = first.index_dtype
    starts = [k.ScalarParam(f"start{i}", index, symbol(f"start{i}")) for i in range(len(parts))]
    total = symbol("blocks", lo=1)
    block = k.index_symbol(ParallelType.grid_x, total)
    renamed = [_Part(f"p{i}") for i in range(len(parts))]
    bodies: list[tuple[k.Stmt, ...]] = []
    firsts: list[Expr] = []
    for members in _runs(parts):
        firsts.append(_symbol(starts[members[0]]))
        chosen = [([renamed[i].param(p) for p in parts[i].params], starts[i]) for i in members]
        bodies.append(_body(parts[members[0]], renamed[members[0]], f"c{len(bodies)}", block, chosen))
    pairs = list(zip(renamed, parts))
    threads = [kernel.max_threads for kernel in parts]
    return k.Kernel(
        name,
        (
            *[part.param(param) for part, kernel in pairs for param in kernel.params],
            *starts,
            k.ScalarParam("blocks", index, total),
        ),
        _choice(block, firsts, bodies),
        (total, _ONE, _ONE),
        first.block,
        maximum(*[part.expr(kernel.shared_bytes) for part, kernel in pairs]),
        index,
        max(threads) if all(threads) else 0,
        tuple(
            [k.Alignment(part.buffer(a.buffer), a.bytes) for part, kernel in pairs for a in kernel.alignments]
        ),
        first.max_registers,
    )


def _runs(parts: Sequence[k.Kernel]) -> list[range]:
    """The ranges of positions of neighbouring parts that are the same object."""
    bounds = [i for i, kernel in enumerate(parts) if i == 0 or kernel is not parts[i - 1]]
    return [range(start, end) for start, end in zip(bounds, [*bounds[1:], len(parts)])]


def _body(
    kernel: k.Kernel,
    part: _Part,
    shared: str,
    block: Expr,
    chosen: Sequence[tuple[list[k.Param], k.ScalarParam]],
) -> tuple[k.Stmt, ...]:
    """The code of one part, or of several equal ones under the name `shared`."""
    if len(chosen) == 1:
        body = part.of(kernel.body)
        return (*part.positions(block - _symbol(chosen[0][1]), kernel.grid), *body)
    every = _Part(shared)
    start = k.ScalarParam(f"start.{shared}", kernel.index_dtype, symbol(f"start.{shared}"))
    body = every.of(kernel.body)
    return (
        k.Bind(
            block,
            tuple([_symbol(first) for _, first in chosen[1:]]),
            (*[every.param(param) for param in kernel.params], start),
            tuple([(*params, first) for params, first in chosen]),
            (*every.positions(block - _symbol(start), kernel.grid), *body),
        ),
    )


def _symbol(param: k.ScalarParam) -> Symbol:
    assert param.symbol is not None
    return param.symbol


def statement_count(kernel: k.Kernel) -> int:
    """The number of statements, as a measure of the size of a kernel's code."""
    return sum(1 for _ in k.walk(kernel.body))


def _choice(block: Expr, starts: Sequence[Expr], bodies: Sequence[tuple[k.Stmt, ...]]) -> tuple[k.Stmt, ...]:
    """Branches, by bisection, to the body of the part that `block` belongs to.

    Args:
        starts: the first block of each part.
    """
    if len(bodies) == 1:
        return bodies[0]
    half = len(bodies) // 2
    return (
        k.If(lt(block, starts[half]), _choice(block, starts[:half], bodies[:half])),
        k.If(le(starts[half], block), _choice(block, starts[half:], bodies[half:])),
    )


class _Part:
    """Maps the names of one part to those in the combined kernel."""

    def __init__(self, name: str) -> None:
        self._prefix = f"{name}."
        self._symbols: dict[Symbol, Expr] = {}
        self._buffers: dict[k.Buffer, k.Buffer] = {}
        self._params: dict[k.Param, k.Param] = {}

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

    def buffer(self, own: k.Buffer) -> k.Buffer:
        found = self._buffers.get(own)
        if found is None:
            offset = None if own.offset is None else self.expr(own.offset)
            found = self._buffers[own] = dataclasses.replace(
                own, name=self._prefix + own.name, size=self.expr(own.size), offset=offset
            )
        return found

    def param(self, own: k.Param) -> k.Param:
        found = self._params.get(own)
        if found is None:
            if isinstance(own, k.ScalarParam):
                size = None if own.symbol is None else self.symbol(own.symbol)
                divisor = None if own.divisor is None else self.expr(own.divisor)
                name = self._prefix + own.name
                found = dataclasses.replace(own, name=name, symbol=size, divisor=divisor)
            elif isinstance(own, k.TensorParam):
                found = dataclasses.replace(own, buffer=self.buffer(own.buffer))
            else:
                found = dataclasses.replace(own, buffer=self.buffer(own.buffer))
            self._params[own] = found
        return found

    def of(self, value: AnyT) -> AnyT:
        """A statement, an operand, or a collection of them, with the names of the combined kernel."""
        return cast(AnyT, self._of(value))

    def _of(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple([self._of(each) for each in value])
        if isinstance(value, Symbol):
            return self.symbol(value)
        if isinstance(value, Expr):
            return self.expr(value)
        if isinstance(value, k.Buffer):
            return self.buffer(value)
        if isinstance(value, k.Ref):
            return k.Ref(self.buffer(value.buffer), self.expr(value.index))
        if isinstance(value, k.ScalarRef):
            return k.ScalarRef(cast(k.ScalarParam, self.param(value.param)))
        if isinstance(value, k.IndexValue):
            return k.IndexValue(self.expr(value.expr), value.dtype)
        if isinstance(value, k.Covering):
            return k.Covering(self.symbol(value.lane), self.expr(value.wanted))
        if isinstance(value, k.Stmt):
            changed = {f.name: self._of(getattr(value, f.name)) for f in dataclasses.fields(value)}
            return dataclasses.replace(value, **changed)
        return value  # an op, a constant, a width

    def positions(self, block: Expr, grid: Sequence[Expr]) -> list[k.Stmt]:
        """Defines the part's blockIdx.x, .y and .z, given the number of the block in the part."""
        used = {own.name: named for own, named in self._symbols.items() if own.name in _BLOCKS}
        extents = [maximum(1, self.expr(extent)) for extent in grid]
        found: list[k.Stmt] = []
        for axis, name in enumerate(_BLOCKS):
            position = block
            for extent in extents[:axis]:
                position = floordiv(position, extent)
            if any(as_int(extent) != 1 for extent in extents[axis + 1 :]):
                position = mod(position, extents[axis])
            if name in used:
                found.append(k.Let(cast(Symbol, used[name]), position))
        return found
