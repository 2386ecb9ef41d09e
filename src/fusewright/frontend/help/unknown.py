"""Errors for names that the front end does not have, with those that are spelled like them."""

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
    """The error for a method that `owner` lacks, with those of `known` that are spelled like it."""
    similar = difflib.get_close_matches(name.lower(), list(known), n=3, cutoff=TYPO)
    hint = f"did you mean {' or '.join(similar)}?" if similar else f"dir({owner}) lists what there is"
    return UnknownOpError(name=f"{owner}.{name}", hint=hint)


def unknown_operation(name: str, asked: str) -> UnknownOpError:
    """The error for an operation that was asked for as `asked`, and is none.

    It says how to write it, if it is one of torch's that can be written, else which names are similar.
    """
    recipe = RECIPES.get(name)
    if recipe is None:
        return unknown_method("fd.ops", name, OPS)
    return UnknownOpError(name=asked, hint=f"write it as\n{textwrap.indent(recipe, ' ' * 4)}")
