"""Loads in unrolled loops, in a form that passes can compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fusewright.kernel import ir as k
from fusewright.sym import Expr, Symbol, substitute, symbol


@dataclass(frozen=True)
class UnrolledLoad:
    """A load from global memory, and the unrolled loops around it, outermost first."""

    copy: k.Copy
    loops: tuple[k.For, ...]

    @property
    def src(self) -> k.Ref:
        assert isinstance(self.copy.src, k.Ref)
        return self.copy.src

    @property
    def memory(self) -> k.Buffer:
        return self.src.buffer

    @property
    def extents(self) -> tuple[Expr, ...]:
        return tuple([loop.extent for loop in self.loops])

    def moved(self, expr: Expr, loops: tuple[k.For, ...]) -> Expr:
        """An expression of the load with the symbols of other loops of the same extents."""
        return substitute(expr, {own.symbol: other.symbol for own, other in zip(self.loops, loops)})


def common_symbols(loops: Sequence[k.For]) -> dict[Symbol, Symbol]:
    """Maps the symbols of nested loops to symbols that are the same for all loops of these extents."""
    return {loop.symbol: symbol(f"each{depth}", lo=0, hi=loop.extent - 1) for depth, loop in enumerate(loops)}


def single_nest(stmt: k.Stmt) -> tuple[tuple[k.For, ...], k.Stmt]:
    """The nested unrolled loops with one statement each, outermost first, and the innermost statement."""
    loops: list[k.For] = []
    while isinstance(stmt, k.For) and stmt.unroll and len(stmt.body) == 1:
        loops.append(stmt)
        [stmt] = stmt.body
    return tuple(loops), stmt


def nested_in(loops: Sequence[k.For], body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
    """`body` inside these loops, in place of their own bodies."""
    for loop in reversed(loops):
        body = (replace(loop, body=body),)
    return body
