"""Random programs against torch: the same in every run. `./dev fuzz` draws others, and many more."""

from __future__ import annotations

import pytest
import torch

from fusewright.cuda.printer import print_kernel
from fusewright.runtime import compiled_kernel
from tests.fuzz.flavours import FLAVOURS, draw, flavour
from tests.fuzz.operations import OPERATIONS
from tests.fuzz.programs import to_script
from tests.fuzz.rare import RARE
from tests.fuzz.running import run
from tests.fuzz.shrinking import shrink

SEED = 7
PROGRAMS = 200
# Among so many each operation is drawn.
PROGRAMS_OF_ALL_OPERATIONS = 1500
PROGRAMS_A_TEST = 20
# Of each so many programs one has its kernels compiled by NVRTC, as those of all other tests are.
COMPILED_EACH = 10
PROGRAMS_ON_A_GPU = 100
SECONDS_TO_SHRINK = 5.0


def check(numbers: range, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs these programs; fails with a script for each class of findings."""
    failures: dict[str, tuple[int, str]] = {}
    for number in numbers:
        flavour, program = draw(SEED, number)
        with monkeypatch.context() as patch:
            if number % COMPILED_EACH:
                patch.setattr(compiled_kernel, "print_kernel", print_kernel)
            found = run(program, device).finding
            if found is not None and found.group not in failures:
                smaller, shown = shrink(program, found, lambda p: run(p, device), SECONDS_TO_SHRINK)
                script = to_script(smaller, device)
                failures[found.group] = number, f"{flavour}: {shown.message}\n\n{script}"
    assert not failures, "\n\n".join(
        f"program {number} of seed {SEED}, {text}" for number, text in failures.values()
    )


def test_every_operation_is_drawn() -> None:
    """Of the interface, of which `tests/matrix` says that `OPERATIONS` has all."""
    torch.set_num_threads(1)
    missing = set(OPERATIONS) - {"aten"}  # any of torch's operators: tests/torch_compile has a row for each
    rare_first = sorted(
        range(PROGRAMS_OF_ALL_OPERATIONS),
        key=lambda n: RARE.keys().isdisjoint(FLAVOURS[flavour(SEED, n)][1].kinds),
    )
    for number in rare_first:
        missing -= {call.op for call in draw(SEED, number)[1].calls}
        if not missing:
            return
    assert not missing


@pytest.mark.sampled(0.3)
@pytest.mark.parametrize("first", range(0, PROGRAMS, PROGRAMS_A_TEST))
def test_programs_in_the_simulator(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    check(range(first, first + PROGRAMS_A_TEST), "cpu", monkeypatch)


@pytest.mark.gpu
@pytest.mark.parametrize("first", range(0, PROGRAMS_ON_A_GPU, PROGRAMS_A_TEST))
def test_programs_on_a_gpu(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check(range(first, first + PROGRAMS_A_TEST), "cuda", monkeypatch)
