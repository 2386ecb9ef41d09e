"""Random legal params of each kernel of small cases: the right results, or a UserError.

A search measures whatever `validate` accepts. On a GPU a fault of one kernel ends the process, and a wrong
result may come only with params that no heuristic chooses.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from bench.ahead import Case
from bench.drawn import ALL_LAYOUTS, DTYPES, MIXED, STRUCTURE, laid_out
from bench.drawn_reductions import FEW_ELEMENTS, reduction_cases
from bench.fusion_catalogue import CATALOGUE
from bench.operation import Inputs, Operation, Shape
from bench.operations import OPERATIONS
from bench.selection import named_case
from fusewright import FusionCache
from fusewright.core.errors import UserError
from fusewright.core.options import Options
from fusewright.frontend.tuned.problems import load, problems_of
from fusewright.host import SegmentSchedules
from fusewright.host.program.programs import BoundProgram
from fusewright.tune.changes import differences, with_differences
from fusewright.tune.problem import Problem
from fusewright.tune.space import ParamsSpace
from fusewright.tune.worker import Planned

CPU = torch.device("cpu")
TRACED = [each for each in [*CATALOGUE, *OPERATIONS] if each.define is None]
# What a size that is no structure becomes: whole vectors, and not; rows of a thread, a warp and a block.
SIZES = (
    1,
    2,
    3,
    5,
    7,
    8,
    16,
    17,
    24,
    32,
    33,
    56,
    64,
    65,
    96,
    100,
    128,
    129,
    200,
    256,
    257,
    384,
    512,
    1000,
    1024,
)
STRUCTURE_STAYS = 0.7
# What the simulator runs in a moment: the elements of a case's largest tensor, and the threads of a launch.
MOST_ELEMENTS = 8_000
MOST_THREADS = 70_000


@dataclass(frozen=True)
class Small:
    """A case, with the text that `case_of` reads."""

    text: str
    operation: Operation
    shape: Shape


def case_of(text: str) -> Small:
    """NAME:SHAPE:TYPE:LAYOUT, or `reductions SEED NUMBER`."""
    if text.startswith("reductions "):
        seed, number = map(int, text.split()[1:])
        return Small(text, *reduction_cases(seed, number + 1, FEW_ELEMENTS)[number])
    return Small(text, *named_case(text, TRACED))


def drawn_case(draw: random.Random, operations: Sequence[Operation] = TRACED) -> Small:
    """A case of the catalogue at small sizes, in any layout, or random reductions."""
    if draw.random() < 0.3:
        return case_of(f"reductions {draw.randrange(10_000)} {draw.randrange(3)}")
    while True:
        operation = draw.choice(operations)
        shape = tuple(_small(draw, size) for size in draw.choice(operation.shapes))
        dtype, layout = draw.choice(DTYPES), draw.choice(ALL_LAYOUTS)
        if layout == MIXED:
            layout = f"{MIXED}{draw.randrange(1000)}"
        case = laid_out(operation, dtype, layout), shape
        if _has_few_elements(case):
            sizes = "x".join(map(str, shape))
            return Small(f"{operation.name}:{sizes}:{str(dtype).removeprefix('torch.')}:{layout}", *case)


def _small(draw: random.Random, size: int) -> int:
    if size <= STRUCTURE and draw.random() < STRUCTURE_STAYS:
        return size
    return min(size, draw.choice(SIZES))


def _has_few_elements(case: Case) -> bool:
    """Whether torch takes the case at its sizes, and all of its tensors are small."""
    operation, shape = case
    if math.prod(shape) > 100 * MOST_ELEMENTS:
        return False
    try:
        operation.inputs(shape, Inputs(CPU))  # values of indices depend on sizes, which may be 0
        with FakeTensorMode():
            inputs = operation.inputs(shape, Inputs(CPU))
            made = operation.reference(*inputs)
    except Exception:  # torch has many types for what it refuses
        return False
    results = made if isinstance(made, (tuple, list)) else (made,)
    counts = [value.numel() for value in (*inputs, *results) if isinstance(value, torch.Tensor)]
    return 0 < max(counts) <= MOST_ELEMENTS


@dataclass(frozen=True)
class Finding:
    """Legal params whose kernel fails.

    Attributes:
        case: the case's text.
        problem: the number of the kernel's problem.
        changes: how the params differ from the heuristic's.
    """

    case: str
    problem: int
    changes: dict[str, Any]
    error: BaseException

    def __str__(self) -> str:
        line = str(self.error).partition("\n")[0]
        return f"({self.case!r}, {self.problem}, {self.changes}): {type(self.error).__name__}: {line}"


class Kernel:
    """A kernel of a case that any legal params may be tried for."""

    def __init__(self, case: Small, number: int, problem: Problem) -> None:
        self.case, self.number = case, number
        self._options = Options.from_environment()
        self._planned = Planned(problem, load, self._options)
        self._index = problem.kernel
        self._loaded = load(problem, CPU)
        self.space = ParamsSpace(
            self._planned.heuristic,
            problem.hardware,
            self._planned.fixed_params,
            self._planned.described().length,
        )

    def drawn(self, draw: random.Random, count: int) -> Iterator[Any]:
        """The heuristic's params, random ones, and steps from those."""
        points = [self._planned.heuristic]
        yield points[0]
        for number in range(1, count):
            if number % 2:
                found = self.space.draw(draw)
            else:
                steps = self.space.steps(draw.choice(points))
                found = draw.choice(steps).params if steps else None
            if found is not None and found not in points:
                points.append(found)
                yield found

    def changed(self, changes: Mapping[str, Any]) -> Any:
        """The heuristic's params with these changes."""
        return with_differences(self._planned.heuristic, changes)

    def run(self, params: Any) -> bool:
        """Whether a kernel is made and runs.

        Raises:
            AssertionError: its results are wrong.
            Exception: a fault of it, or of what makes it.
        """
        executor, inputs = self._loaded.executor, self._loaded.inputs
        part = executor.planned(inputs, options=self._options, views=False)
        if not part.segments:
            return False
        schedules = SegmentSchedules(((self._index, params),), part)
        try:
            program = executor.compile(inputs, options=self._options, user_schedule=schedules, views=False)
            if _threads(program) > MOST_THREADS:
                return False
            self._loaded.check(lambda: program.run(inputs))
        except UserError:
            return False
        return True

    def finding(self, params: Any) -> Finding | None:
        """What is wrong with its kernel."""
        try:
            self.run(params)
        except Exception as error:
            return Finding(self.case.text, self.number, differences(self._planned.heuristic, params), error)
        return None


def _threads(program: BoundProgram) -> int:
    shapes = [shape for shape in program.shapes.values() if shape is not None]
    return max((math.prod((*shape.grid, *shape.block)) for shape in shapes), default=0)


def kernels_of(case: Small, folder: Path) -> list[Kernel]:
    """The kernels of a case."""
    inputs = case.operation.inputs(case.shape, Inputs(CPU))
    FusionCache.reset()
    problems = problems_of(case.operation.definition(inputs), inputs, CPU, case.text, folder)
    return [Kernel(case, number, problem) for number, problem in enumerate(problems)]


def findings(case: Small, draw: random.Random, count: int, folder: Path) -> Iterator[Finding]:
    """What is wrong with so many params of each kernel of a case.

    Where the heuristic's own results are not close, as those of random inputs that cancel, only faults are
    found.
    """
    for kernel in kernels_of(case, folder):
        is_close = True
        for number, params in enumerate(kernel.drawn(draw, count)):
            found = kernel.finding(params)
            if found is None:
                continue
            is_wrong = isinstance(found.error, AssertionError)
            is_close = is_close and not (is_wrong and number == 0)
            if is_close or not is_wrong:
                yield found
