"""The registry of device snippets: the .cuh files beside this module.

A snippet is a piece of CUDA C++ without includes that printed kernels use. Its first line,
`// requires: a, b`, names the snippets that must precede it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from fusewright.core.errors import InternalError

_DIRECTORY = Path(__file__).with_name("snippets")
_HEADER = "// requires:"


@cache
def names() -> tuple[str, ...]:
    """All snippets, sorted."""
    return tuple(sorted(path.stem for path in _DIRECTORY.glob("*.cuh")))


@cache
def text(name: str) -> str:
    """The CUDA text of a snippet. InternalError if there is none of that name."""
    path = _DIRECTORY / f"{name}.cuh"
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InternalError(f"no device snippet {name!r}; there are {', '.join(names())}") from None


@cache
def requires(name: str) -> tuple[str, ...]:
    """The snippets that `name` builds on directly, as its first line lists them."""
    header = text(name).partition("\n")[0]
    if not header.startswith(_HEADER):
        raise InternalError(f"snippet {name!r} must start with a line '{_HEADER} ...'")
    return tuple(part for part in header[len(_HEADER) :].replace(",", " ").split())


def closure(wanted: Iterable[str]) -> tuple[str, ...]:
    """`wanted` and all snippets that they use, each after those that it requires; the order depends only on
    the set.
    """
    ordered: dict[str, None] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in ordered:
            return
        if name in path:
            raise InternalError(f"snippets require each other: {' -> '.join((*path, name))}")
        for other in requires(name):
            visit(other, (*path, name))
        ordered[name] = None

    for name in sorted(set(wanted)):
        visit(name, ())
    return tuple(ordered)
