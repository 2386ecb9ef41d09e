"""Numbers on a command line, checked where argparse reads them."""

from __future__ import annotations

import argparse


def positive_count(text: str) -> int:
    """An integer of 1 or more."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected an integer of 1 or more, got {text}")
    return int(text)


def positive_seconds(text: str) -> float:
    """A number above 0."""
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"expected more than 0, got {text}")
    return value
