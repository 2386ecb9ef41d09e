"""What the built-in redefinitions make of a call is right, and in as many kernels as they say."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from fusewright import DataType, FusionDefinition
from fusewright.ir import Fusion
from fusewright.ops.library import MATMUL_PARTS
from fusewright.schedulers import (
    Facts,
    Proposal,
    ReductionScheduler,
    Registry,
    Reject,
    contraction,
    default_registry,
)
from fusewright.schedulers.reduction.scheduler import _Planner
from fusewright.segment import decision
from tests.integration.tolerance import assert_close


def steps(fd: FusionDefinition) -> list[str]:
    """What computes each segment: a library's function, or a scheduler's kernel."""
    plans = fd._last_program().plans
    segments = [part.segment for plan in plans for part in getattr(plan, "parts", (plan,))]
    return [
        segment.evaluated.label
        if segment.evaluated is not None
        else getattr(segment.scheduler.type, "name", segment.scheduler.type)
        for segment in segments
    ]


# ---- reductions --------------------------------------------------------------------------------------------


class OneBlockReductions(ReductionScheduler):
    """The built-in reductions without those that blocks share."""

    type = "one_block"  # type: ignore[assignment]

    def prepare(self, fusion: Fusion) -> Any:
        planner = super().prepare(fusion)
        return planner if isinstance(planner, Reject) else OneBlockPlanner(planner.fusion, planner.space)


class OneBlockPlanner(_Planner):
    def at_speed(self, facts: Facts, hardware: Any) -> tuple[float, Proposal]:
        speed, shared = super().at_speed(facts, hardware)
        estimate, blocks = shared.estimate(), shared.params.lparams.gdimy
        params = replace(shared.params, lparams=replace(shared.params.lparams, gdimy=1))
        return speed / blocks, Proposal(params, lambda: replace(estimate, seconds=estimate.seconds * blocks))


def test_a_reduction_in_two_kernels_where_blocks_cannot_share_one(target: torch.device) -> None:
    """The built-in scheduler's blocks can, so that its own kernels leave nothing to gain."""
    given = torch.randn(2, 300_001, device=target)
    for schedulers, expected in (
        ([OneBlockReductions()], ["one_block"] * 3),
        ([], ["reduction"]),
    ):
        kept = [s for s in default_registry() if not schedulers or s.type.name != "reduction"]
        with FusionDefinition(registry=Registry([*schedulers, *kept])) as fd:
            e = fd.ops.exp(fd.from_pytorch(given))
            fd.add_output(fd.ops.sum(e, [1]))
            fd.add_output(fd.ops.max(e, [1]))
        total, most = fd.execute([given])
        assert_close(total, given.double().exp().sum(1), 300_001)
        assert_close(most, given.double().exp().amax(1), 1)
        assert steps(fd) == expected


@pytest.mark.parametrize("channels", [8, 6])
def test_rows_in_short_runs_of_memory(
    channels: int, monkeypatch: pytest.MonkeyPatch, target: torch.device
) -> None:
    """Columns first, whatever the estimates say of these sizes."""
    monkeypatch.setattr(
        decision, "is_better", lambda before, after: len(after.segments) > len(before.segments)
    )
    given = (3 + torch.randn(2, 250, 5, channels, device=target)).bfloat16()
    with FusionDefinition() as fd:
        wide = fd.ops.cast(fd.from_pytorch(given), DataType.Float)
        var, mean = fd.ops.var_mean(wide, [1, 3], 0, True)
        fd.add_output((wide - mean) * fd.ops.rsqrt(var))
        fd.add_output(fd.ops.max(wide, [1, 3]))
    normal, most = fd.execute([given])
    exact = given.double()
    mean, var = (f((1, 3), keepdim=True) for f in (exact.mean, partial(exact.var, correction=0)))
    assert_close(normal, (exact - mean) * var.rsqrt(), 250 * channels)
    assert_close(most, exact.amax((1, 3)), 1)
    assert len(steps(fd)) > 2


# ---- products ----------------------------------------------------------------------------------------------


@pytest.fixture
def simple_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The estimate of a library that leaves the whole sum of a tile to one block."""
    monkeypatch.setattr(contraction, "SPLIT_LENGTH", 1 << 40)


@pytest.mark.usefixtures("simple_library")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_product_in_parts(dtype: torch.dtype, target: torch.device) -> None:
    """Whatever the parts leave of the dimension that is summed over; what follows is fused with their sum."""
    with FusionDefinition() as fd:
        kind = DataType.Float if dtype is torch.float32 else DataType.BFloat16
        a, b = (fd.define_tensor([-1, -1], True, kind) for _ in range(2))
        fd.add_output(fd.ops.relu(fd.ops.matmul(a, b)))
    for inner in (65536, 65539):
        rows, columns = (torch.randn(s, device=target).to(dtype) for s in ((40, inner), (inner, 48)))
        (out,) = fd.execute([rows, columns])
        assert out.dtype is dtype
        assert_close(out, (rows.double() @ columns.double()).relu(), inner)
        assert steps(fd) == ["matmul_parts", "reduction"]


@pytest.mark.usefixtures("simple_library")
def test_a_linear_layer_in_parts(target: torch.device) -> None:
    x, w, bias = (torch.randn(s, device=target).half() for s in ((30, 40000), (20, 40000), (20,)))
    with FusionDefinition() as fd:
        handles = [fd.from_pytorch(t, static_sizes=True) for t in (x, w, bias)]
        fd.add_output(fd.ops.linear(*handles))
    (out,) = fd.execute([x, w, bias])
    expected = torch.nn.functional.linear(x.double(), w.double(), bias.double())
    assert_close(out, expected, 40000)
    assert steps(fd) == ["matmul_parts", "reduction"]


def test_operands_are_cut_as_they_lie(target: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is copied, whatever its strides."""
    a, b = torch.randn(4096, 9, device=target).t(), torch.randn(11, 8192, device=target)[:, ::2]
    before = [t.untyped_storage().data_ptr() for t in (a, b)]
    seen: list[Tensor] = []

    def bmm(left: Tensor, right: Tensor) -> Tensor:
        seen.extend((left, right))
        return torch.matmul(left, right)

    monkeypatch.setattr(torch, "bmm", bmm)
    out = MATMUL_PARTS.function(target.type, parts=4, transposed=True)(a, b)
    assert [t.untyped_storage().data_ptr() for t in seen] == before
    assert_close(out.sum(0), a.double() @ b.double().t(), 4096)
