"""Numbers and files on a command line, checked before anything runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from fusewright.core.errors import TuneError
from fusewright.core.options import MAX_DIGITS


def count_to(limit: int) -> Callable[[str], int]:
    """Takes an integer of 1 to `limit`."""

    def count(text: str) -> int:
        if not (text.isdecimal() and len(text) <= MAX_DIGITS and 1 <= int(text) <= limit):
            raise argparse.ArgumentTypeError(f"expected an integer of 1 to {limit}, got {text}")
        return int(text)

    return count


def positive_count(text: str) -> int:
    """An integer of 1 or more, of so many digits as Python takes."""
    if not text.isdecimal() or len(text) > MAX_DIGITS or not int(text):
        raise argparse.ArgumentTypeError(f"expected an integer of 1 or more, got {text}")
    return int(text)


def positive_seconds(text: str) -> float:
    """A number above 0."""
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"expected more than 0, got {text}")
    return value


def check_targets(*targets: Path | None) -> None:
    """Raises TuneError for a file that is to be written, where there is no folder for it."""
    for target in targets:
        if target is not None and not target.absolute().parent.is_dir():
            raise TuneError(f"{target} cannot be written: there is no folder {target.absolute().parent}")
        if target is not None and target.is_dir():
            raise TuneError(f"{target} cannot be written: it is a folder")
