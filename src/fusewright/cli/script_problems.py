"""What a script executes, as problems to find params for."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

import torch

from fusewright.core.errors import FusewrightError, TuneError
from fusewright.frontend.definition import FusionDefinition
from fusewright.frontend.problems import problems_of, recorded
from fusewright.tune.problem import Problem


def script_problems(script: Path, folder: Path, who: str, as_json: bool) -> list[Problem]:
    """The kernels of the fusions that a script executes, each once. It runs as `python SCRIPT` does.

    who: the command, for its messages. as_json: whether its output is JSON, so that what a script prints goes
    to standard error.

    TuneError for a script that fails; what it did before is not lost on its reader.
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
    with recorded(observe), redirect_stdout(sys.stderr) if as_json else nullcontext():
        try:
            names = runpy.run_path(str(script), run_name="__main__")
        except SystemExit as error:
            if error.code:
                raise TuneError(f"{script} ended with exit status {error.code}") from None
            names = {}
        except FusewrightError:
            raise
        except Exception as error:
            raise TuneError(f"{script} failed: {type(error).__name__}: {error}") from error
    known = {id(value): name for name, value in names.items() if isinstance(value, FusionDefinition)}
    for fd, problems in calls:
        for problem in problems:
            found.setdefault(problem.key, problem.named(known.get(id(fd))))
    return list(found.values())
