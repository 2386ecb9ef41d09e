"""Sizes by name: expressions over the extents of a program, to which each execution gives numbers.

Two dimensions of one name are of one size whatever the extents are, so a program that is valid by its names
is valid in every execution.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from types import CodeType
from typing import Any

Dim = str | None  # the name of a size, or None for a dimension that is a broadcast


@cache
def _code(text: str) -> CodeType:
    return compile(text, "size", "eval")


def _cut(size: int, start: int, end: int, step: int) -> int:
    return len(range(size)[start:end:step])


def value_of(text: str, extents: Mapping[str, int]) -> Any:
    """What a name, or a condition over names, is worth."""
    return eval(_code(text), {"cut": _cut}, extents)


def size_of(dim: Dim, extents: Mapping[str, int]) -> int:
    return 1 if dim is None else int(value_of(dim, extents))


@cache
def extents_in(text: str) -> frozenset[str]:
    """The extents that a name speaks of."""
    return frozenset(re.findall(r"\b[a-z]\b", text))


def factors(name: str) -> list[str]:
    """The factors of a product, a number first."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(name):
        depth += {"(": 1, ")": -1}.get(c, 0)
        if c == "*" and not depth:
            parts.append(name[start:i])
            start = i + 1
    return [*parts, name[start:]]


def times(dims: Sequence[Dim]) -> Dim:
    """The name of a product."""
    number, atoms = 1, []
    for part in (part for dim in dims if dim is not None for part in factors(dim)):
        if part.isdigit():
            number *= int(part)
        else:
            atoms.append(part)
    for i, atom in enumerate(atoms):  # 4*(a//4) is a
        quotient = re.fullmatch(r"\((.+)//(\d+)\)", atom)
        if quotient is not None and number % int(quotient[2]) == 0:
            number //= int(quotient[2])
            atoms[i] = quotient[1]
    if not number:
        return "0"
    parts = [*([str(number)] if number > 1 or not atoms else []), *sorted(atoms)]
    return None if parts == ["1"] else "*".join(parts)


def plus(name: str, number: int) -> str:
    """The name of a sum with a number."""
    known = re.fullmatch(r"\((.+)([+-]\d+)\)", name)
    if known is not None and known[1].count("(") == known[1].count(")"):
        name, number = known[1], number + int(known[2])
    return f"({name}{number:+d})" if number else name


def total(names: Sequence[str]) -> str:
    """The name of a sum."""
    if len(set(names)) == 1:
        return times([str(len(names)), names[0]]) or "1"
    return f"({'+'.join(sorted(names))})"


def cut(name: str, start: int | str, end: int | str, step: int) -> str:
    """The name of the size of range(name)[start:end:step]."""
    return name if (start, end, step) == (0, name, 1) else f"cut({name},{start},{end},{step})"
