"""The C++ of printed kernels, parsed by C++'s grammar: one statement a line, expressions with its precedence.

Shares nothing with the printer. An expression is a tuple, so that equal ones are equal and can be kept:

    ("name", text)  ("int", value, type)  ("float", value, type)  ("bool", value)
    ("cast", type, operand)  ("construct", type, operands)  ("braces", type, operands)
    ("call", function, template arguments, operands)
    ("unary", operator, operand)  ("binary", operator, left, right)  ("?:", condition, positive, negative)
    ("[]", array, index)  (".", object, field)

and a type is its text with single spaces: `long long`, `fw::complex<float>`, `float*`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

Expression = tuple[Any, ...]

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<float>(?:\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+)f?)
    | (?P<int>0x[0-9a-f]+(?:ull|ll)?|\d+(?:ull|ll)?)
    | (?P<word>[A-Za-z_]\w*(?:::\w+)*)
    | (?P<string>"[^"]*")
    | (?P<sign>\+\+|--|&&|\|\||==|!=|<=|>=|<<|>>|[-+*/%&|^~!<>=?:;,.()\[\]{}])
    )""",
    re.VERBOSE,
)
# C++'s binary operators but assignment, each level binding more strongly than the one before.
_LEVELS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", "<=", ">", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_LEVEL = {operator: level for level, operators in enumerate(_LEVELS) for operator in operators}
_NUMBERS = {
    "bool",
    "int",
    "float",
    "double",
    "long",
    "short",
    "signed",
    "unsigned",
    "fw::half",
    "fw::bfloat16",
    "fw::e4m3",
    "fw::e5m2",
    "fw::e8m0",
    "fw::e2m1",
    "fw::e2m1_x2",
    "fw::index_t",
    "fw::complex",
}


class SyntaxFault(Exception):
    """Text that is no C++, or none that a kernel may contain."""


