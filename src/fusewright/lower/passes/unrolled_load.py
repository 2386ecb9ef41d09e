"""A load with the unrolled loops around it, in a form that passes can compare."""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.kernel import ir as k
from fusewright.sym import Expr, substitute


@dataclass(frozen=True)
class UnrolledLoad:
    """A load of global memory; `loops`: the unrolled loops that it stands in, the outermost first."""

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
        """An expression of it in loops that are as long."""
        return substitute(expr, {own.symbol: other.symbol for own, other in zip(self.loops, loops)})
