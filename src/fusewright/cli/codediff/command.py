"""`fusewright codediff`: its arguments and their execution."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from fusewright.cli.codediff.comparison import Comparison, compare
from fusewright.cli.codediff.dumped import read_folder
from fusewright.cli.codediff.page import page
from fusewright.cli.codediff.revisions import ALL_TESTS, DEFAULT_TESTS, source_of
from fusewright.cli.codediff.text import print_comparison
from fusewright.core.errors import DumpError

DESCRIPTION = """
Compare the generated kernels of OLD and NEW: two folders that FUSEWRIGHT_DUMP_DIR made, or two git revisions
(or checkouts, as `.`), whose tests are run without a GPU. Kernels are compared by where they are used; their
names do not matter. The exit status is 0 if nothing differs, 1 if something does, 2 if they cannot be
compared.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("old", metavar="OLD", help="a dump folder, a revision, or a checkout")
    parser.add_argument("new", metavar="NEW", help="likewise")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--tests",
        nargs="+",
        default=DEFAULT_TESTS,
        metavar="TEST",
        help=f"tests whose kernels are compared, of revisions (default: {' '.join(DEFAULT_TESTS)})",
    )
    which.add_argument(
        "--all", dest="tests", action="store_const", const=ALL_TESTS, help="all tests, which takes minutes"
    )
    parser.add_argument(
        "--keep", metavar="FOLDER", type=Path, help="keep what revisions dump, in FOLDER/old, new"
    )
    parser.add_argument("--html", metavar="FILE", type=Path, help="write one page with all diffs")
    parser.add_argument("--stat", action="store_true", help="no diffs, the table alone")


def codediff(console: Console, parsed: argparse.Namespace) -> int:
    """Prints the comparison; whether anything differs, as an exit status.

    Raises:
        DumpError: an argument that cannot be compared, or a page that cannot be written.
    """
    with ExitStack() as stack:
        parent = parsed.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="codediff-")))
        for name in ("old", "new") if parsed.keep else ():
            if (parent / name).exists():
                raise DumpError(f"--keep: {parent / name} exists", hint="name a folder that is not there yet")
        dumps = [
            source.dump(parent / name, parsed.tests)
            for source, name in ((source_of(parsed.old), "old"), (source_of(parsed.new), "new"))
        ]
        old, new = (read_folder(dump.path) for dump in dumps)
        notes = [note for dump in dumps for note in dump.notes]
        comparison = compare(old, new, (dumps[0].name, dumps[1].name), notes, _progress)
        _write(console, parsed, comparison)
    return int(comparison.differs)


def _write(console: Console, parsed: argparse.Namespace, comparison: Comparison) -> None:
    if parsed.html is not None:
        try:
            parsed.html.write_text(page(comparison), encoding="utf-8")
        except OSError as error:
            raise DumpError(f"--html: {parsed.html} cannot be written: {error}") from None
    if parsed.json:
        print(json.dumps(comparison.to_dict(), indent=2))
    else:
        print_comparison(console, comparison, with_diffs=not parsed.stat)


def _progress(done: int, count: int) -> None:
    if sys.stderr.isatty() or done == count:
        end = "\n" if done == count else "\r"
        print(f"codediff: compiled {done} of {count} changed kernels", end=end, file=sys.stderr, flush=True)
