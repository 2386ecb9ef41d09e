"""Adds to errors the lines of the definition that make the named tensors, and where the user wrote them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from fusewright.core.call_sites import CallSite, location_of
from fusewright.core.errors import FusewrightError
from fusewright.frontend.recorded.printing import definition_lines
from fusewright.frontend.recorded.records import Record
from fusewright.frontend.recorded.states import Outcome

F = TypeVar("F", bound=Callable[..., Any])

# An error that names more values than these is about none of them in particular.
MAX_ORIGINS = 3

# A name of the definition, or the first part of one that is derived from it: T3 of T3_exp.
_NAME = re.compile(r"\b[TSV]\d+(?![0-9A-Za-z])")


def explain(
    error: FusewrightError,
    records: Sequence[Record],
    outcomes: Sequence[Outcome],
    sites: Sequence[CallSite | None],
) -> None:
    """Adds to an error the lines of the definition that make the values it names, as `print(fd)` shows them.

    Args:
        sites: where the user wrote each record; empty if that is not known.
    """
    named = list(dict.fromkeys(_NAME.findall(error.naming)))[:MAX_ORIGINS]
    if error.origins or not named:
        return
    found: dict[str, str] = {}
    for i, (results, line) in enumerate(definition_lines(records, outcomes)):
        for name in results:
            site = sites[i] if i < len(sites) else None
            where = "" if site is None else f" at {location_of(site).place}"
            found[name] = f"{line}{where}"
    error.origins = tuple(dict.fromkeys(found[name] for name in named if name in found))


class Explains(Protocol):
    """A definition, or a part of one: `_explain` adds to an error the user's lines of the values that it
    names.
    """

    def _explain(self, error: FusewrightError) -> None: ...


def explained(method: F) -> F:
    """A decorator: errors of a definition's method show where the user wrote the values that they name."""

    @functools.wraps(method)
    def call(self: Explains, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except FusewrightError as error:
            self._explain(error)
            raise

    return call  # type: ignore[return-value]
