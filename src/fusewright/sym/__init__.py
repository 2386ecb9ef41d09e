"""Interned symbolic integer expressions for extents, strides, indices and predicates.

Imports nothing of fusewright. Start reading at nodes.py (what an expression is), then
division.py (the rewrite rules) and prover.py (what can be proved from symbols' bounds).

    i = symbol("i", hi=symbol("N") - 1)
    prove(lt(i, symbol("N")))                  # True
    (i * 4 + symbol("j", hi=3)) // 4 is i      # True: simplified on construction, interned
"""

from fusewright.sym import operators as _operators  # noqa: F401  (binds Expr's operators)
from fusewright.sym.bitwise import bitxor
from fusewright.sym.division import add, ceildiv, ceildiv_parts, floordiv, is_nonneg_dividend, mod, mul, sub
from fusewright.sym.nodes import (
    FALSE,
    ONE,
    TRUE,
    ZERO,
    Add,
    And,
    Const,
    Eq,
    Expr,
    FloorDiv,
    Le,
    Lt,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    Symbol,
    Xor,
    as_expr,
    as_int,
    const,
    interned_count,
    symbol,
)
from fusewright.sym.polynomial import exact_quotient
from fusewright.sym.predicates import eq, land, le, lnot, lor, lt, maximum, minimum, ne
from fusewright.sym.prover import divides, is_nonneg, prove
from fusewright.sym.ranges import bounds, is_positive_divisor, known_multiple, lower_bound, upper_bound
from fusewright.sym.text import to_function, to_python, to_text
from fusewright.sym.traversal import Product, build, defined, evaluate, fold, product, replace, substitute

__all__ = [
    "FALSE",
    "ONE",
    "TRUE",
    "ZERO",
    "Add",
    "And",
    "Const",
    "Eq",
    "Expr",
    "FloorDiv",
    "Le",
    "Lt",
    "Max",
    "Min",
    "Mod",
    "Mul",
    "Not",
    "Or",
    "Product",
    "Symbol",
    "Xor",
    "add",
    "as_expr",
    "as_int",
    "bitxor",
    "bounds",
    "build",
    "ceildiv",
    "ceildiv_parts",
    "const",
    "divides",
    "eq",
    "defined",
    "evaluate",
    "exact_quotient",
    "floordiv",
    "fold",
    "interned_count",
    "is_nonneg",
    "is_nonneg_dividend",
    "is_positive_divisor",
    "known_multiple",
    "land",
    "le",
    "lnot",
    "lor",
    "lower_bound",
    "lt",
    "maximum",
    "minimum",
    "mod",
    "mul",
    "ne",
    "product",
    "prove",
    "replace",
    "sub",
    "substitute",
    "symbol",
    "to_function",
    "to_python",
    "to_text",
    "upper_bound",
]
