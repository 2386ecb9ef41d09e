"""Whether two CUDA texts are equal except for the names of variables and for comments."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

# Pairs of texts whose answer is kept: many uses share their two texts.
MAX_KEPT = 4096
# The printer closes a function, and nothing else, at the start of a line.
_FUNCTION_END = re.compile(r"(?<=\n\}\n)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[A-Za-z_]\w*|\d[\w.]*(?:[eEpP][+-]\d+\w*)?|->|::|\S')
_NAME = re.compile(r"[A-Za-z_]\w*")
# A type, with a pointer's or a template's last character, and a name behind it. A product has a space before
# its `*`, so that its second factor is none.
_DECLARED = re.compile(r"\b(\w+)(?:[*&]+|>)?\s+(?:__restrict__\s+)?([A-Za-z_]\w*)\s*(?=[=;,)\[{:])")
_NO_TYPES = frozenset(
    [
        "return",
        "else",
        "goto",
        "case",
        "throw",
        "new",
        "delete",
        "struct",
        "class",
        "enum",
        "namespace",
        "typename",
        "using",
    ]
)
_NO_NAMES = frozenset(
    [
        "alignas",
        "auto",
        "bool",
        "char",
        "const",
        "constexpr",
        "double",
        "float",
        "int",
        "long",
        "short",
        "signed",
        "static",
        "unsigned",
        "void",
        "volatile",
    ]
)
_MEMBER_OF = frozenset((".", "->", "::"))


@lru_cache(MAX_KEPT)
def is_renamed(old: str, new: str) -> bool:
    """Whether each function of `new` is one of `old`, in which other variables have other names.

    A name is another one for a variable if both functions declare theirs, and if it stands for that variable
    wherever that occurs, and for no other. What they do not declare (types, functions, members, what CUDA
    declares) must be the same.
    """
    olds, news = _FUNCTION_END.split(old), _FUNCTION_END.split(new)
    return len(olds) == len(news) and all(map(_is_renamed_function, olds, news))


def _is_renamed_function(old: str, new: str) -> bool:
    if old == new:
        return True
    old, new = _COMMENT.sub("", old), _COMMENT.sub("", new)
    tokens, others = _TOKEN.findall(old), _TOKEN.findall(new)
    if len(tokens) != len(others):
        return False
    ours, theirs = _declared(old), _declared(new)
    to: dict[str, str] = {}
    origin: dict[str, str] = {}
    before = ""
    for token, other in zip(tokens, others):
        is_fixed = before in _MEMBER_OF or _NAME.fullmatch(token) is None
        if (is_fixed or token not in ours or other not in theirs) and token != other:
            return False
        if not is_fixed and not (
            to.setdefault(token, other) == other and origin.setdefault(other, token) == token
        ):
            return False
        before = token
    return True


def _declared(text: str) -> frozenset[str]:
    found: Iterable[tuple[str, str]] = _DECLARED.findall(text)
    return frozenset(name for type_, name in found if type_ not in _NO_TYPES) - _NO_NAMES
