"""All kinds of nodes of the package."""

from __future__ import annotations

from collections.abc import Iterator

from fusewright.ir import Join, LibraryCall, Node, RandomState


def _subclasses(cls: type[Node]) -> Iterator[type[Node]]:
    for sub in cls.__subclasses__():
        if sub.__module__.startswith("fusewright."):  # not those that tests and documents make up
            yield sub
        yield from _subclasses(sub)


KINDS = tuple(_subclasses(Node))
#: Those that the host computes, or has a library compute, or that need no computation.
HOST_KINDS = (RandomState, LibraryCall, Join)
