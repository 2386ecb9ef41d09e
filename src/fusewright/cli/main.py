"""The arguments of `fusewright` and its commands."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
from collections.abc import Sequence

from rich.console import Console

from fusewright import __version__
from fusewright.cli.codediff import command as codediff
from fusewright.cli.demo import demo
from fusewright.cli.info import info
from fusewright.cli.ops import ops
from fusewright.cli.script_problems import split_arguments
from fusewright.cli.sweep import DESCRIPTION as SWEEP
from fusewright.cli.sweep import add_arguments as add_sweep_arguments
from fusewright.cli.sweep import sweep_command
from fusewright.cli.tune import DESCRIPTION as TUNE
from fusewright.cli.tune import add_arguments as add_tune_arguments
from fusewright.cli.tune import tune_command
from fusewright.core.errors import DumpError, FusewrightError, TuneError

# Wide enough for a line of a kernel where the output goes to a file.
FILE_WIDTH = 120
USAGE_ERROR = 2  # what argparse exits with, and diff where it cannot compare

#: Commands that run a script, whose arguments follow "--".
RUN_SCRIPTS = ("sweep", "tune")
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
INTERRUPTED = 128 + signal.SIGINT  # what shells call the end by that signal


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status. Errors of Fusewright are printed without a traceback."""
    _open_closed_output()
    parser = _parser()
    given, of_script = list(sys.argv[1:] if arguments is None else arguments), list[str]()
    if given and given[0] in RUN_SCRIPTS:
        given, of_script = split_arguments(given)
    parsed = parser.parse_args(given)
    parsed.script_arguments = of_script
    if parsed.command is None:
        parser.print_help(sys.stderr)
        return USAGE_ERROR
    console = Console(
        no_color=parsed.no_color or None, highlight=False, width=None if sys.stdout.isatty() else FILE_WIDTH
    )
    status = 0
    try:
        if parsed.command == "demo":
            status = 0 if demo(console, as_json=parsed.json) else 1
        elif parsed.command == "codediff":
            status = codediff.codediff(console, parsed)
        elif parsed.command == "ops":
            ops(console, as_json=parsed.json, plugins=parsed.plugin, typed=parsed.typed)
        elif parsed.command == "sweep":
            sweep_command(console, parsed)
        elif parsed.command == "tune":
            tune_command(console, parsed)
        else:
            info(console, as_json=parsed.json)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()  # whoever read it has enough of it (`| head`)
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        _discard_output()
        print(f"fusewright: the output cannot be written: {error.strerror}", file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        print("fusewright: interrupted", file=sys.stderr)
        return INTERRUPTED
    except FusewrightError as error:
        print(f"fusewright: {type(error).__name__}: {error}", file=sys.stderr)
        return USAGE_ERROR if isinstance(error, (DumpError, TuneError)) else 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fusewright", description="Fusewright: fused GPU kernels from definitions in Python."
    )
    parser.add_argument("--version", action="version", version=f"fusewright {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    described = {
        "demo": "define, schedule, compile and run two fusions, and show every step",
        "info": "device, driver, NVRTC, simulated GPU and kernel cache",
        "ops": "every operation, the types that it takes, and whether it is generated or computed by torch",
    }
    parsers = {
        name: commands.add_parser(name, help=text, description=text) for name, text in described.items()
    }
    parsers["codediff"] = commands.add_parser(
        "codediff",
        help="how the generated kernels of two dump folders or two git revisions differ",
        description=codediff.DESCRIPTION,
    )
    codediff.add_arguments(parsers["codediff"])
    parsers["ops"].add_argument(
        "--plugin",
        action="append",
        default=[],
        metavar="MODULE",
        help="a module, or a Python file, that registers operations; may be repeated",
    )
    parsers["ops"].add_argument(
        "--typed",
        metavar="FILE",
        help="write a Python module with a class of definitions whose registered operations type checkers "
        "know, instead of the table",
    )
    parsers["sweep"] = commands.add_parser(
        "sweep",
        help="try other params for the kernels of a script, and record how fast they are",
        description=SWEEP,
    )
    add_sweep_arguments(parsers["sweep"])
    parsers["tune"] = commands.add_parser(
        "tune",
        help="search for better params for the kernels of a script, and export what was learned",
        description=TUNE,
    )
    add_tune_arguments(parsers["tune"])
    for command in parsers.values():
        command.add_argument("--json", action="store_true", help="print one JSON object")
        command.add_argument("--no-color", action="store_true", help="plain text")
    return parser


def _open_closed_output() -> None:
    """Discards what is written to an output that was closed at the start (`>&-`).

    Python has no stream for it, and would give its descriptor to the next file that is opened.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (until the process ends)


def _discard_output() -> None:
    """What is written from now on, since Python would fail again in its flush at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
