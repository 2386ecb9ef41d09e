"""Analyses that are made once of a fusion that nobody changes any more, however many schedulers ask."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from fusewright.ir.fusion import Fusion

P = ParamSpec("P")
R = TypeVar("R")


def kept(analyse: Callable[Concatenate[Fusion, P], R]) -> Callable[Concatenate[Fusion, P], R]:
    """The analysis, whose results are kept with a fusion that is frozen. Its arguments are hashable."""

    @functools.wraps(analyse)
    def result(fusion: Fusion, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if fusion.analyses is None:
            return analyse(fusion, *args, **kwargs)
        key = analyse, args, tuple(kwargs.items())
        if key not in fusion.analyses:
            fusion.analyses[key] = analyse(fusion, *args, **kwargs)
        return fusion.analyses[key]  # type: ignore[return-value]

    return result
