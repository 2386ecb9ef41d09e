"""Rings that a warp fills: a right one runs, and each mistake is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from fusewright.core.errors import DeadlockError, RaceError, SimulationError
from fusewright.cuda.nvrtc import NvrtcOptions, compile_cubin
from fusewright.cuda.printer import print_kernel
from fusewright.kernel.ir import Arrive, Barrier, If, Kernel, Wait
from fusewright.kernel.text import kernel_text
from fusewright.kernel.verify import verify
from fusewright.sim import SimReport, simulate
from fusewright.sym import const, eq, floordiv, mod
from tests.kernel.builders import at
from tests.kernel.rings import BLOCKS, ROWS, STAGES, WARP, Ring
from tests.readback.kernels import check_kernel


def run(kernel: Kernel) -> tuple[torch.Tensor, torch.Tensor, SimReport]:
    verify(kernel)
    x = torch.arange(float(BLOCKS * ROWS * WARP))
    y = torch.empty_like(x)
    return x, y, simulate(kernel, [x, y])


def test_a_ring_delivers_every_row() -> None:
    kernel = Ring().kernel()
    x, y, report = run(kernel)
    rows = x.view(-1, WARP)
    assert torch.equal(y.view(-1, WARP), rows + rows.sum(1, keepdim=True))
    assert report.global_traffic.loads == BLOCKS * ROWS
    assert "wait for phase n//2 of full[n%2]" in kernel_text(kernel).replace(" // ", "//").replace(" % ", "%")


def test_the_text_of_a_ring_is_the_kernel_and_compiles() -> None:
    ring = Ring()
    ring.consume.append(Barrier())
    kernel = ring.kernel()
    verify(kernel)
    source = print_kernel(kernel)
    check_kernel(kernel, source)
    cubin = compile_cubin(source.text, NvrtcOptions("sm_90a"))
    assert cubin.resources[source.name].spill_loads == 0


def _without_full_wait(ring: Ring) -> None:
    ring.consume.remove(ring.full_wait)


def _another_mbarrier(ring: Ring) -> None:
    other = replace(
        ring.full_wait, mbarrier=at(ring.full, mod(ring.n + 1, STAGES)), phase=floordiv(ring.n - 1, STAGES)
    )
    ring.consume[0] = other


def _late_wait(ring: Ring) -> None:
    first = Wait(at(ring.full, const(0)), const(0))
    ring.consume[0] = If(eq(ring.n, 0), (first,))
    ring.consume.insert(2, ring.full_wait)


def _without_empty_wait(ring: Ring) -> None:
    ring.produce.remove(ring.empty_wait)


def _early_release(ring: Ring) -> None:
    ring.consume[1:3] = ring.consume[2], ring.consume[1]


def _without_fence(ring: Ring) -> None:
    ring.consume.remove(ring.fence)


def _copy_after_arrival(ring: Ring) -> None:
    ring.produce[1:] = ring.announce, ring.copy


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (_without_full_wait, "element 0 of `stage` is read and was never written"),
        (_another_mbarrier, "element 0 of `stage` is read and was never written"),
        (_late_wait, r"reads element 32 of `stage`, which a copy that `full\[1\]` waits for .* wrote"),
        (
            _without_empty_wait,
            r"writes element 0 of `stage`, which a copy that `full\[0\]` waits for .* wrote",
        ),
        (_early_release, "a copy of this thread writes element 0 of `stage`, which .* read"),
        (_without_fence, "a copy of this thread writes element 0 of `stage`, which .* no proxy fence"),
        (_copy_after_arrival, "which a copy that `full.* wrote"),
    ],
)
def test_a_stage_that_is_read_too_early_or_overwritten(plant: Callable[[Ring], None], message: str) -> None:
    ring = Ring()
    plant(ring)
    with pytest.raises(SimulationError, match=message) as caught:
        run(ring.kernel())
    assert isinstance(caught.value, RaceError) != ("never written" in message)


def test_a_deadlock_names_who_waits_for_what() -> None:
    ring = Ring()
    ring.consume.remove(ring.release)
    with pytest.raises(DeadlockError) as caught:
        run(ring.kernel())
    assert "role compute waits: phase 1 of `full[0]` has 0 of 1 arrivals" in str(caught.value)
    assert "role load waits: phase 0 of `empty[0]` has 0 of 1 arrivals" in str(caught.value)


def test_a_phase_that_has_the_parity_of_another() -> None:
    ring = Ring()
    ring.consume[0] = replace(ring.full_wait, phase=floordiv(ring.n, STAGES) - 2)
    with pytest.raises(SimulationError, match=r"phase -2 is waited for|phase 0 of `full\[0\]`"):
        run(ring.kernel())


def test_more_arrivals_than_a_phase_has() -> None:
    ring = Ring()
    ring.produce.append(ring.announce)
    ring.produce.append(ring.announce)
    with pytest.raises(SimulationError):
        run(ring.kernel())


def test_arrivals_of_part_of_a_role() -> None:
    ring = Ring()
    ring.produce[2] = Arrive(at(ring.full, const(0)), by_warp=True)
    with pytest.raises(Exception, match="not all threads arrive here"):
        verify(ring.kernel())
