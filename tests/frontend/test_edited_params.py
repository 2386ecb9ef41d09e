"""Heuristic params that a user edits: those that make sense run, all others name the field."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fusewright import FusionDefinition, ParallelType, SchedulerType
from fusewright.core.errors import ParamsError, ScheduleError

SHAPE = (12, 1024)
KINDS = {
    "pointwise": (SchedulerType.pointwise, lambda x: x.exp()),
    "inner": (SchedulerType.reduction, lambda x: x.sum(1)),
    "outer": (SchedulerType.reduction, lambda x: x.sum(0)),
    "softmax": (SchedulerType.inner_persistent, lambda x: x.softmax(1)),
}
SEVERAL_ROWS = {"multiple_reds_per_blk": True, "block_dim_iter_dom": ParallelType.block_y}


def definition(kind: str) -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True)
        if kind == "pointwise":
            fd.add_output(fd.ops.exp(x))
        elif kind == "softmax":
            e = fd.ops.exp(x - fd.ops.max(x, [1], keepdim=True))
            fd.add_output(e / fd.ops.sum(e, [1], keepdim=True))
        else:
            fd.add_output(fd.ops.sum(x, [1 if kind == "inner" else 0]))
    return fd


def run_edited(kind: str, edits: dict[str, Any]) -> FusionDefinition:
    """Executes with the proposed params, changed as `edits` (dotted names) say, and checks the result."""
    type_, reference = KINDS[kind]
    fd, x = definition(kind), torch.rand(*SHAPE)
    fd._setup_schedule([x])
    params = fd.sched.compute_heuristics(type_)
    for path, value in edits.items():
        *outer, name = path.split(".")
        setattr(getattr(params, outer[0]) if outer else params, name, value)
    fd.sched.schedule(params)
    fd._finalize_schedule([x])
    [out] = fd.execute([x])
    torch.testing.assert_close(out, reference(x), rtol=1e-4, atol=1e-4)
    return fd


@pytest.mark.parametrize("kind, edits, block", [
    ("pointwise", {"lparams.bdimx": 64}, (64, 1)),
    ("pointwise", {"lparams.bdimx": 100}, (100, 1)),
    ("pointwise", {"vectorization_factor": 2, "unroll_factor_inner": 3}, (128, 1)),
    ("pointwise", {"vectorization_factor": 16}, (128, 1)),
    ("pointwise", {"unaligned_inputs": (0,)}, (128, 1)),
    ("inner", {"lparams.bdimx": 256}, (256, 1)),
    ("inner", SEVERAL_ROWS | {"lparams.bdimy": 2}, (128, 2)),
    ("inner", {"unroll_factor_inner_reduction": 3, "vectorize_inner_reduction": False}, (128, 1)),
    ("outer", {"lparams.bdimx": 16, "lparams.bdimy": 8}, (16, 8)),
    ("softmax", SEVERAL_ROWS | {"lparams.bdimy": 2}, (256, 2)),
    ("softmax", {"vectorize_inner_reduction": False}, (256, 1)),
    ("softmax", {"shift_rows": True, "lparams.bdimx": -1}, ("32*((i1 + 2) // 128) + 32", 1)),
    ("softmax", {"batches_per_block_inner_reduction": 0, "project_persistent_buffers": True}, (256, 1)),
])  # fmt: skip
def test_sensible_changes_run(kind: str, edits: dict[str, Any], block: tuple[int, int]) -> None:
    [kernel] = run_edited(kind, edits)._last_kernels()
    x, y, _ = kernel.kernel.block
    assert (str(x), str(y)) == tuple(map(str, block))


@pytest.mark.parametrize("kind, edits, message", [
    ("pointwise", {"lparams.bdimx": 0}, "`lparams.bdimx`: expected 1 to 1024, or -1, got 0"),
    ("pointwise", {"lparams.bdimx": 3000}, "`lparams.bdimx`: expected 1 to 1024, or -1, got 3000"),
    ("pointwise", {"lparams.bdimz": 65}, "`lparams.bdimz`: expected 1 to 64, or -1, got 65"),
    ("pointwise", {"vectorization_factor": 3},
     "`vectorization_factor`: Vectorization factor must be a power of 2"),
    ("pointwise", {"unaligned_inputs": (1,)}, "`unaligned_inputs.0.`: expected the position of"),
    ("pointwise", {"vectorization_factor": 32}, "`vectorization_factor`: expected 1 to 16, got 32"),
    ("pointwise", {"unroll_factor_inner": 0}, "`unroll_factor_inner`: expected 1 to 128, got 0"),
    ("pointwise", {"break_point": -1}, "`break_point`: expected 0 or more, got -1"),
    ("pointwise", {"cparams.maxrregcount": 300}, "`cparams.maxrregcount`: expected 0 to 255, got 300"),
    ("inner", {"lparams.bdimx": -1}, "`lparams.bdimx`: expected the extent, 1 or more, got -1"),
    ("inner", {"lparams.bdimx": 512, "lparams.bdimy": 4},
     r"`lparams.bdimx \* bdimy \* bdimz`: expected at most 1024, got 2048"),
    ("inner", {"unroll_factor_inner_reduction": 3},
     "`unroll_factor_inner_reduction`: Vectorization factor must be a power of 2"),
    ("inner", {"persistent_kernel": True}, "`persistent_kernel`: expected False for this fusion, got True"),
    ("inner", {"block_dim_inner_reduction": None}, "`block_dim_inner_reduction`: expected one of mesh_x, "),
    ("outer", {"lparams.bdimy": -1}, "`lparams.bdimy`: expected the extent, 1 or more, got -1"),
    ("softmax", {"batches_per_block_inner_reduction": -1},
     "`batches_per_block_inner_reduction`: expected 0 to 128, got -1"),
    ("softmax", {"batches_per_block_inner_reduction": 0},
     "`project_persistent_buffers`: expected True where no batches are held, got False"),
    ("softmax", {"fastest_dim": False}, "`fastest_dim`: expected True for this fusion, got False"),
])  # fmt: skip
def test_nonsense_names_the_field(kind: str, edits: dict[str, Any], message: str) -> None:
    with pytest.raises(ParamsError, match=message):
        run_edited(kind, edits)


@pytest.mark.parametrize("kind, edits, message", [
    ("softmax", {"lparams.bdimx": 128}, "the schedule assumes the range of the size i"),
])  # fmt: skip
def test_what_these_inputs_do_not_allow_is_an_error_of_the_schedule(
    kind: str, edits: dict[str, Any], message: str
) -> None:
    with pytest.raises(ScheduleError, match=message):
        run_edited(kind, edits)


@pytest.mark.parametrize("break_point", range(3))
def test_shifted_rows_may_be_several_merged_dimensions(break_point: int) -> None:
    """What takes a merged dimension apart waits for the shift, which differs from row to row."""
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.neg(fd.define_tensor([-1, -1, -1], True)))
    changes = {"shift_rows": True, "vectorization_factor": 4, "break_point": break_point}
    x = torch.rand(3, 5, 7)
    [out] = fd.execute([x], schedules={0: changes})
    assert torch.equal(out, -x)
