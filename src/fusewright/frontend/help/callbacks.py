"""Calls of functions that users write, whose parameters are checked first."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from fusewright.core.errors import ArgumentTypeError


def called(role: str, callback: Callable[..., Any], **arguments: Any) -> Any:
    """What a user's function returns for these arguments, which it takes by position.

    Args:
        role: what the function is, for the message, as `fd.schedule`.

    Raises:
        ArgumentTypeError: it does not take these arguments.
    """
    try:
        signature = inspect.signature(callback)
    except (TypeError, ValueError):  # of a function that is not written in Python
        return callback(*arguments.values())
    try:
        signature.bind(*arguments.values())
    except TypeError:
        taken = f"a function of ({', '.join(arguments)})" if arguments else "a function without arguments"
        raise ArgumentTypeError(function=role, expected=taken, given=f"one of {signature}") from None
    return callback(*arguments.values())
