"""JSON documents that people review and edit: tables of seeds, policies. They are validated when read."""

from __future__ import annotations

import json
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from fusewright.core.errors import ParamsError, TuneError
from fusewright.core.serialization import from_dict
from fusewright.core.whole_files import write_whole

T = TypeVar("T")
# Characters of what a message shows of a document.
SHOWN = 80


def read_document(path: Path, what: str, format_: str, version: int) -> dict[str, Any]:
    """The document of a file.

    Args:
        what: it should be, for messages, as in "table of seeds".
        format_, version: that it has to state.

    Raises:
        TuneError: the file cannot be read, is no JSON of numbers that exist and keys that are there once, or
            another document.
    """
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(
            text, parse_constant=_no_number, parse_float=_number, object_pairs_hook=_without_duplicates
        )
    except OSError as error:
        raise TuneError(f"the {what} {path} cannot be read: {error.strerror or error}") from None
    except json.JSONDecodeError as error:
        raise TuneError(f"the {what} {path} cannot be read: it is no JSON: {error}") from None
    except (ValueError, RecursionError) as error:
        raise TuneError(f"the {what} {path} cannot be read: {error}") from None
    stated = {key: data.get(key) for key in ("format", "version")} if isinstance(data, dict) else data
    if stated != {"format": format_, "version": version}:
        hint = None
        if isinstance(data, dict) and data.get("format") == format_:
            hint = "another version of Fusewright wrote it; export it again"
        expected = f'"format": "{format_}", "version": {version}'
        raise TuneError(
            f"{path} is no {what}", expected=expected, given=json.dumps(stated)[:SHOWN], hint=hint
        )
    assert isinstance(data, dict)
    return data


def entries_of(data: dict[str, Any], name: str, kind: type[T], where: str) -> list[T]:
    """The entries of a list of a document. where: the document's name. TuneError names the entry."""
    items = data.get(name, [])
    if not isinstance(items, list):
        raise TuneError(where, expected=f'a list "{name}"', given=repr(items)[:SHOWN])
    found = []
    for i, item in enumerate(items):
        try:
            found.append(from_dict(kind, item))
        except ParamsError as error:
            raise TuneError(f"{where}, {name}[{i}]: {error}") from None
    return found


def write_document(path: Path, text: str) -> None:
    """Writes a file that readers see as it was, or as it is then. TuneError: it cannot be written."""
    try:
        write_whole(path, text)
    except OSError as error:
        raise TuneError(f"{path} cannot be written: {error.strerror or error}") from None


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of a document")


def _number(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text} is no number of a document")
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'the key "{twice}" stands twice')
    return found
