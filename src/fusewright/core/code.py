"""C++ expressions as text with a precedence.

All code that prints expressions builds them with these functions. Each puts an operand in parentheses if the
operator around it has higher precedence than the operand's outermost operator. Nothing else joins operands,
so the text always means the grouping that it was built with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from string import Formatter

# Precedences of C++'s grammar, the lowest first. A primary expression here may precede a subscript: a name, a
# literal, a call, or an expression in parentheses.
(
    CONDITIONAL,
    OR,
    AND,
    BIT_OR,
    BIT_XOR,
    BIT_AND,
    EQUALITY,
    RELATION,
    SHIFT,
    SUM,
    PRODUCT,
    UNARY,
    PRIMARY,
) = range(13)

_BINARY = {
    "||": OR,
    "&&": AND,
    "|": BIT_OR,
    "^": BIT_XOR,
    "&": BIT_AND,
    "==": EQUALITY,
    "!=": EQUALITY,
    "<": RELATION,
    "<=": RELATION,
    ">": RELATION,
    ">=": RELATION,
    "<<": SHIFT,
    ">>": SHIFT,
    "+": SUM,
    "-": SUM,
    "*": PRODUCT,
    "/": PRODUCT,
    "%": PRODUCT,
}
_WORD = re.compile(r"\w+")
# A name, or a call of a function by its qualified name, to the end of the text.
_CALL = re.compile(r"[\w:]+(<[^()]*>)?\(")


class Code(str):
    """The text of an expression.

    Attributes:
        strength: the precedence of its outermost operator; higher binds more strongly.
    """

    __slots__ = ("strength",)
    strength: int

    def __new__(cls, text: str, strength: int) -> Code:
        made = super().__new__(cls, text)
        made.strength = strength
        return made

    def __getnewargs__(self) -> tuple[str, int]:  # type: ignore[override]
        return str(self), self.strength


def primary(text: str) -> Code:
    """A name or a literal that needs no parentheses anywhere."""
    return Code(text, PRIMARY)


def _within(operand: str, strength: int) -> str:
    """The operand, in parentheses if it binds less than `strength`. Text that is no Code and no word does."""
    own = operand.strength if isinstance(operand, Code) else PRIMARY if _WORD.fullmatch(operand) else -1
    return operand if own >= strength else f"({operand})"


def binary(operator: str, left: str, right: str) -> Code:
    """`left operator right`; all of C++'s binary operators but assignment group from the left."""
    return chain(operator, (left, right))


def chain(operator: str, operands: Iterable[str]) -> Code:
    """`a operator b operator c ...`, grouped from the left. Of one operand, the operand itself."""
    first, *others = operands
    if not others:
        return first if isinstance(first, Code) else Code(_within(first, PRIMARY), PRIMARY)
    own = _BINARY[operator]
    # && inside || is parenthesised, and sums beside bits: compilers warn about it, and readers trip over it.
    least = BIT_OR if own == OR else UNARY if own in (BIT_OR, BIT_XOR, BIT_AND) else own
    if own == BIT_XOR and isinstance(first, Code) and first.strength == own:
        first = Code(first, UNARY)
    texts = [_within(first, least), *(_within(other, max(least, own + 1)) for other in others)]
    return Code(f" {operator} ".join(texts), own)


def unary(operator: str, operand: str) -> Code:
    """A prefix operator. `- -x` is no `--x`, nor `& &x` an `&&x`."""
    text = _within(operand, UNARY)
    return Code(f"{operator}({text})" if text[0] == operator else operator + text, UNARY)


def address(operand: str) -> Code:
    """`&operand`."""
    return unary("&", operand)


def cast(type_name: str, operand: str) -> Code:
    """`operand` converted: like a call where the type's name is one word, else `(long long)operand`."""
    if " " in type_name:
        return Code(f"({type_name}){_within(operand, UNARY)}", UNARY)
    return call(type_name, operand)


def conditional(condition: str, positive: str, negative: str) -> Code:
    """`condition ? positive : negative`."""
    return Code(
        f"{_within(condition, OR)} ? {_within(positive, OR)} : {_within(negative, CONDITIONAL)}", CONDITIONAL
    )


def call(function: str, *arguments: str) -> Code:
    """`function(arguments)`."""
    return Code(f"{function}({', '.join(arguments)})", PRIMARY)


def subscript(array: str, index: str) -> Code:
    """`array[index]`."""
    return Code(f"{_within(array, PRIMARY)}[{index}]", PRIMARY)


def member(object_: str, name: str) -> Code:
    """`object.name`. The point of `7.re` would belong to the number."""
    text = _within(object_, PRIMARY)
    return Code(f"({text}).{name}" if text[0].isdigit() else f"{text}.{name}", PRIMARY)


def fill(form: str, operands: Mapping[str, str], words: Mapping[str, str]) -> Code:
    """The format string `form` with expressions for the fields in `operands`, bare text for those in `words`.

    A field between parentheses or commas takes any expression. Elsewhere an operand that is not primary is
    put in parentheses. The result has the lowest precedence unless it is a call or a word.
    """
    pieces, strength = _pieces(form)
    texts = []
    for before, name, alone in pieces:
        texts.append(before)
        if name in operands:
            operand = operands[name]
            texts.append(operand if alone else _within(operand, PRIMARY))
        elif name:
            texts.append(words[name])
    if len(pieces) == 1 and pieces[0][0] == "" and pieces[0][1] in operands:
        operand = operands[pieces[0][1]]
        return operand if isinstance(operand, Code) else Code(_within(operand, PRIMARY), PRIMARY)
    return Code("".join(texts), strength)


@lru_cache(maxsize=1024)
def _pieces(form: str) -> tuple[tuple[tuple[str, str, bool], ...], int]:
    """((text before a field, the field's name, whether it stands alone), ...) and the result's strength."""
    parsed = [(before, name or "") for before, name, _, _ in Formatter().parse(form)]
    pieces = []
    for i, (before, name) in enumerate(parsed):
        after = parsed[i + 1][0] if i + 1 < len(parsed) else ""
        last = i + 1 == len(parsed)
        # Next to another field, or to anything but a bracket or a comma, it is some operator's operand.
        opened = before.rstrip().endswith(("(", ",")) if before else i == 0
        closed = after.lstrip().startswith((")", ",")) if after else last
        pieces.append((before, name, opened and closed))
    return tuple(pieces), PRIMARY if _is_primary(form) else CONDITIONAL


def _is_primary(form: str) -> bool:
    """Whether `form` is a word, or one call and nothing after it."""
    if _WORD.fullmatch(form):
        return True
    head = _CALL.match(form)
    if head is None:
        return False
    depth = 1
    for position in range(head.end(), len(form)):
        depth += {"(": 1, ")": -1}.get(form[position], 0)
        if depth == 0:
            return position == len(form) - 1
    return False
