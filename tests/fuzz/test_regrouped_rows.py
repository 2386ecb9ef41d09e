"""Results of rows or columns that are reshaped: kernels follow elements through quotients of their positions.

No proposal may be refused on the way, which other programs seldom show: the sizes are small, but none a
multiple of all vectors.
"""

from __future__ import annotations

import random

import pytest
import torch

from fusewright import DataType
from fusewright.cuda.printer import print_kernel
from fusewright.runtime import compiled_kernel
from tests.fuzz.dims import Dim, times
from tests.fuzz.kinds import KINDS, aligned, combine, reduced, reduced_dims
from tests.fuzz.programs import Program, to_script
from tests.fuzz.running import run
from tests.fuzz.shaping import SHAPING, reshaped
from tests.fuzz.writer import Flavour, Writer

SEED, PROGRAMS, PROGRAMS_A_TEST = 11, 20, 5


def regrouped(w: Writer) -> None:
    """A tensor beside a sum of its kind over some dimensions, in another shape of as many elements."""
    y = w.tensor(lambda s: s.ndim > 1)
    if y is None:
        return
    total = reduced(w, y, reduced_dims(w, y), True)
    x = None if total is None else w.tensor(lambda s: s.ndim > 1 and aligned(s, total))
    made = None if x is None else combine(w, x, total)
    if made is not None and made.ndim:
        reshaped(w, made, _of_another_shape(w, list(made.dims)))


def _of_another_shape(w: Writer, dims: list[Dim]) -> list[Dim]:
    """The sizes in another order, as one, or two of them as one."""
    if w.chance(2):
        dims = dims[::-1]
    if w.chance(2):
        at = w.rng.randrange(len(dims))
        return [*dims[:at], times(dims[at : at + 2]), *dims[at + 2 :]]
    return [times(dims)] if w.chance(3) else [dims[i] for i in w.permutation(len(dims))]


FLAVOUR = Flavour(
    ("regrouped", "regrouped", "regrouped", "reduce", "unary", "flatten", "reshape"),
    (DataType.Float,),
    sizes=(2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 40),
    min_rank=2,
    max_calls=4,
    layouts=False,
    aliases=0.0,
)


def program(number: int) -> Program:
    rng = random.Random(f"{SEED}:{number}")
    return Writer(rng, FLAVOUR).write({**KINDS, **SHAPING, "regrouped": regrouped})


@pytest.mark.sampled(0.5)
@pytest.mark.parametrize("first", range(0, PROGRAMS, PROGRAMS_A_TEST))
def test_programs(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr(compiled_kernel, "print_kernel", print_kernel)
    for number in range(first, first + PROGRAMS_A_TEST):
        drawn = program(number)
        found = run(drawn).finding
        assert found is None, f"program {number}: {found.message}\n\n{to_script(drawn, 'cpu')}"
