"""Binds Python's arithmetic operators on Expr to the simplifying constructors.

The node classes are below the constructors in the import order, so the binding is done here, once, on import.
`==` stays identity; comparisons are functions.
"""

from __future__ import annotations

from fusewright.sym.division import add, floordiv, mod, mul, sub
from fusewright.sym.nodes import Expr
from fusewright.sym.polynomial import scale
from fusewright.sym.text import to_text


def _bind() -> None:
    for name, function in (("add", add), ("sub", sub), ("mul", mul), ("floordiv", floordiv), ("mod", mod)):
        setattr(Expr, f"__{name}__", function)
        setattr(Expr, f"__r{name}__", lambda self, other, function=function: function(other, self))
    Expr.__neg__ = lambda self: scale(self, -1)  # type: ignore[method-assign]
    Expr.__str__ = to_text  # type: ignore[assignment]
    Expr.__repr__ = to_text  # type: ignore[assignment]


_bind()
