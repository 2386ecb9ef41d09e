"""Names divisions that are used more than once, or whose divisor may be 0, in the outermost body where their
symbols are known.

Integer division is the only expensive operation of index arithmetic. The compiler finds common subexpressions
itself, but names keep the kernel short to read and quick to compile and simulate. After this pass no division
has a divisor of 0.

If a remainder's dividend differs from a quotient's by a multiple of the divisor, the remainder is computed
from the quotient: if x // 63 is named q, (x - 126) % 63 is x - q * 63. (The simplifier extracts multiples of
the divisor from quotients but not from remainders.) The factors of a product are multiplied out then, here
x * 65536 - q * 4128768 for a remainder times 65536: if the first of these may not fit in indices of 32 bits,
the remainder has a name, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fusewright.core.dtype import INT32_MAX, INT64_MAX, DataType
from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.sym import (
    ZERO,
    Const,
    Expr,
    FloorDiv,
    Mod,
    Mul,
    Symbol,
    bounds,
    build,
    fold,
    known_multiple,
    maximum,
    symbol,
)

# The lower bound of a division without a known one. (With the bound 0, remainders of negative quotients would
# be simplified away.)
LEAST_INDEX = -INT64_MAX - 1


def hoist_indices(kernel: k.Kernel) -> k.Kernel:
    bound = {
        s
        for stmt in k.walk(kernel.body)
        if (s := access.defined_symbol(stmt)) is not None and not isinstance(stmt, k.LetMisalignment)
    }
    return k.with_body(kernel, _Hoister(bound, kernel.index_dtype is DataType.Int32).body(kernel.body))


def _is_defined(division: Expr) -> bool:
    """Whether the divisor is known not to be 0."""
    low, _ = bounds(division.args[1])
    return low is not None and low > 0


def _partners(divisions: Sequence[Expr]) -> dict[Expr, Expr]:
    """Maps remainders by constants to quotients from which they can be computed.

    The dividends of the two differ by a multiple of the common divisor. Remainders that are divided again are
    left out: a remainder is known to be >= 0, but a difference that replaces it is not. Powers of two are
    left out, since their remainders take one instruction.
    """
    quotients: dict[Expr, list[Expr]] = {}
    divided: set[Expr] = set()
    for each in divisions:
        fold(each.args[0], lambda e, _: divided.add(e) if isinstance(e, Mod) else None)
        divisor = each.args[1]
        if isinstance(each, FloorDiv) and isinstance(divisor, Const) and divisor.value & (divisor.value - 1):
            quotients.setdefault(divisor, []).append(each)
    found: dict[Expr, Expr] = {}
    for each in divisions:
        if isinstance(each, Mod) and isinstance(each.divisor, Const) and each not in divided:
            for quotient in quotients.get(each.divisor, ()):
                difference = quotient.args[0] - each.dividend
                if difference is not ZERO and known_multiple(difference) % each.divisor.value == 0:
                    found.setdefault(each, quotient)
    return found


def _defined(division: Expr) -> Expr:
    """The division with a divisor of at least 1.

    If a size is 0 there is nothing to compute, but indices are computed anyway: those of accesses whose
    predicates do not hold, and those that are values.
    """
    if _is_defined(division):
        return division
    dividend, divisor = division.args
    return build(division.kind, (dividend, maximum(divisor, 1)))


def _beyond_32_bits(expr: Expr, dividends: Mapping[Expr, Expr]) -> set[Expr]:
    """The remainders in `expr` that are factors of products which may not fit in 32 bits if each remainder's
    dividend takes its place.
    """
    found: set[Expr] = set()

    def visit(e: Expr, _: tuple[None, ...]) -> None:
        if isinstance(e, Mul) and (rests := dividends.keys() & set(e.factors)):
            low, high = bounds(build(e.kind, [dividends.get(arg, arg) for arg in e.args]))
            if low is None or high is None or low < -INT32_MAX - 1 or high > INT32_MAX:
                found.update(rests)

    fold(expr, visit)
    return found


class _Hoister:
    """The state of the pass.

    Args:
        bound: the symbols that statements define. Loop variables are in scope only in the loop's body.
        is_narrow: whether indices have 32 bits.
    """

    def __init__(self, bound: set[Symbol], is_narrow: bool) -> None:
        self._hidden = bound
        self._is_narrow = is_narrow
        self._names: dict[Expr, Symbol] = {}
        self._rewritten: dict[Expr, Expr] = {}
        self._divisions: dict[Expr, list[Expr]] = {}
        self._partners: dict[Expr, Expr] = {}
        self._count = 0

    def body(self, body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
        """`body` with a Let for every division whose symbols are in scope here and that is to be named."""
        names = self._name(self._known_divisions(body))
        result: list[k.Stmt] = []
        for stmt in body:
            stmt = access.map_expressions(stmt, self._rewrite)
            # A loop's variable is in scope in its body only.
            shown = self._hidden & {stmt.symbol} if isinstance(stmt, k.For) else set()
            self._hidden -= shown
            result.append(k.with_children(stmt, self.body))
            self._hidden |= shown
        for value, _ in names:
            del self._names[value]
        if names:
            self._rewritten.clear()
        first = [stmt for stmt in result if isinstance(stmt, k.LetMisalignment)]  # divisions may use them
        rest = [stmt for stmt in result if not isinstance(stmt, k.LetMisalignment)]
        return k.body_of(body, [*first, *(let for _, let in names), *rest])

    def _known_divisions(self, body: tuple[k.Stmt, ...]) -> list[Expr]:
        """The divisions in `body` that are to be named here.

        Their symbols are in scope, they have no name yet, and they occur in several expressions, their
        divisor may be 0, or what a remainder is computed from might not fit in 32 bits.
        """
        times = Counter(expr for stmt in k.walk(body) for expr in access.expressions(stmt))
        uses: dict[Expr, int] = {}
        for expr, n in times.items():
            for division in self._divisions_in(expr):
                uses[division] = uses.get(division, 0) + n
        partners = _partners(list(uses))
        for rest, quotient in partners.items():
            self._partners[rest] = quotient
            uses[quotient] += uses[rest]
        named: set[Expr] = set()
        if self._is_narrow:
            dividends = {rest: quotient.args[0] for rest, quotient in partners.items()}
            for expr in times:
                if not dividends.keys().isdisjoint(self._divisions_in(expr)):
                    named |= _beyond_32_bits(expr, dividends)
        return [
            e
            for e, n in uses.items()
            if (n > 1 or e in named or not _is_defined(e))
            and e not in self._names
            and self._hidden.isdisjoint(e.free_symbols)
        ]

    def _divisions_in(self, expr: Expr) -> list[Expr]:
        """The distinct divisions in `expr`, inner ones first."""
        found = self._divisions.get(expr)
        if found is None:
            found = self._divisions[expr] = []

            def visit(e: Expr, _: tuple[None, ...]) -> None:
                if isinstance(e, (FloorDiv, Mod)):
                    found.append(e)

            fold(expr, visit)
        return found

    def _name(self, values: Sequence[Expr]) -> list[tuple[Expr, k.Let]]:
        named: list[tuple[Expr, k.Let]] = []

        def name(value: Expr) -> None:
            text = self._rewrite(value)
            low, high = bounds(value)
            short = symbol(f"n{self._count}", lo=LEAST_INDEX if low is None else low, hi=high)
            self._count += 1
            self._names[value] = short
            self._rewritten.clear()
            named.append((value, k.Let(short, text)))

        for value in values:
            quotient = self._partners.get(value)
            if quotient is not None and quotient in values and quotient not in self._names:
                name(quotient)
            if value not in self._names:
                name(value)
        return named

    def _rewrite(self, expr: Expr) -> Expr:
        if not self._names and all(map(_is_defined, self._divisions_in(expr))):
            return expr

        def visit(e: Expr, args: tuple[Expr, ...]) -> Expr:
            if e in self._names:
                return self._names[e]
            quotient = self._partners.get(e)
            if quotient in self._names:
                return self._rewrite(quotient.args[0]) - self._names[quotient] * e.args[1]
            made = build(e.kind, args) if args and args != e.args else e
            return _defined(made) if isinstance(made, (FloorDiv, Mod)) else made

        return fold(expr, visit, self._rewritten)
