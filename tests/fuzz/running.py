"""Runs a random program and says what is wrong with it, if anything."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from fusewright import FusionDefinition
from fusewright.core.errors import DriverError, InternalError, SimulationError, UserError
from fusewright.core.options import Options
from fusewright.frontend.recorded.cache import FusionCache
from tests.fuzz.bounded import Bounded, disagreement
from tests.fuzz.programs import Input, Output, Program, arguments, define, evaluate, written_value

# Machine code of a program that is run once is neither looked for on disk nor kept there.
OPTIONS = Options.from_environment().with_switches(disable="nvrtc_caching")


@dataclass(frozen=True)
class Refusal:
    """A UserError that a program of the generator may end in, and why that is right."""

    error: str
    message: str
    reason: str

    def covers(self, error: UserError) -> bool:
        return type(error).__name__ == self.error and re.search(self.message, str(error)) is not None


#: The generator writes valid programs, so that there is little here. Whatever it does not list is a finding.
REFUSALS: tuple[Refusal, ...] = (
    Refusal(
        "ShapeError",
        "^(chunk|split): the number of parts depends on the size",
        "of two inputs of one size only one states it",
    ),
)


@dataclass(frozen=True)
class Finding:
    """What is wrong.

    Attributes:
        kind: `wrong result`, `refused`, `internal fault`, `simulator report`, `driver error`, `exception`,
            `hang` or `crash`.
        head: findings of the same class have the same: the error's class and message without numbers.
        message: all of it.
        execution: the number of the execution that shows it, below that of the executions.
    """

    kind: str
    head: str
    message: str
    execution: int = 0

    @property
    def group(self) -> str:
        return f"{self.kind}: {self.head}"


@dataclass(frozen=True)
class Outcome:
    """How far a program came. refused: the reason of a refusal that is right."""

    executions: int = 0
    kernels: int = 0
    refused: str | None = None
    finding: Finding | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def run(program: Program, device: str = "cpu") -> Outcome:
    """Defines the program, does all its executions and compares what they give with torch's results.

    What is checked: the values of every output, their types, shapes and, where asked for, memory order; and
    that no input changed but where an output was to be written, and that no fault was worked around.
    """
    with _logged_faults() as faults:
        return _run(program, device, faults)


@contextmanager
def _logged_faults() -> Iterator[list[InternalError]]:
    """The faults that are logged, and not printed, meanwhile."""
    faults: list[InternalError] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if isinstance(record.args, tuple) and record.args and isinstance(record.args[0], InternalError):
                faults.append(record.args[0])

    logger, keep = logging.getLogger("fusewright"), Keep()
    logger.addHandler(keep)
    try:
        yield faults
    finally:
        logger.removeHandler(keep)


def _run(program: Program, device: str, faults: Sequence[InternalError]) -> Outcome:
    """`faults`: those that were logged so far."""
    FusionCache.reset()
    done = kernels = number = 0
    try:
        fd = FusionDefinition(options=replace(OPTIONS, sim_device=program.gpu))
        for number in range(len(program.executions)):
            given = arguments(program, number)
            expected = evaluate(program, given)
            passed = [fresh(device, value, spec) for value, spec in zip(given, program.inputs)]
            passed = [passed[program.home(i)] for i in range(len(passed))]
            if not number:
                with fd:
                    define(program, fd, passed)
            outputs = fd.execute(passed)
            done += 1
            kernels += len(fd._last_kernels())
            problem = _problem(program, outputs, passed, given, expected)
            if problem is not None:
                return Outcome(done, kernels, finding=_wrong(program, problem, number))
            if faults:
                return Outcome(done, kernels, finding=_finding(faults[0], number))
    except Exception as error:
        # A GPU's errors may come when results are read, which is after the execution was counted: `number`.
        for refusal in REFUSALS:
            if isinstance(error, UserError) and refusal.covers(error):
                if faults:
                    return Outcome(done, kernels, finding=_finding(faults[0], number))
                return Outcome(done, kernels, refused=refusal.reason)
        return Outcome(done, kernels, finding=_finding(error, number))
    return Outcome(done, kernels)


def fresh(device: str, value: Any, spec: Input) -> Any:
    """The value, as a fresh tensor of the same layout on the device."""
    if not spec.is_tensor:
        return value
    storage = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage())
    copy = storage.clone() if device == "cpu" else storage.to(device)
    tensor = copy.as_strided(value.shape, value.stride(), value.storage_offset())
    return tensor.conj() if value.is_conj() else tensor


def _problem(
    program: Program,
    outputs: Sequence[torch.Tensor],
    passed: Sequence[Any],
    given: Sequence[Any],
    expected: Sequence[Bounded],
) -> str | None:
    """What is wrong with the results of one execution; None if nothing is."""
    if len(outputs) != len(program.returned):
        return f"{len(outputs)} outputs instead of {len(program.returned)}"
    written = {program.home(o.alias): o for o in program.outputs if o.alias is not None}
    changed = [passed[i].untyped_storage().data_ptr() for i in written if _has_twin(program, i)]
    for i, (actual, output) in enumerate(zip(outputs, program.returned)):
        if changed and actual.untyped_storage().data_ptr() in changed:
            continue  # a view of one of two inputs that are one tensor shows what is written into the other
        problem = disagreement(actual.cpu(), written_value(program, output, expected))
        problem = problem or _order_problem(actual, output)
        if problem is not None:
            return f"output {i}: {problem}"
    for i, output in written.items():
        problem = disagreement(passed[i].cpu(), written_value(program, output, expected))
        if problem is not None:
            return f"input {i}, which an output was written into: {problem}"
        # Beside what was written, the storage is as it was.
        passed[i].copy_(given[i])
    for i, (before, after) in enumerate(zip(given, passed)):
        if program.inputs[i].is_tensor and not torch.equal(_storage(before), _storage(after)):
            beside = " beside the output written into it" if program.home(i) in written else ""
            return f"input {i} changed{beside}"
    return None


def _has_twin(program: Program, index: int) -> bool:
    return sum(program.home(i) == index for i in range(len(program.inputs))) > 1


def _storage(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of a tensor's storage, on the CPU."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage()).cpu()


def _order_problem(actual: torch.Tensor, output: Output) -> str | None:
    """What is wrong with the strides, those of the order without gaps (an expanded dimension's is 0)."""
    if output.stride_order is None or not actual.numel():
        return None
    expected = 1
    for dim in sorted(range(actual.ndim), key=output.stride_order.__getitem__):
        size, stride = actual.shape[dim], actual.stride(dim)
        if size == 1 or stride == 0:  # it takes no memory of its own
            continue
        if stride != expected:
            return f"strides {actual.stride()} are not those of stride_order {output.stride_order}"
        expected *= size
    return None


# ---- findings ----------------------------------------------------------------------------------------------


def _wrong(program: Program, problem: str, execution: int) -> Finding:
    """A wrong result; its class is guessed from the operations of the program."""
    ops = sorted({call.op for call in program.calls})
    what = re.sub(r"[:(].*", "", re.sub(r"\d+", "N", problem))
    head = (
        f"{what}; {' '.join(ops)}{'; in place' if any(o.alias is not None for o in program.outputs) else ''}"
    )
    return Finding("wrong result", head, problem, execution)


def _finding(error: BaseException, execution: int) -> Finding:
    kinds = (
        (SimulationError, "simulator report"),
        ((DriverError, torch.AcceleratorError), "driver error"),
        (InternalError, "internal fault"),
        (UserError, "refused"),
    )
    kind = next((kind for family, kind in kinds if isinstance(error, family)), "exception")
    text = str(error)
    return Finding(kind, f"{type(error).__name__}: {generalized(text)}", text, execution)


def generalized(message: str) -> str:
    """The first line of a message without names and numbers, so that messages of one class are equal."""
    line = message.strip().partition("\n")[0]
    line = re.sub(r"`[^`]*`", "`...`", line)
    before = ""
    while line != before:  # from the innermost parentheses outward
        before, line = line, re.sub(r"\w*[\[({][^\[\](){}]*[\])}]", "E", line)
    line = re.sub(r"\b[A-Za-z]{1,3}_?\d+\w*\b", "E", line)
    line = re.sub(r"-?\d+(\.\d+)?", "E", line)
    return re.sub(r"\bE+(\s*(//|[-+*/%])\s*E+)*", "E", line)[:160]
