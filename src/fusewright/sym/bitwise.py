"""The normal form of a bitwise exclusive or.

An exclusive or is kept flat: at most one constant, and distinct operands. Summands without common bits, such
as those of `4*j + w` for w below four, become separate operands, so that equal ones cancel and the part that
an inner loop changes is separate from the rest. Operands that have no bits in common with the others are
added to them, and a power of two that divides all of them is factored out, so that quotients and remainders
can use the positions of the bits.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator

from fusewright.sym.division import add
from fusewright.sym.nodes import Const, Expr, Xor, as_expr, const, node, scaled
from fusewright.sym.polynomial import exact_quotient, scale
from fusewright.sym.ranges import bounds, common_bit


def bitxor(*operands: Expr | int) -> Expr:
    """The bitwise exclusive or of the operands in two's complement; zero without operands."""
    constant = 0
    kept: dict[Expr, None] = {}
    for operand in operands:
        for part in _parts(as_expr(operand)):
            if isinstance(part, Const):
                constant ^= part.value
            elif part in kept:
                del kept[part]
            else:
                kept[part] = None
    args = [*kept, const(constant)] if constant or not kept else list(kept)
    return add(*map(_xor_of_group, _groups_of_bits(args, _most_of_bits)))


def _xor_of_group(args: list[Expr]) -> Expr:
    """The exclusive or of flat, distinct operands that overlap."""
    if len(args) == 1:
        return args[0]
    shift = common_bit(args)
    quotients = [exact_quotient(arg, const(shift)) for arg in args] if shift > 1 else []
    known = [quotient for quotient in quotients if quotient is not None]
    if len(known) < len(args):
        known, shift = args, 1
    in_order = sorted(known, key=lambda e: (isinstance(e, Const), e.order))
    return scale(node(Xor, tuple(in_order)), shift)


def _parts(e: Expr) -> Iterator[Expr]:
    """Operands whose exclusive or is `e`."""
    if isinstance(e, Xor):
        yield from e.args
        return
    core, factor = e.terms[0] if len(e.terms) == 1 else (e, 1)
    if e.kind == "mul" and isinstance(core, Xor) and factor > 0 and factor & (factor - 1) == 0:
        # A power of two shifts all operands; another factor would carry between bits.
        yield from (scale(arg, factor) for arg in core.args)
    elif e.kind == "add":
        summands = [scaled(*term) for term in e.terms] + ([const(e.constant)] if e.constant else [])
        groups = list(_groups_of_bits(summands, operator.add))
        if len(groups) == 1:
            yield e
        for group in groups if len(groups) > 1 else ():
            yield from _parts(add(*group))
    else:
        yield e


def _groups_of_bits(exprs: Iterable[Expr], most: Callable[[int, int], int]) -> Iterator[list[Expr]]:
    """Yields groups of expressions whose combinations have no common bits, the lowest bits first.

    Args:
        most: the upper bound of a combination of two operands, given their upper bounds.
    """
    group: list[Expr] = []
    top: int | None = 0  # the upper bound of the group; None: unknown
    for e in sorted(exprs, key=lambda e: common_bit([e])):
        if group and top is not None and top < common_bit([e]):
            yield group
            group, top = [], 0
        group.append(e)
        low, high = bounds(e)
        top = None if top is None or low is None or low < 0 or high is None else most(top, high)
    yield group


def _most_of_bits(a: int, b: int) -> int:
    """The largest integer with as many bits as the larger operand."""
    return (1 << max(a, b).bit_length()) - 1
