"""Kernels of many schedules under compute-sanitizer: out-of-bounds accesses, races, misplaced barriers.

For each of some small operations, its automatic kernels and kernels of other legal params, a stratified
sample of their space, run under the tools, and are checked against torch. Params that a scheduler refuses
for these sizes count as refused. Schedules that otherwise take large inputs (clusters, rings, cooperative
grids) are among the samples, at small sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from bench.operation import Inputs, Operation, Shape, Tensors
from bench.operations import selected
from bench.report import Cell, environment, text_table
from fusewright import FusionCache, UserError

TOOLS = ("memcheck", "racecheck", "synccheck")
#: Operations and sizes whose automatic kernels and samples are run; of each kind of schedule one at least.
CASES: tuple[tuple[str, Shape], ...] = (
    ("gelu_bias", (33, 1000)),
    ("slice_at_offset", (33, 1001)),
    ("transpose_add", (72, 104)),
    ("softmax", (17, 4096)),
    ("softmax", (37, 257)),
    ("layernorm", (12, 2048)),
    ("rmsnorm_fp8", (12, 2048)),
    ("softmax_columns", (96, 136)),
    ("sum_inner", (9, 4096)),
    ("sum_outer", (500, 136)),
    ("sum_middle", (5, 96, 40)),
    ("row_col_sums", (70, 264)),
    ("layernorm_bwd", (40, 1024)),
    ("rmsnorm_bwd", (40, 1000)),
    ("batchnorm_train", (4, 6, 8, 24)),
    ("cumsum_inner", (5, 1000)),
)
_RING = {
    "project_persistent_buffers": True,
    "persistent_in_shared_memory": True,
    "circular_stages": 3,
    "persistent_blocks": 4,
    "batches_per_block_inner_reduction": 1,
    "lparams": {"bdimx": 128},
}
#: What a sample rarely finds, since several fields go together: edits of the last kernel's params.
EDITS: dict[str, tuple[dict[str, Any], ...]] = {
    "softmax": (
        {"blocks_per_cluster": 2, "lparams": {"bdimx": -1}},
        {"blocks_per_cluster": 4, "lparams": {"bdimx": -1}},
        {"persistent_in_shared_memory": True, "project_persistent_buffers": True},
        {"unroll_factor_iter_dom": 2},
        _RING,
        {**_RING, "warp_specialized": True},
    ),
}
EDITS["layernorm"] = EDITS["softmax"]
HEADER = ("tool", "operation", "shape", "kernels", "refused", "errors")
#: What compute-sanitizer ends with where it found something; a kernel that is wrong ends with another.
FOUND, WRONG = 86, 87
SECONDS = 240


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tool", choices=TOOLS, action="append", help="these tools alone")
    parser.add_argument("--points", type=int, default=12, help="params sampled of each kernel's space (12)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--only", default="", metavar="NAME,...", help="these operations alone")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Run the cases under each tool; 1 if one found anything, or there is no GPU or no compute-sanitizer."""
    only = [name for name in arguments.only.split(",") if name]
    if arguments.inside:
        return _inside(only, arguments.points, arguments.seed)
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None or not torch.cuda.is_available():
        missing = "compute-sanitizer is not on PATH" if sanitizer is None else "torch sees no GPU here"
        print(f"bench sanitize: {missing}")
        return 1
    rows: list[dict[str, Any]] = []
    for tool in arguments.tool or TOOLS:
        rows += _under(sanitizer, tool, arguments)
    if arguments.json:
        print(json.dumps({"environment": environment(), "rows": rows}, indent=1))
    else:
        cells: list[tuple[Cell, ...]] = [tuple(row[key] for key in HEADER) for row in rows]
        print(text_table(HEADER, cells))
    return 1 if any(row["errors"] for row in rows) else 0


def _under(sanitizer: str, tool: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """One process with all cases; what it prints of each, and of the tool's findings."""
    inner = [sys.executable, "-m", "bench", "sanitize", "--inside", "--only", arguments.only]
    inner += ["--points", str(arguments.points), "--seed", str(arguments.seed)]
    # What the driver answers to a look-up of a symbol that it lacks is no finding.
    options = ["--tool", tool, "--error-exitcode", str(FOUND), "--print-limit", "20"]
    options += ["--report-api-errors", "no"]
    # No disk cache: what runs is what this checkout generates. torch's allocator would hide bounds.
    variables = {**os.environ, "FUSEWRIGHT_DISABLE": "nvrtc_caching", "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    try:
        done = subprocess.run(
            [sanitizer, *options, *inner],
            env=variables,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        code, lines = done.returncode, (done.stdout + done.stderr).splitlines()
    except subprocess.TimeoutExpired as late:
        out = late.stdout or b""
        text = out.decode() if isinstance(out, bytes) else out
        code, lines = FOUND, [*text.splitlines(), f"========= no end within {SECONDS} s"]
    rows: list[dict[str, Any]] = []
    found: list[str] = []
    for line in lines:
        if line.startswith('{"operation"'):
            own = json.loads(line)
            findings = sum(" at " in text or "Error:" in text for text in found)
            rows.append({"tool": tool, **own, "errors": own["errors"] + findings})
            found = []
        elif line.startswith("========="):
            found.append(line)
            if " by " not in line and "Target application" not in line:
                print(line[:180], file=sys.stderr)
    if code and not any(row["errors"] for row in rows):
        print("\n".join(lines[-20:]), file=sys.stderr)
        rows.append(
            dict.fromkeys(HEADER, None) | {"tool": tool, "operation": f"exit status {code}", "errors": 1}
        )
    return rows


def _inside(only: Sequence[str], points: int, seed: int) -> int:
    """Run all cases and print one line of JSON for each; WRONG if a result was."""
    wrong = 0
    for name, shape in CASES:
        if only and name not in only:
            continue
        [operation] = selected([name])
        counts = Counter[str](kernels=0, refused=0, errors=0)
        for problem in _run_case(operation, shape, points, seed, counts):
            print(f"========= {name} {shape}: {problem}", flush=True)
        wrong += counts["errors"]
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        print(json.dumps({"operation": name, "shape": "x".join(map(str, shape)), **counts}), flush=True)
    return WRONG if wrong else 0


def _run_case(
    operation: Operation, shape: Shape, points: int, seed: int, counts: Counter[str]
) -> Iterator[str]:
    """Counts what ran, and yields what was wrong."""
    FusionCache.reset()
    inputs = operation.inputs(shape, Inputs(torch.device("cuda" if torch.cuda.is_available() else "cpu")))
    fd = operation.definition(inputs)
    schedules: list[dict[int, Any]] = [{}]
    kernels = fd.kernels_for(inputs)
    schedules += [{len(kernels) - 1: edit} for edit in EDITS.get(operation.name, ())]
    for index, kernel in enumerate(kernels):
        params = kernel.params
        if params is not None:
            base = replace(params, reason="")
            space = type(params).space(kernel.kernel.hardware, base=base, points=points, seed=seed)
            schedules += [{index: point} for point in space]
    for schedule in schedules:
        problem = _run_one(operation, shape, inputs, schedule, counts)
        if problem is not None:
            yield problem


def _run_one(
    operation: Operation, shape: Shape, inputs: Tensors, schedule: dict[int, Any], counts: Counter[str]
) -> str | None:
    try:
        outputs = operation.definition(inputs).execute(inputs, schedules=schedule)
        operation.check(shape, inputs, outputs)
    except UserError:
        counts["refused"] += 1
        return None
    except AssertionError as error:
        counts["errors"] += 1
        return f"{schedule}: {str(error).splitlines()[0]}"
    counts["kernels"] += 1
    return None