class _Parser:
    """Over the tokens of one line."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.tokens: list[tuple[str, str]] = []
        position, end = 0, len(line.rstrip())
        while position < end:
            found = _TOKEN.match(line, position)
            if found is None or found.lastgroup is None:
                raise SyntaxFault(f"no token at: {line[position:]}")
            self.tokens.append((found.lastgroup, found[found.lastgroup]))
            position = found.end()
        self.tokens.append(("end", ""))
        self.at = 0

    # ---- tokens

    @property
    def next(self) -> str:
        return self.tokens[self.at][1]

    def fault(self, wanted: str) -> SyntaxFault:
        return SyntaxFault(f"expected {wanted}, found `{self.next}` in: {self.line}")

    def take(self, text: str) -> None:
        if self.next != text:
            raise self.fault(f"`{text}`")
        self.at += 1

    def taken(self, text: str) -> bool:
        if self.next != text:
            return False
        self.at += 1
        return True

    def word(self) -> str:
        kind, text = self.tokens[self.at]
        if kind != "word":
            raise self.fault("a name")
        self.at += 1
        return text

    def integer(self) -> int:
        kind, text = self.tokens[self.at]
        if kind != "int":
            raise self.fault("an integer")
        self.at += 1
        return int(text, 0)

    def end(self) -> None:
        if self.tokens[self.at][0] != "end":
            raise self.fault("the end of the line")

    # ---- types

    def at_type(self) -> bool:
        """Whether a type of numbers comes next."""
        return self.next in _NUMBERS

    def type(self) -> str:
        words = [self.word()]
        while words[-1] in ("unsigned", "signed", "long") and self.next in ("long", "int", "short", "char"):
            words.append(self.word())
        text = " ".join(words)
        if text == "fw::complex":
            self.take("<")
            text += f"<{self.type()}>"
            self.close()
        while self.taken("*"):
            text += "*"
        return text

    def close(self) -> None:
        """The `>` of template arguments, of which two may stand together."""
        if self.next == ">>":
            self.tokens[self.at] = ("sign", ">")
        else:
            self.take(">")

    def template_arguments(self) -> tuple[Any, ...]:
        self.take("<")
        arguments: list[Any] = []
        while True:
            if self.tokens[self.at][0] == "int":
                arguments.append(self.integer())
            else:
                name = self.type()
                arguments.append((name, *self.template_arguments()) if self.next == "<" else name)
            if not self.taken(","):
                break
        self.close()
        return tuple(arguments)

    # ---- expressions

    def expression(self) -> Expression:
        """An expression without assignment."""
        condition = self.binary(0)
        if not self.taken("?"):
            return condition
        positive = self.expression()
        self.take(":")
        return "?:", condition, positive, self.expression()

    def binary(self, least: int) -> Expression:
        """Operators of level `least` and stronger ones."""
        left = self.unary()
        while (level := _LEVEL.get(self.next, -1)) >= least:
            operator = self.next
            self.at += 1
            left = "binary", operator, left, self.binary(level + 1)
        return left

    def unary(self) -> Expression:
        kind, text = self.tokens[self.at]
        if kind == "sign" and text in "-+!~&*" and len(text) == 1:
            self.at += 1
            return "unary", text, self.unary()
        if text == "(":
            start = self.at
            self.at += 1
            if self.at_type():
                target = self.type()
                if self.taken(")"):
                    return "cast", target, self.unary()
            self.at = start
        return self.postfix()

    def postfix(self) -> Expression:
        e = self.primary()
        while True:
            if self.taken("["):
                e = "[]", e, self.expression()
                self.take("]")
            elif self.taken("."):
                e = ".", e, self.word()
            else:
                return e

    def primary(self) -> Expression:
        kind, text = self.tokens[self.at]
        if text == "(":
            self.at += 1
            e = self.expression()
            self.take(")")
            return e
        if kind == "int":
            self.at += 1
            return _integer(text)
        if kind == "float":
            self.at += 1
            return "float", float(text.rstrip("f")), "float" if text.endswith("f") else "double"
        if text in ("true", "false"):
            self.at += 1
            return "bool", text == "true"
        if self.at_type():
            target = self.type()
            self.take("(")
            operands = self.operands(")")
            return ("cast", target, *operands) if len(operands) == 1 else ("construct", target, operands)
        name = self.word()
        template: tuple[Any, ...] = ()
        # No variable is qualified, so that `<` after such a name is no comparison.
        if self.next == "<" and ("::" in name or name == "reinterpret_cast"):
            template = self.template_arguments()
        if self.taken("("):
            return "call", name, template, self.operands(")")
        if self.taken("{"):
            return "braces", name, self.operands("}")
        if template or "::" in name:
            raise self.fault(f"a call of {name}")
        return "name", name

    def operands(self, closing: str) -> tuple[Expression, ...]:
        found: list[Expression] = []
        if self.taken(closing):
            return ()
        while True:
            found.append(("braces", "", self.operands("}")) if self.taken("{") else self.expression())
            if self.taken(closing):
                return tuple(found)
            self.take(",")


def _integer(text: str) -> Expression:
    for suffix, type_ in (("ull", "unsigned long long"), ("ll", "long long"), ("", "int")):
        if text.endswith(suffix):
            return "int", int(text.removesuffix(suffix), 0), type_
    raise SyntaxFault(text)


def parse_expression(text: str) -> Expression:
    """The tree of an expression."""
    return parse_form(text, ())


@lru_cache(maxsize=4096)
def parse_form(form: str, words: tuple[tuple[str, str], ...]) -> Expression:
    """The expression of an op row's format string: operand `{x}` becomes the name `operand_x`."""
    table = dict(words)
    text = re.sub(r"\{(\w+)\}", lambda found: table.get(found[1], f"operand_{found[1]}"), form)
    parser = _Parser(text)
    if "=" in [token for _, token in parser.tokens]:
        target = parser.postfix()
        parser.take("=")
        e = "assign", target, parser.expression()
    else:
        e = parser.expression()
    parser.end()
    return e


# ---- statements --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Statement:
    """One line.

    Attributes:
        kind: of declare, assign, call, for, if, block, unroll, arena, end.
        parts: what it consists of, by kind (see the function of that kind).
        body: the statements in its braces.
    """

    kind: str
    parts: tuple[Any, ...] = ()
    line: str = ""
    body: list[Statement] = field(default_factory=list, compare=False)


