"""Node classes of symbolic integer expressions, and their unsimplified construction.

A node is immutable and interned: two structurally equal nodes are the same object, so
`is`, dict keys and sets are as cheap as for any object. The functions here (`const`,
`symbol`, `sum_node`, `product_node`, `node`) only intern; they assume that their operands
are already in canonical form. Everybody outside `sym` uses the simplifying constructors.
"""

from __future__ import annotations

import operator
import os
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from fusewright.sym.interning import InternTable

CACHE_SIZE = 1 << 14
"""Entries of each least-recently-used cache of results: several kernels' worth, and a bound on
the nodes that the caches keep alive."""

Term = tuple["Expr", int]
"""A summand `coefficient * core`: the core is neither a Const nor an Add and has coefficient 1."""

Bounds = tuple["int | None", "int | None"]
"""Inclusive numeric range; None is unbounded on that side."""

OrderKey = tuple[str, int, int]


class Expr:
    """An integer expression. Division and remainder floor, as in Python.

    `kind` names the node class, `args` are its operands (the value of an "add" is the sum
    of its args, of a "mul" their product), `order` is a structural sort key that is the
    same in every process. An expression is undefined where one of its divisors is zero;
    simplification preserves the value wherever the original is defined and every symbol
    lies in its declared range.
    """

    __slots__ = ("__weakref__", "_bounds", "_free", "_multiple", "_nonneg", "order")

    kind: ClassVar[str] = "expr"
    rank: ClassVar[int] = 0
    order: OrderKey
    # Lazily filled caches, owned by ranges.py, prover.py and `free_symbols`.
    _bounds: Bounds | None
    _multiple: int
    _free: frozenset[Symbol] | None
    _nonneg: bool | None

    @property
    def args(self) -> tuple[Expr, ...]:
        return ()

    @property
    def terms(self) -> tuple[Term, ...]:
        """The non-constant summands of this expression seen as a sum."""
        return ((self, 1),)

    @property
    def constant(self) -> int:
        """The constant summand of this expression seen as a sum."""
        return 0

    @property
    def factors(self) -> tuple[Expr, ...]:
        """The non-constant factors of this expression seen as a product."""
        return (self,)

    @property
    def is_boolean(self) -> bool:
        return False

    @property
    def free_symbols(self) -> frozenset[Symbol]:
        """Symbols that occur in the expression (not those of its symbols' bounds)."""
        free = self._free
        if free is None:
            free = frozenset().union(*[arg.free_symbols for arg in self.args])
            self._free = free
        return free

    def __bool__(self) -> bool:
        raise TypeError(f"the truth value of the expression {self!r} is unknown; use prove() or as_int()")

    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Expr:
        return self

    def __reduce__(self) -> tuple[Callable[..., Expr], tuple[Any, ...]]:
        return node, (type(self), self.args)

    if TYPE_CHECKING:  # bound in fusewright.sym.operators, above the constructors

        def __add__(self, other: Expr | int) -> Expr: ...
        def __radd__(self, other: int) -> Expr: ...
        def __sub__(self, other: Expr | int) -> Expr: ...
        def __rsub__(self, other: int) -> Expr: ...
        def __mul__(self, other: Expr | int) -> Expr: ...
        def __rmul__(self, other: int) -> Expr: ...
        def __floordiv__(self, other: Expr | int) -> Expr: ...
        def __rfloordiv__(self, other: int) -> Expr: ...
        def __mod__(self, other: Expr | int) -> Expr: ...
        def __rmod__(self, other: int) -> Expr: ...
        def __neg__(self) -> Expr: ...


class Const(Expr):
    """An integer literal."""

    __slots__ = ("value",)
    kind = "const"
    value: int

    @property
    def terms(self) -> tuple[Term, ...]:
        return ()

    @property
    def constant(self) -> int:
        return self.value

    @property
    def factors(self) -> tuple[Expr, ...]:
        return ()

    @property
    def is_boolean(self) -> bool:
        return self.value in (0, 1)

    def __reduce__(self) -> tuple[Callable[..., Expr], tuple[Any, ...]]:
        return const, (self.value,)


