"""Kernels of every kind of schedule under compute-sanitizer: what they access, races, misplaced barriers.

Each case is a small operation: its automatic kernels, kernels of edited params, and a stratified sample of
their space, all checked against torch. Each tool runs each case in a process of its own, several at a time,
and each has a limit of seconds: a case that does not end says nothing about the others, and is not clean.
Params that a scheduler refuses for these sizes count as refused. Under racecheck each lane arrives at
mbarriers for itself (`bench.lane_arrivals` says why).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch

from bench.lane_arrivals import lanes_arrive
from bench.operation import Inputs, Operation, Shape, Tensors, as_float
from bench.operations import selected
from bench.report import Cell, environment, text_table
from bench.throughput import shape_text
from fusewright import FusionCache, FusionDefinition, SegmentKernel, UserError
from fusewright.cli.arguments import positive_count

TOOLS = ("racecheck", "memcheck", "synccheck")  # the slowest first
#: Seconds of one process, which starts torch under the tool and compiles.
SECONDS = 150
#: What compute-sanitizer ends with where it found something; a kernel that is wrong ends with another.
FOUND, WRONG = 86, 87
HEADER = ("tool", "case", "outcome", "kernels", "refused", "skipped", "errors")
#: mbarriers that synccheck keeps track of: with room for fewer than the blocks of a launch have, it
#: overwrites memory of others ("Detected overflow of tracked cuda::barrier structures").
BARRIERS = 1 << 16
#: synccheck does not follow the mbarriers of clusters of more blocks, in launches of more blocks. H200, CUDA
#: 13: of kernels that only initialize an mbarrier a block, arrive at it and wait, in clusters of 16, it
#: reports "Missing wait" for 160 blocks and more, nothing for 80 blocks, for 640 blocks in clusters of 8, or
#: for clusters of 16 without mbarriers; kernels that reduce end with an illegal memory access under it alone.
FOLLOWED_CLUSTER, FOLLOWED_BLOCKS = 8, 80
#: Lines of a tool's report that are shown.
SHOWN = 20

Edit = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """An operation at a size, and edits of its last kernel's params: what a sample rarely finds, since
    several fields go together.
    """

    operation: str
    shape: Shape
    edits: tuple[Edit, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.operation} {shape_text(self.shape)}"


def _clusters(blocks: int, **more: Any) -> Edit:
    return {"blocks_per_cluster": blocks, "lparams": {"bdimx": -1}, **more}


_IN_SHARED = {"persistent_in_shared_memory": True, "project_persistent_buffers": True}
_RING = {
    **_IN_SHARED,
    "circular_stages": 3,
    "persistent_blocks": 4,
    "batches_per_block_inner_reduction": 1,
    "lparams": {"bdimx": 128},
}
_ROWS: tuple[Edit, ...] = (
    _clusters(2),
    _clusters(4),
    _clusters(4, **_IN_SHARED),
    _IN_SHARED,
    {"unroll_factor_iter_dom": 2},
)
_RINGS: tuple[Edit, ...] = (_RING, {**_RING, "warp_specialized": True})
_SHIFTED: tuple[Edit, ...] = tuple(
    {
        "shift_rows": True,
        "unroll_factor_inner_reduction": 8,
        "vectorize_inner_reduction": True,
        "batches_per_block_inner_reduction": 2,
        "lparams": {"bdimx": 288},
        **more,
    }
    for more in ({}, _IN_SHARED)
)
_STAGED: Edit = {
    "staged_vector": 8,
    "assumed_reduction_sizes": (65,),
    "batches_per_block_inner_reduction": 5,
    "unroll_factor_iter_dom": 2,
    "lparams": {"bdimx": 16, "bdimy": 4},
}
#: Rows of 1803 that clusters take in turns and copy ahead, vectors shifted.
_TURNS: Edit = {
    **_SHIFTED[1],
    "assumed_reduction_sizes": (1803,),
    "unaligned_inputs": (1, 2),
    "circular_stages": 2,
    "weights_in_shared_memory": True,
    "persistent_blocks": 8,
    "blocks_per_cluster": 2,
    "lparams": {"bdimx": 64, "bdimy": 1},
}
_GRADIENTS_IN_TURNS: Edit = {
    "shift_rows": True,
    "assumed_reduction_sizes": (1803,),
    "unaligned_inputs": (3,),
    "vectorization_factor": 8,
    "batches_per_block_inner_reduction": 1,
    "project_persistent_buffers": True,
    "prefetch_rows": True,
    "circular_stages": 3,
    "columns_in_shared_memory": False,
    "columns_a_thread": 1,
    "blocks_per_cluster": 4,
    "lparams": {"gdimx": 8, "bdimx": 32, "bdimy": 2, "bdimz": 1},
}
#: Each kind of schedule at least once, with sizes that tools end with (tests/bench/test_sanitize.py lists
#: the kinds). Blocks that share a reduction or a scan need the larger ones.
CASES: tuple[Case, ...] = (
    Case("gelu_bias", (33, 1000)),
    Case("slice_at_offset", (33, 1001)),
    Case(
        "transpose_add",
        (136, 264),
        ({"tile_size1": 64, "tile_size2": 64}, {"tile_size1": 128, "tile_size2": 64, "vectorize_factor2": 4}),
    ),
    Case("transposed_floats", (136, 264), ({"tile_size1": 64, "tile_size2": 64},)),
    Case("permute_102", (16, 24, 32)),
    Case("softmax", (17, 4096), _ROWS),
    Case("softmax", (9, 2048), _RINGS),
    Case("softmax", (5, 4097), _SHIFTED),
    Case(
        "softmax",
        (37, 65),
        (_STAGED, {**_STAGED, "unroll_factor_iter_dom": 1, "lparams": {"bdimx": 32, "bdimy": 8}}),
    ),
    Case("layernorm", (12, 2048), _ROWS),
    Case("layernorm", (8, 2048), _RINGS),
    Case("layernorm", (1, 200000)),
    Case("layernorm", (1, 400000)),
    Case("layernorm", (40, 1803), (_TURNS,)),
    Case("rmsnorm_fp8", (12, 2048)),
    Case("softmax_columns", (96, 136)),
    Case("softmax_columns", (1500, 72)),
    Case("scaled_by_maximum", (64, 264)),
    Case("sum_inner", (9, 4096)),
    Case("sum_inner", (2, 100000)),
    Case("sum_outer", (500, 136)),
    Case("sum_middle", (2, 700, 40)),
    Case("row_col_sums", (150, 264)),
    Case("sums_of_matrices", (150, 264), ({"rows_per_block": 32}, {"prefetch_rows": True})),
    Case("crossed_sum", (1027, 1025), ({"prefetches_steps": True},)),
    Case("batched_dots", (40, 128)),
    Case("misaligned_sum", (300, 264)),
    Case("gathered", (130, 70)),
    Case("beside_mean", (40, 264)),
    Case("short_rows", (9, 70), ({"lparams": {"bdimx": 1, "bdimy": -1, "bdimz": 4}},)),
    Case("gated_rows", (24, 1000), ({"loads_ahead": False},)),
    Case("short_runs", (45, 130)),
    Case("short_columns", (4000, 24)),
    Case("weighted_points", (300, 64)),
    Case("backward", (33, 1024)),
    Case("gelu_bwd_bias", (300, 136)),
    Case("layernorm_bwd", (40, 1024)),
    Case("rmsnorm_bwd", (40, 1001)),
    Case("rmsnorm_bwd", (40, 1803), (_GRADIENTS_IN_TURNS,)),
    Case("batchnorm_train", (4, 6, 8, 24)),
    Case("cumsum_inner", (5, 1000)),
    Case("cumsum_inner", (2, 200000)),
    Case("cumsum_outer", (700, 40)),
    Case("cumsum_outer", (30000, 40)),
    Case("unrelated", (24, 264)),
)


def _floats(shape: Shape, new: Inputs) -> Tensors:
    return (new(*shape, dtype=torch.float32), new(shape[0] + 3, shape[1], dtype=torch.float32))


def _crossed(shape: Shape, new: Inputs) -> Tensors:
    return (new(*shape), new(*shape[::-1]))


def _batched(shape: Shape, new: Inputs) -> Tensors:
    """Of a batch of four, which is innermost in the first."""
    return (new(*shape, 4).permute(2, 0, 1), new(4, *shape))


def _misaligned(shape: Shape, new: Inputs) -> Tensors:
    return (new(shape[0], shape[1] + 8)[:, 1:-7],)


def _with_mean(fd: FusionDefinition, x: Any) -> list[Any]:
    wide = as_float(fd, x)
    return [fd.ops.cat([wide, fd.ops.mean(wide, [1], keepdim=True)], 1)]


def _rows(shape: Shape, new: Inputs) -> Tensors:
    return (new(*shape),)


def _of_three(shape: Shape, new: Inputs) -> Tensors:
    return (new(*shape, 3),)


def _of_four(shape: Shape, new: Inputs) -> Tensors:
    return (new(*shape, 4),)


def _matrices(shape: Shape, new: Inputs) -> Tensors:
    return (new(5, *shape),)


def _pairs(shape: Shape, new: Inputs) -> Tensors:
    return (new(*shape), new(*shape))


def _shares(fd: FusionDefinition, x: Any) -> list[Any]:
    """Of the places of each four columns, with one reduction after the other."""
    wide = as_float(fd, x)
    shifted = fd.ops.exp(wide - fd.ops.max(wide, dims=[1], keepdim=True))
    return [shifted / fd.ops.sum(shifted, dims=[1], keepdim=True)]


def _gated(fd: FusionDefinition, x: Any, gate: Any) -> list[Any]:
    wide = as_float(fd, x)
    return [(wide - fd.ops.mean(wide, [1], keepdim=True)) * fd.ops.sigmoid(as_float(fd, gate))]


def _gathered(shape: Shape, new: Inputs) -> Tensors:
    """Rows and indices that lie column by column."""
    index = torch.arange(shape[0] * shape[1], device=new.device).view(shape) * 7 % shape[1]
    return (new(*shape).t(), index.t())


#: What no row of the benchmark is: a tile whose vectors are exchanged, reductions of two tensors in different
#: memory orders, of columns that start at odd elements, and of two tensors that have nothing in common, which
#: one launch computes, a gather along the memory of its source, two pieces of one tensor, columns in rows of
#: four, rows that another input is used with, the first two dimensions exchanged of three, short
#: columns of many small matrices, one that is read backward, and rows and columns of each of a few matrices.
OWN = {
    "transposed_floats": Operation(
        "transposed_floats",
        lambda fd, x, y: [fd.ops.neg(fd.ops.permute(x, dims=[1, 0]))],
        lambda x, y: -x.t(),
        _floats,
        (),
    ),
    "crossed_sum": Operation(
        "crossed_sum",
        lambda fd, x, y: [fd.ops.sum(as_float(fd, x) + fd.ops.permute(y, dims=[1, 0]), dims=[1])],
        lambda x, y: (x + y.t()).sum(1),
        _crossed,
        (),
        summed=lambda shape: shape[1],
    ),
    "batched_dots": Operation(
        "batched_dots",
        lambda fd, x, y: [fd.ops.sum(as_float(fd, x) * y, dims=[2])],
        lambda x, y: (x * y).sum(2),
        _batched,
        (),
        summed=lambda shape: shape[1],
    ),
    "misaligned_sum": Operation(
        "misaligned_sum",
        lambda fd, x: [fd.ops.sum(as_float(fd, x), dims=[0])],
        lambda x: x.sum(0),
        _misaligned,
        (),
        summed=lambda shape: shape[0],
    ),
    "gathered": Operation(
        "gathered",
        lambda fd, x, index: [fd.ops.gather(x, index, 0)],
        lambda x, index: x.gather(0, index),
        _gathered,
        (),
    ),
    "beside_mean": Operation(
        "beside_mean",
        _with_mean,
        lambda x: torch.cat([x, x.mean(1, keepdim=True)], 1),
        _rows,
        (),
        summed=lambda shape: shape[1],
    ),
    "short_rows": Operation("short_rows", _shares, lambda x: torch.softmax(x, 1), _of_four, ()),
    "gated_rows": Operation(
        "gated_rows",
        _gated,
        lambda x, gate: (x - x.mean(1, keepdim=True)) * torch.sigmoid(gate),
        _pairs,
        (),
        summed=lambda shape: shape[1],
    ),
    "short_runs": Operation(
        "short_runs",
        lambda fd, x: [fd.ops.neg(fd.ops.permute(x, dims=[1, 0, 2]))],
        lambda x: -x.transpose(0, 1),
        _of_three,
        (),
    ),
    "short_columns": Operation(
        "short_columns",
        lambda fd, x: [fd.ops.sum(as_float(fd, x), dims=[1])],
        lambda x: x.sum(1),
        _of_three,
        (),
        summed=lambda shape: shape[1],
    ),
    "weighted_points": Operation(
        "weighted_points",
        lambda fd, x, w: [
            fd.ops.sum(fd.ops.mul(as_float(fd, x), fd.ops.broadcast(w, [False, False, True])), [1])
        ],
        lambda x, w: (x * w[..., None]).sum(1),
        lambda shape, new: (new(*shape, 3), new(*shape)),
        (),
        summed=lambda shape: shape[1],
        static_sizes=True,
    ),
    "backward": Operation("backward", lambda fd, x: [fd.ops.flip(x, [1])], lambda x: x.flip(1), _rows, ()),
    "sums_of_matrices": Operation(
        "sums_of_matrices",
        lambda fd, x: [fd.ops.sum(as_float(fd, x), [2]), fd.ops.sum(as_float(fd, x), [1])],
        lambda x: (x.sum(2), x.sum(1)),
        _matrices,
        (),
        summed=max,
        static_sizes=True,
    ),
    "unrelated": Operation(
        "unrelated",
        lambda fd, x, y: [fd.ops.sum(x, dims=[1]), fd.ops.sum(y, dims=[1])],
        lambda x, y: (x.sum(1), y.sum(1)),
        _floats,
        (),
        summed=lambda shape: shape[1],
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tool", choices=TOOLS, action="append", help="these tools alone")
    parser.add_argument("--points", type=int, default=2, help="params sampled of each kernel's space (2)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--only", default="", metavar="NAME,...", help="these operations alone")
    parser.add_argument(
        "--seconds", type=positive_count, default=SECONDS, help="of each process (%(default)s)"
    )
    parser.add_argument(
        "--jobs", type=positive_count, default=max(1, (os.cpu_count() or 2) // 2), help="processes at a time"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--inside", type=int, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Run the cases under each tool; 1 if one is not clean, or there is no GPU or no compute-sanitizer."""
    if arguments.inside is not None:
        followed = (FOLLOWED_CLUSTER, FOLLOWED_BLOCKS) if arguments.tool == ["synccheck"] else None
        with lanes_arrive() if arguments.tool == ["racecheck"] else nullcontext():
            return inside(CASES[arguments.inside], arguments.points, arguments.seed, followed)
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None or not torch.cuda.is_available():
        missing = "compute-sanitizer is not on PATH" if sanitizer is None else "torch sees no GPU here"
        print(f"bench sanitize: {missing}")
        return 1
    only = [name for name in arguments.only.split(",") if name]
    jobs = [
        (tool, index)
        for tool in arguments.tool or TOOLS
        for index, case in enumerate(CASES)
        if not only or case.operation in only
    ]
    rows: list[dict[str, Any]] = []
    processes = _Processes()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what is known is printed then, too
    try:
        with ThreadPoolExecutor(arguments.jobs) as pool:
            waiting = [pool.submit(_under, sanitizer, *job, arguments, processes) for job in jobs]
            try:
                for done in as_completed(waiting):
                    row, report = done.result()
                    rows.append(row)
                    if row["outcome"] != "clean":
                        print(
                            "\n".join([f"{row['tool']}, {row['case']}: {row['outcome']}", *report]),
                            flush=True,
                        )
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                processes.stop()
    finally:
        _print(rows, len(jobs), as_json=arguments.json)
    return int(any(row["outcome"] != "clean" for row in rows))


