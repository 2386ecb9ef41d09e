"""Caches analyses of a frozen fusion, so that each runs once even if several schedulers need it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from fusewright.ir.fusion import Fusion

P = ParamSpec("P")
R = TypeVar("R")


def kept(analyse: Callable[Concatenate[Fusion, P], R]) -> Callable[Concatenate[Fusion, P], R]:
    """A decorator that caches an analysis of a frozen fusion with the fusion.

    Further arguments are hashable.
    """

    @functools.wraps(analyse)
    def result(fusion: Fusion, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if fusion.analyses is None:
            return analyse(fusion, *args, **kwargs)
        key = analyse, args, tuple(kwargs.items())
        if key not in fusion.analyses:
            fusion.analyses[key] = analyse(fusion, *args, **kwargs)
        return fusion.analyses[key]  # type: ignore[return-value]

    return result