class Symbol(Expr):
    """A named integer with `lo <= value <= hi` and `value % multiple_of == 0`."""

    __slots__ = ("hi", "lo", "multiple_of", "name")
    kind = "symbol"
    rank = 1
    name: str
    lo: int
    hi: int | Expr | None
    multiple_of: int

    @property
    def free_symbols(self) -> frozenset[Symbol]:
        return frozenset((self,))  # not cached: the cycle would keep the node alive until a collection

    def __reduce__(self) -> tuple[Callable[..., Expr], tuple[Any, ...]]:
        return symbol, (self.name, self.lo, self.hi, self.multiple_of)


class Add(Expr):
    """`sum(coefficient * core for core, coefficient in terms) + constant`.

    The cores are distinct and sorted by `order`; no coefficient is zero. A lone term
    without a constant is the term itself or a Mul.
    """

    __slots__ = ("_args", "constant", "terms")
    kind = "add"
    rank = 8
    terms: tuple[Term, ...]
    constant: int
    _args: tuple[Expr, ...] | None

    @property
    def args(self) -> tuple[Expr, ...]:
        """The scaled terms, then the constant unless it is zero."""
        args = self._args
        if args is None:
            args = tuple([scaled(core, coefficient) for core, coefficient in self.terms])
            if self.constant:
                args += (const(self.constant),)
            self._args = args
        return args

    def __reduce__(self) -> tuple[Callable[..., Expr], tuple[Any, ...]]:
        return sum_node, (self.terms, self.constant)


class Mul(Expr):
    """`coefficient * product(factors)`; factors sorted, none constant; at least `2*x` or `x*y`."""

    __slots__ = ("_args", "coefficient", "factors")
    kind = "mul"
    rank = 2
    coefficient: int
    factors: tuple[Expr, ...]
    _args: tuple[Expr, ...] | None

    @property
    def core(self) -> Expr:
        """The product without its coefficient."""
        if self.coefficient == 1:
            return self
        return self.factors[0] if len(self.factors) == 1 else product_node(1, self.factors)

    @property
    def terms(self) -> tuple[Term, ...]:
        return ((self.core, self.coefficient),)

    @property
    def args(self) -> tuple[Expr, ...]:
        """The coefficient, unless it is one, then the factors."""
        args = self._args
        if args is None:
            args = self.factors if self.coefficient == 1 else (const(self.coefficient), *self.factors)
            self._args = args
        return args

    def __reduce__(self) -> tuple[Callable[..., Expr], tuple[Any, ...]]:
        return product_node, (self.coefficient, self.factors)


class Operation(Expr):
    """A node that is determined by its class and its operands."""

    __slots__ = ("args",)
    args: tuple[Expr, ...]


class Division(Operation):
    """Quotient or remainder of `dividend` by `divisor`, args[0] by args[1]."""

    __slots__ = ()

    @property
    def dividend(self) -> Expr:
        return self.args[0]

    @property
    def divisor(self) -> Expr:
        return self.args[1]


class FloorDiv(Division):
    __slots__ = ()
    kind = "floordiv"
    rank = 3


class Mod(Division):
    """Remainder with the sign of the divisor, so `0 <= a % b < b` for positive b."""

    __slots__ = ()
    kind = "mod"
    rank = 4


class Min(Operation):
    __slots__ = ()
    kind = "min"
    rank = 5


class Max(Operation):
    __slots__ = ()
    kind = "max"
    rank = 6


class Xor(Operation):
    """Bitwise exclusive or of integers in two's complement. At most one operand is a constant."""

    __slots__ = ()
    kind = "xor"
    rank = 7


class Boolean(Operation):
    """A predicate: its value is 0 or 1."""

    __slots__ = ()

    @property
    def is_boolean(self) -> bool:
        return True


class Lt(Boolean):
    __slots__ = ()
    kind = "lt"
    rank = 9


class Le(Boolean):
    __slots__ = ()
    kind = "le"
    rank = 10


class Eq(Boolean):
    __slots__ = ()
    kind = "eq"
    rank = 11


class Not(Boolean):
    __slots__ = ()
    kind = "not"
    rank = 12


class And(Boolean):
    __slots__ = ()
    kind = "and"
    rank = 13


class Or(Boolean):
    __slots__ = ()
    kind = "or"
    rank = 14


_TABLE: InternTable[Any] = InternTable()
os.register_at_fork(after_in_child=_TABLE.renew)
_get = _TABLE.get
_order_of = operator.attrgetter("order")
_term_order = operator.itemgetter(0)