def _print(rows: list[dict[str, Any]], jobs: int, as_json: bool) -> None:
    rows.sort(key=lambda row: (row["tool"], row["case"]))
    if as_json:
        print(json.dumps({"environment": environment(), "rows": rows}, indent=1))
        return
    cells: list[tuple[Cell, ...]] = [tuple(row[key] for key in HEADER) for row in rows]
    print(text_table(HEADER, cells))
    clean = sum(row["outcome"] == "clean" for row in rows)
    print(f"{clean} of {jobs} clean, {jobs - len(rows)} not run", flush=True)


class _Processes:
    """Those that run, each the first of a group, so that what a tool has started ends with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[int] | None = set()

    def output(
        self, command: Sequence[str], variables: Mapping[str, str], seconds: int
    ) -> tuple[int | None, str]:
        """The status of a command, None if it did not end in time, and what it printed."""
        with self._lock:
            if self._running is None:
                return None, ""
            process = subprocess.Popen(
                command,
                env=variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            self._running.add(process.pid)
        try:
            text, _ = process.communicate(timeout=seconds)
            return process.returncode, text
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            text, _ = process.communicate()
            return None, text
        finally:
            with self._lock:
                if self._running is not None:
                    self._running.remove(process.pid)

    def stop(self) -> None:
        """Ends all, and starts no more."""
        with self._lock:
            for pid in self._running or ():
                os.killpg(pid, signal.SIGKILL)
            self._running = None


def _under(
    sanitizer: str, tool: str, index: int, arguments: argparse.Namespace, processes: _Processes
) -> tuple[dict[str, Any], list[str]]:
    """A case in a process under a tool: what came of it, and the tool's report."""
    command = [sanitizer, "--tool", tool, "--error-exitcode", str(FOUND), "--print-limit", str(SHOWN)]
    if tool == "memcheck":  # what the driver answers to a look-up of a symbol that it lacks is no finding
        command += ["--report-api-errors", "no"]
    elif tool == "synccheck":
        command += ["--num-cuda-barriers", str(BARRIERS)]
    command += [sys.executable, "-m", "bench", "sanitize", "--inside", str(index)]
    command += ["--points", str(arguments.points), "--seed", str(arguments.seed), "--tool", tool]
    # torch's allocator would hide bounds.
    variables = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    code, text = processes.output(command, variables, arguments.seconds)
    return outcome(tool, CASES[index], code, text.splitlines())