def parse_body(lines: list[str]) -> list[Statement]:
    """The statements of a function's body, nested as the braces are."""
    outer: list[list[Statement]] = [[]]
    for line in lines:
        kind, parts, opens = _parse_line(line.strip())
        if kind == "end":
            outer.pop()
            if not outer:
                raise SyntaxFault("more braces close than open")
            continue
        statement = Statement(kind, parts, line.strip())
        outer[-1].append(statement)
        if opens:
            outer.append(statement.body)
    if len(outer) != 1:
        raise SyntaxFault("a brace is not closed")
    return outer[0]


@lru_cache(maxsize=1 << 15)
def _parse_line(line: str) -> tuple[str, tuple[Any, ...], bool]:
    """(kind, parts, whether it opens a body)."""
    if line in _FIXED:
        return _FIXED[line]
    parser = _Parser(line)
    for start, parse in _HEADS.items():
        if parser.next == start:
            result = parse(parser)
            break
    else:
        result = _declare(parser) if _is_declaration(parser) else _assign_or_call(parser)
    parser.end()
    return result


_FIXED: dict[str, tuple[str, tuple[Any, ...], bool]] = {
    "{": ("block", (), True),
    "}": ("end", (), False),
    "else {": ("else", (), True),
    "#pragma unroll": ("unroll", (), False),
}


def _for(parser: _Parser) -> tuple[str, tuple[Any, ...], bool]:
    """(type of the counter, its name, first value, what it stays below)"""
    parser.take("for")
    parser.take("(")
    kind, name = parser.type(), parser.word()
    parser.take("=")
    first = parser.expression()
    parser.take(";")
    condition = parser.expression()
    parser.take(";")
    parser.take("++")
    if parser.word() != name or condition[:3] != ("binary", "<", ("name", name)):
        raise SyntaxFault(f"not a loop that counts {name} up: {parser.line}")
    parser.take(")")
    parser.take("{")
    return "for", (kind, name, first, condition[3]), True


def _if(parser: _Parser) -> tuple[str, tuple[Any, ...], bool]:
    """(condition,)"""
    parser.take("if")
    parser.take("(")
    condition = parser.expression()
    parser.take(")")
    parser.take("{")
    return "if", (condition,), True


def _arena(parser: _Parser) -> tuple[str, tuple[Any, ...], bool]:
    """(alignment, type, name)"""
    for word in ("extern", "__shared__", "__align__", "("):
        parser.take(word)
    alignment = parser.integer()
    parser.take(")")
    kind, name = parser.type(), parser.word()
    for sign in "[];":
        parser.take(sign)
    return "arena", (alignment, kind, name), False


_HEADS: dict[str, Callable[[_Parser], tuple[str, tuple[Any, ...], bool]]] = {
    "for": _for,
    "if": _if,
    "extern": _arena,
}


def _is_declaration(parser: _Parser) -> bool:
    """Whether a type comes first: a known one, or one name and then another."""
    if parser.next == "const":
        return True
    if parser.at_type():
        return True
    return parser.tokens[0][0] == "word" and parser.tokens[1][0] == "word"


def _declare(parser: _Parser) -> tuple[str, tuple[Any, ...], bool]:
    """(whether const, type, name, number of elements or None, first value or None)"""
    const = parser.taken("const")
    kind, name = parser.type(), parser.word()
    count, value = None, None
    if parser.taken("["):
        count = parser.integer()
        parser.take("]")
    if parser.taken("="):
        value = parser.expression()
    parser.take(";")
    return "declare", (const, kind, name, count, value), False


def _assign_or_call(parser: _Parser) -> tuple[str, tuple[Any, ...], bool]:
    """(target, value) or (call,)"""
    e = parser.expression()
    if parser.taken("="):
        value = parser.expression()
        parser.take(";")
        return "assign", (e, value), False
    parser.take(";")
    if e[0] != "call":
        raise SyntaxFault(f"a statement without effect: {parser.line}")
    return "call", (e,), False