# Strong references to common constants. Nearly every kernel has them, and they would be made again and again.
_COMMON_CONSTANTS: dict[int, Const] = {}


def interned_count() -> int:
    """The number of nodes that are alive."""
    return len(_TABLE)


def _blank(cls: type[Any], order: OrderKey) -> Any:
    made = object.__new__(cls)
    made.order = order
    made._bounds = None
    made._multiple = -1
    made._free = None
    made._nonneg = None
    return made


def const(value: int) -> Const:
    """The literal `value`."""
    common = _COMMON_CONSTANTS.get(value)
    if common is not None:
        return common
    key = (Const, value)
    found: Const | None = _get(key)
    if found is None:
        made = _blank(Const, ("", 0, value))
        made.value = int(value)
        found = _TABLE.publish(key, made)
    return found


_COMMON_CONSTANTS.update({value: const(value) for value in range(-64, 1025)})


def symbol(name: str, lo: int = 0, hi: int | Expr | None = None, multiple_of: int = 1) -> Symbol:
    """The symbol `name` with inclusive bounds; `hi` may be an expression of other symbols.

    Raises ValueError for a `multiple_of` below one.
    """
    if multiple_of < 1:
        raise ValueError(f"symbol {name!r}: multiple_of must be at least 1, got {multiple_of}")
    if isinstance(hi, Const):
        hi = hi.value
    key = (Symbol, name, lo, hi, multiple_of)
    found: Symbol | None = _get(key)
    if found is None:
        # hash() of a str or None may differ between processes, while that of a tuple of ints does not.
        hi_hash = (0, 0) if hi is None else (1, hi) if isinstance(hi, int) else (2, hi.order[2])
        made = _blank(Symbol, (name, 1, hash((zlib.crc32(name.encode()), lo, *hi_hash, multiple_of))))
        made.name, made.lo, made.hi, made.multiple_of = name, lo, hi, multiple_of
        found = _TABLE.publish(key, made)
    return found


def sum_node(terms: tuple[Term, ...], constant: int) -> Expr:
    """Intern an Add of sorted terms (two, or one and a constant)."""
    key = (Add, constant, terms)
    found: Expr | None = _get(key)
    if found is None:
        hashes = [number for core, coefficient in terms for number in (core.order[2], coefficient)]
        made = _blank(Add, (terms[0][0].order[0], 8, hash((8, constant, *hashes))))
        made.terms, made.constant, made._args = terms, constant, None
        found = _TABLE.publish(key, made)
        assert found is not None
    return found


def product_node(coefficient: int, factors: tuple[Expr, ...]) -> Expr:
    """Intern a Mul of sorted factors."""
    key = (Mul, coefficient, factors)
    found: Expr | None = _get(key)
    if found is None:
        made = _blank(
            Mul, (factors[0].order[0], 2, hash((2, coefficient, *[factor.order[2] for factor in factors])))
        )
        made.coefficient, made.factors, made._args = coefficient, factors, None
        found = _TABLE.publish(key, made)
        assert found is not None
    return found


def node(cls: type[Operation], args: tuple[Expr, ...]) -> Expr:
    """Intern an operation without simplification."""
    key = (cls, args)
    found: Expr | None = _get(key)
    if found is None:
        made = _blank(cls, (args[0].order[0], cls.rank, hash((cls.rank, *[arg.order[2] for arg in args]))))
        made.args = args
        found = _TABLE.publish(key, made)
        assert found is not None
    return found


def scaled(core: Expr, coefficient: int) -> Expr:
    """`coefficient * core` for a core as in a Term and a coefficient that is not zero."""
    return core if coefficient == 1 else product_node(coefficient, core.factors)


def sort_nodes(nodes: list[Expr]) -> list[Expr]:
    """Sorted in the structural order."""
    nodes.sort(key=_order_of)
    return nodes


def as_expr(value: Expr | int) -> Expr:
    """An expression from an expression or anything that is an integer. Raises TypeError otherwise."""
    if isinstance(value, Expr):
        return value
    return const(operator.index(value))


def as_int(value: Expr | int) -> int | None:
    """The value of a constant, None for anything symbolic."""
    if isinstance(value, int):
        return int(value)
    return value.value if isinstance(value, Const) else None


ZERO = const(0)
ONE = const(1)
TRUE = ONE
FALSE = ZERO
