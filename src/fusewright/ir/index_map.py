"""The source element at each position of a result: the meaning of every shape operation.

Reshape, slice, pad, flip and gather have one representation. For each dimension of the source there is an
index expression over the position in the result and over loaded index values. A predicate says where there is
an element at all. So substitution composes any chain of them into one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fusewright.sym import (
    FALSE,
    TRUE,
    ZERO,
    Expr,
    Symbol,
    as_expr,
    const,
    is_nonneg,
    land,
    substitute,
    symbol,
)

_POSITION, _VALUE = "p", "v"
# What a kernel does not compute of sizes.
_COMPUTED_KINDS = ("floordiv", "mod", "min", "max", "xor")


def position(dim: int, extent: Expr) -> Symbol:
    """The position along dimension `dim` of a result of that size."""
    return symbol(f"{_POSITION}{dim}", lo=0, hi=extent - 1)


def positions(extents: Sequence[Expr]) -> list[Expr]:
    """The position along each dimension of a result; zero along those of one element."""
    return [const(0) if extent is const(1) else position(i, extent) for i, extent in enumerate(extents)]


def index_value(number: int, extent: Expr) -> Symbol:
    """The value of an index operand, into a dimension of that size: -1 for one outside of it."""
    return symbol(f"{_VALUE}{number}", lo=-1, hi=extent - 1)


def value_extent(value: Symbol) -> Expr:
    """The size of the dimension that an index value is into."""
    return as_expr(value.hi) + 1 if value.hi is not None else as_expr(0)


def position_of(s: Symbol) -> int | None:
    """The dimension whose position the symbol is, or None."""
    return _number(s, _POSITION)


def value_of(s: Symbol) -> int | None:
    """The number of the index operand whose value the symbol is, or None."""
    return _number(s, _VALUE)


def _number(s: Symbol, prefix: str) -> int | None:
    digits = s.name[1:]
    return int(digits) if s.name[:1] == prefix and digits.isdigit() else None


@dataclass(frozen=True, slots=True)
class IndexMap:
    """result[p] = source[indices] where `pred` holds.

    Attributes:
        indices: one expression per dimension of the source, over positions, index values and sizes.
        pred: holds where the source has the element; elsewhere the result is a fill value.
    """

    indices: tuple[Expr, ...]
    pred: Expr = TRUE

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (*self.indices, self.pred)

    def at(self, places: Sequence[Expr], shift: int = 0) -> IndexMap:
        """The map with other expressions for the positions; index operands are numbered from `shift` on."""

        def replace(s: Symbol) -> Expr | None:
            dim, number = position_of(s), value_of(s)
            if dim is not None:
                return places[dim]
            return index_value(number + shift, value_extent(s)) if number is not None and shift else None

        return self.rewritten(replace)

    def rewritten(self, replace: Callable[[Symbol], Expr | None]) -> IndexMap:
        """The map with `replace(symbol)` for each symbol for which that is not None."""
        table: dict[Symbol, Expr | int] = {}
        for e in self.expressions:
            for s in e.free_symbols:
                new = replace(s)
                if new is not None and new is not s:
                    table[s] = new
        if not table:
            return self
        return IndexMap(tuple(substitute(e, table) for e in self.indices), substitute(self.pred, table))

    def where(self, pred: Expr) -> IndexMap:
        """The map with the additional condition `pred`."""
        return IndexMap(self.indices, land(pred, self.pred))

    def resized(self, rename: Callable[[Expr], Expr], extents: Sequence[Expr]) -> IndexMap:
        """The map after sizes got other names; `extents` are the new sizes of the result."""
        places = positions(extents)

        def follow(s: Symbol) -> Expr | None:
            dim, number = position_of(s), value_of(s)
            if dim is not None:
                return places[dim]
            return index_value(number, rename(value_extent(s))) if number is not None else None

        try:
            renamed = IndexMap(tuple(rename(e) for e in self.indices), rename(self.pred))
        except ZeroDivisionError:
            # An index is divided by a size of 0 where the source has no elements.
            renamed = IndexMap((ZERO,) * len(self.indices), FALSE)
        return renamed.rewritten(follow)

    def identity_dims(self, rank: int) -> tuple[int | None, ...]:
        """For each dimension of the result, the source's that is indexed by its position alone."""
        found: list[int | None] = [None] * rank
        for source_dim, index in enumerate(self.indices):
            dim = position_of(index) if isinstance(index, Symbol) else None
            if dim is not None and found[dim] is None:
                found[dim] = source_dim
        return tuple(found)

    def depends_on(self, dim: int) -> bool:
        """Whether the element, or whether there is one, differs along dimension `dim` of the result."""
        return any(position_of(s) == dim for e in self.expressions for s in e.free_symbols)

    @property
    def index_numbers(self) -> frozenset[int]:
        """The numbers of the index operands that it uses."""
        found = (value_of(s) for e in self.expressions for s in e.free_symbols)
        return frozenset(number for number in found if number is not None)

    def __str__(self) -> str:
        text = "[" + ", ".join(map(str, self.indices)) + "]"
        return text if self.pred is TRUE else f"{text} if {self.pred}"


def is_computed_size(e: Expr) -> bool:
    """Whether it is a minimum, a quotient or the like of sizes, which a kernel takes as one number."""
    return e.kind in _COMPUTED_KINDS and is_size(e)


def computed_parts(e: Expr) -> list[Expr]:
    """The outermost minima, quotients and the like of sizes in `e` that are known not to be negative."""
    if is_computed_size(e):
        return [e] if is_nonneg(e) else []
    return [part for arg in e.args for part in computed_parts(arg)]


def is_sum_of_products(e: Expr) -> bool:
    """Whether sizes are but added, subtracted and multiplied in it."""
    return e.kind not in _COMPUTED_KINDS and all(is_sum_of_products(arg) for arg in e.args)


def is_size(e: Expr) -> bool:
    """Whether it is the same at all positions."""
    return all(position_of(s) is None and value_of(s) is None for s in e.free_symbols)
