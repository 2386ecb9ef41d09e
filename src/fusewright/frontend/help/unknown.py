"""Errors for unknown names of the front end, with similar names."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterable

from fusewright.core.errors import UnknownOpError
from fusewright.frontend.help.recipes import RECIPES
from fusewright.ops import OPS

# How alike two names are, as difflib measures it, where one is taken for the other misspelled.
TYPO = 0.8


def unknown_method(owner: str, name: str, known: Iterable[str]) -> UnknownOpError:
    """The error for a method that `owner` lacks, with similar names among `known`."""
    similar = difflib.get_close_matches(name.lower(), list(known), n=3, cutoff=TYPO)
    hint = f"did you mean {' or '.join(similar)}?" if similar else f"dir({owner}) lists what there is"
    return UnknownOpError(name=f"{owner}.{name}", hint=hint)


def unknown_operation(name: str, asked: str) -> UnknownOpError:
    """The error for the unknown operation `asked`.

    If it is an operation of torch that can be composed, the message shows how; otherwise it lists similar
    names.
    """
    recipe = RECIPES.get(name)
    if recipe is None:
        return unknown_method("fd.ops", name, OPS)
    return UnknownOpError(name=asked, hint=f"write it as\n{textwrap.indent(recipe, ' ' * 4)}")
