"""The kernels that a script executes, as problems for a search."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

import torch

from fusewright.core.errors import FusewrightError, TuneError
from fusewright.frontend.definition import FusionDefinition
from fusewright.frontend.tuned.problems import problems_of, recorded
from fusewright.tune.problem import Problem

# Between the arguments of a command and those of the script that it runs.
SCRIPT_FOLLOWS = "--"


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments of a command, and those after "--", which are the script's."""
    given = list(arguments)
    at = given.index(SCRIPT_FOLLOWS) if SCRIPT_FOLLOWS in given else len(given)
    return given[:at], given[at + 1 :]


def check_script(script: Path | None) -> None:
    """Raises TuneError where there is no such file."""
    if script is None or not script.is_file():
        problem = "which SCRIPT?" if script is None else f"there is no script {script}"
        raise TuneError(problem, hint="or --show, for what a journal has")


def script_problems(
    script: Path, arguments: Sequence[str], folder: Path, who: str, as_json: bool
) -> list[Problem]:
    """The kernels of the fusions that a script executes, each once. It runs as `python SCRIPT` does.

    Args:
        arguments: of the script.
        who: the command, for its messages.
        as_json: whether its output is JSON, so that what a script prints goes to standard error.

    TuneError for a script that fails, or has no kernel with params; what it did before is not lost on its
    reader.
    """
    found: dict[str, Problem] = {}
    calls: list[tuple[FusionDefinition, list[Problem]]] = []
    inside: list[FusionDefinition] = []

    def observe(fd: FusionDefinition, inputs: Sequence[Any], device: torch.device | None) -> None:
        if inside:  # a segment of what is observed already
            return
        inside.append(fd)
        try:
            name = f"fusion {len({id(each) for each, _ in calls} | {id(fd)})}"
            calls.append((fd, problems_of(fd, inputs, device, name, folder)))
        except FusewrightError as error:
            print(f"{who}: a fusion is left out: {error}", file=sys.stderr)
        finally:
            inside.clear()

    # As `python SCRIPT` has it; worker processes import from there, too.
    sys.path.insert(0, str(script.absolute().parent))
    output = redirect_stdout(sys.stderr) if as_json else nullcontext()
    with recorded(observe), output, _arguments(script, arguments):
        try:
            names = runpy.run_path(str(script), run_name="__main__")
        except SystemExit as error:
            if error.code:
                raise TuneError(f"{script} ended with exit status {error.code}") from None
            names = {}
        except FusewrightError:
            raise
        except Exception as error:
            lines = [
                each.lineno
                for each in traceback.extract_tb(error.__traceback__, None)
                if each.filename == str(script)
            ]
            where = f" in line {lines[-1]}" if lines else ""
            raise TuneError(f"{script} failed{where}: {type(error).__name__}: {error}") from error
    known = {id(value): name for name, value in names.items() if isinstance(value, FusionDefinition)}
    for fd, problems in calls:
        for problem in problems:
            found.setdefault(problem.key, problem.named(known.get(id(fd))))
    if not found:
        raise TuneError(f"{script} executed no fusion that has a kernel with params")
    return list(found.values())


@contextmanager
def _arguments(script: Path, arguments: Sequence[str]) -> Iterator[None]:
    """A block in which a script finds its own arguments, not those of the command that runs it."""
    own = sys.argv
    sys.argv = [str(script), *arguments]
    try:
        yield
    finally:
        sys.argv = own