def outcome(
    tool: str, case: Case, code: int | None, lines: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """What came of a process that ended with `code` (None: it was stopped) and printed `lines`."""
    counts = next((json.loads(line) for line in lines if line.startswith('{"kernels"')), {})
    report = [line[:180] for line in lines if line.startswith("=========")]
    found = sum(" at " in line or "Error:" in line or "hazard" in line for line in report)
    if code is None:
        said = "did not end"
    elif counts.get("errors"):
        said = "wrong"
    elif code == FOUND:
        said = "found"
    elif code or not counts.get("kernels"):
        said, report = f"exit status {code}", [line[:180] for line in lines]
    else:
        said = "clean"
    errors = counts.get("errors", 0) + (found if said == "found" else 0)
    row = {"tool": tool, "case": case.name, "outcome": said, "errors": errors}
    return row | {key: counts.get(key, 0) for key in ("kernels", "refused", "skipped")}, report[-SHOWN:]


def inside(case: Case, points: int, seed: int, followed: tuple[int, int] | None = None) -> int:
    """Run a case and print its counts as one line of JSON; WRONG if a result was.

    followed: kernels in clusters of more blocks than the first, in launches of more blocks than the second,
    are skipped; None: none is.
    """
    counts = Counter[str](kernels=0, refused=0, skipped=0, errors=0)
    for problem in _run_case(case, points, seed, counts, followed):
        print(f"========= {case.name}: {problem}", flush=True)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    print(json.dumps(counts), flush=True)
    return WRONG if counts["errors"] else 0


def operation_of(case: Case) -> Operation:
    return OWN.get(case.operation) or selected([case.operation])[0]


def _run_case(
    case: Case, points: int, seed: int, counts: Counter[str], followed: tuple[int, int] | None
) -> Iterator[str]:
    """Counts what ran, and yields what was wrong. Inputs and torch's results are made on the CPU, as tools
    slow down all kernels.
    """
    FusionCache.reset()
    operation = operation_of(case)
    inputs = operation.inputs(case.shape, Inputs(torch.device("cpu")))
    if torch.cuda.is_available():
        inputs = tuple(tensor.to("cuda") for tensor in inputs)
    for schedule in schedules(case, operation.definition(inputs), inputs, points, seed):
        problem = _run_one(operation, case.shape, inputs, schedule, counts, followed)
        if problem is not None:
            yield problem


def schedules(
    case: Case, fd: FusionDefinition, inputs: Tensors, points: int, seed: int
) -> list[dict[int, Any]]:
    """The automatic kernels, those of the case's edits, and of sampled params."""
    kernels = fd.kernels_for(inputs)
    found: list[dict[int, Any]] = [{}]
    found += [{len(kernels) - 1: edit} for edit in case.edits]
    for index, kernel in enumerate(kernels):
        params = kernel.params
        if params is not None and points:
            base = replace(params, reason="")
            space = type(params).space(kernel.kernel.hardware, base=base, points=points, seed=seed)
            found += [{index: point} for point in space]
    return found


def _run_one(
    operation: Operation,
    shape: Shape,
    inputs: Tensors,
    schedule: dict[int, Any],
    counts: Counter[str],
    followed: tuple[int, int] | None,
) -> str | None:
    try:
        if followed is not None:
            kernels = operation.definition(inputs).kernels_for(inputs, schedules=schedule or None)
            if not all(_is_followed(kernel, *followed) for kernel in kernels):
                counts["skipped"] += 1
                return None
        outputs = operation.definition(inputs).execute(inputs, schedules=schedule or None)
        on_cpu = tuple(tensor.cpu() for tensor in inputs)
        # Any params may be asked for, also those that leave a row to a few threads.
        in_turn = max(shape) if schedule else 1
        operation.check(shape, on_cpu, [output.cpu() for output in outputs], in_turn)
    except UserError:
        counts["refused"] += 1
        return None
    except AssertionError as error:
        counts["errors"] += 1
        return f"{schedule}: {str(error).splitlines()[0]}"
    counts["kernels"] += 1
    return None


def _is_followed(kernel: SegmentKernel, cluster: int, blocks: int) -> bool:
    if kernel.kernel is None or kernel.launch is None or kernel.kernel.kernel.cluster <= cluster:
        return True
    return prod(kernel.launch.grid) <= blocks
