"""Random legal params of small cases: the right results, or a UserError.

`HYPOTHESIS_PROFILE=fuzz pytest tests/fuzz/test_random_params.py` draws others each time, and more.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.fuzz.legal_params import case_of, drawn_case, findings, kernels_of

IS_FUZZ = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
SEED = os.urandom(4).hex() if IS_FUZZ else "0"
CASES, PARAMS = (100, 20) if IS_FUZZ else (8, 3)

# What this test has found: a case, the number of its kernel, and changes of its heuristic's params.
ROWS_IN_SHARED = {"persistent_in_shared_memory": True, "unroll_factor_inner_reduction": 4}
FOUND: dict[str, tuple[str, int, dict[str, Any]]] = {
    "rows at a misaligned address, held in shared memory": (
        "float8_gate:5x1024:bfloat16:misaligned",
        0,
        {**ROWS_IN_SHARED, "project_persistent_buffers": True, "batches_per_block_inner_reduction": 2},
    ),
    "shifted rows at a misaligned address, held in shared memory": (
        "float8_gate:5x1024:bfloat16:misaligned",
        0,
        {
            **ROWS_IN_SHARED,
            "project_persistent_buffers": True,
            "lparams.bdimx": 64,
            "blocks_per_cluster": 8,
            "shift_rows": True,
        },
    ),
    "vectors across the end of memory, held in shared memory": (
        "layer_norm:1x100:bfloat16:plain",
        0,
        {
            "lparams.gdimy": 64,
            "lparams.bdimx": 16,
            "lparams.bdimy": 4,
            "persistent_in_shared_memory": True,
            "unroll_factor_inner_reduction": 8,
            "batches_per_block_inner_reduction": 16,
            "shift_rows": True,
            "unroll_factor_iter_dom": 2,
        },
    ),
    "results of fewer rows than threads, joined in shared memory": (
        "spectral_convergence:5x65x16:bfloat16:plain",
        0,
        {
            "lparams.bdimx": 128,
            "lparams.bdimy": 1,
            "lparams.bdimz": 2,
            "vectorization_factor": 8,
            "rows_per_block": 64,
        },
    ),
    "what the blocks of a cluster exchange, beside pieces in common registers": (
        "queue_loss:16x7:bfloat16:plain",
        0,
        {
            "lparams.bdimx": 1,
            "lparams.bdimy": -1,
            "persistent_in_shared_memory": True,
            "unroll_factor_inner_reduction": 8,
            "pad_inner_reduction_to_warp": False,
            "batches_per_block_inner_reduction": 8,
            "blocks_per_cluster": 4,
            "unroll_factor_iter_dom": 16,
        },
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found(name: str, tmp_path: Path) -> None:
    text, number, changes = FOUND[name]
    kernel = kernels_of(case_of(text), tmp_path)[number]
    assert kernel.run(kernel.changed(changes))


@pytest.mark.parametrize("number", range(CASES))
def test_random_legal_params(number: int, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    draw = random.Random(f"{SEED} {number}")
    found = list(findings(drawn_case(draw), draw, PARAMS, tmp_path))
    assert not found, "\n".join(map(str, found))


def test_no_elements_are_a_case_like_others(tmp_path: Path) -> None:
    """Of the second and third part of this join."""
    [kernel] = kernels_of(case_of("cat_three:257x1:bfloat16:mixed659"), tmp_path)
    assert not kernel.run(kernel.changed({}))
