"""Whole graphs beside torch.compile: kernels, GPU time outside matrix products and attention, cold time.

Each graph of the corpus (`bench.corpus`) is converted by `from_fx` and checked against torch; then both its
kernels and those of torch.compile for the same block are read from torch's profiler. Libraries' kernels of
products, convolutions and attention are told apart by their names. `--check` does the conversion and the
comparison with torch at tiny sizes, in the simulator too.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from bench.corpus import (
    BLOCKS,
    Block,
    Expected,
    Graph,
    Sizes,
    adamw_graph,
    adamw_step,
    block_graphs,
    inputs_of,
    make_module,
    optimizer_state,
)
from bench.report import OUTPUT, Cell, environment, markdown_table, text_table, write
from fusewright import FusionCache
from fusewright.core.once import clear_shared_caches
from fusewright.torch_compile import ConvertedGraph, from_fx

#: (hidden, length), in the order of their importance: a run that is out of time has measured the first.
POINTS = ((768, 1024), (4096, 2048), (768, 2048), (4096, 1024))
BATCH = 8
TINY = Sizes(2, 16, 64, 4)
# Calls whose kernels are timed, after one that is not.
REPEATS = 5
#: Kernels of libraries: products of matrices, convolutions, attention.
LIBRARY = re.compile(
    r"gemm|gemv|cutlass|nvjet|xmma|splitk|flash|fmha|attention|cudnn|conv|cublas|mha|pytorch_flash", re.I
)
GENERATED = re.compile(r"^(fusewright_|triton_)")
#: The largest error, as a fraction of the largest value, of a graph whose values are rounded at each step.
TOLERANCES = {torch.float32: 2e-4, torch.bfloat16: 4e-2}
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
HEADER = (
    "graph",
    "hidden, length",
    "kernels",
    "inductor's",
    "other",
    "inductor's",
    "us",
    "inductor us",
    "ratio",
    "library us",
    "inductor's",
    "ratio of all",
    "cold s",
    "inductor s",
    "cold ratio",
)


@dataclass(frozen=True)
class Kernels:
    """The kernels of one call, by the profiler.

    Attributes:
        generated: how many were generated.
        others: how many were neither generated nor a library's: copies, fills, torch's own kernels.
        generated_us, others_us, library_us: their times.
        slowest: names and microseconds of the generated ones and of the others, the longest first.
    """

    generated: int
    others: int
    generated_us: float
    others_us: float
    library_us: float
    slowest: tuple[tuple[str, float], ...] = ()

    @property
    def outside_us(self) -> float:
        """Time outside libraries."""
        return self.generated_us + self.others_us


@dataclass(frozen=True)
class Row:
    """One graph at one size. Seconds are wall time.

    Attributes:
        nodes: operators. records: of the definition. torch: calls of torch for want of an operation.
        kernels, library: what the host program launches, and has torch compute.
        error: the largest, as a fraction of the largest value.
        trace_s: of AOTAutograd, which torch.compile's cold time includes.
        convert_s: from the graph to the definition. first_s: of the first call.
    """

    graph: str
    hidden: int
    length: int
    dtype: str
    nodes: int
    records: int
    torch: int
    kernels: int
    library: int
    error: float
    trace_s: float
    convert_s: float
    first_s: float
    ours: Kernels | None = None
    inductor: Kernels | None = None
    inductor_cold_s: float | None = None

    @property
    def cold_s(self) -> float:
        """Conversion, partition, lowering and compilation."""
        return self.convert_s + self.first_s

    def cells(self) -> tuple[Cell, ...]:
        ours, theirs, cold = self.ours, self.inductor, self.inductor_cold_s
        return (
            self.graph,
            f"{self.hidden}, {self.length}",
            self.kernels if ours is None else ours.generated,
            None if theirs is None else theirs.generated,
            None if ours is None else ours.others,
            None if theirs is None else theirs.others,
            None if ours is None else ours.outside_us,
            None if theirs is None else theirs.outside_us,
            _ratio(ours, theirs, lambda kernels: kernels.outside_us),
            None if ours is None else ours.library_us,
            None if theirs is None else theirs.library_us,
            _ratio(ours, theirs, lambda kernels: kernels.outside_us + kernels.library_us),
            self.cold_s,
            cold,
            None if cold is None else self.cold_s / cold,
        )


def _ratio(ours: Kernels | None, theirs: Kernels | None, seconds: Callable[[Kernels], float]) -> float | None:
    """Our time relative to theirs; None if either is not known or theirs is 0."""
    return None if ours is None or theirs is None or not seconds(theirs) else seconds(ours) / seconds(theirs)


@dataclass
class Results:
    """What a run has measured, and what failed."""

    rows: list[Row] = field(default_factory=list)
    failures: list[dict[str, str]] = field(default_factory=list)


# ---- one graph ---------------------------------------------------------------------------------------------


def relative_error(made: Any, expected: Expected) -> float:
    """The largest error, as a fraction of the largest value or of 1; nan where what is made is not finite.

    Of truth values: the share of those that differ, or the largest margin of one of them, if that is more.
    Integers are left out: in these graphs they are random states, which torch may leave uninitialized.
    """
    wanted = expected.value
    if not isinstance(wanted, torch.Tensor) or not wanted.numel():
        return 0.0
    if wanted.dtype is torch.bool:
        differ = made != wanted
        if not differ.any():
            return 0.0
        if expected.margin is None:
            return 1.0
        return max(differ.double().mean().item(), expected.margin[differ].max().item())
    if not wanted.is_floating_point():
        return 0.0
    a, b = made.double(), wanted.double()
    return ((a - b).abs().max() / b.abs().max().clamp(min=1)).item()


def checked(graph: Graph, dtype: torch.dtype) -> tuple[ConvertedGraph, float, float, float]:
    """The converted graph, its error, and the seconds of the conversion and of the first call, with nothing
    kept of what was compiled before.

    AssertionError: it is wrong.
    """
    expected = graph.expected()
    FusionCache.reset()
    clear_shared_caches()
    arguments = graph.copied_arguments()
    _synchronize()
    start = time.perf_counter()
    converted = from_fx(graph.module)
    middle = time.perf_counter()
    made = [*torch.utils._pytree.tree_leaves(converted(*arguments)), *arguments]
    _synchronize()
    end = time.perf_counter()
    errors = [relative_error(a, b) for a, b in zip(made, expected, strict=True)]
    worst = max(range(len(errors)), key=lambda i: float("inf") if math.isnan(errors[i]) else errors[i])
    error = errors[worst]
    assert error <= TOLERANCES[dtype], f"{graph.name}: error {error:.3g} in {_described(expected[worst])}"
    return converted, error, middle - start, end - middle


def _described(expected: Expected) -> str:
    value = expected.value
    assert value is not None
    return f"{expected.name}, {value.dtype} {list(value.shape)}"


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measured(graph: Graph, sizes: Sizes, dtype: torch.dtype, trace_s: float) -> Row:
    """Converts, checks and, on a GPU, times one graph."""
    converted, error, convert_s, first_s = checked(graph, dtype)
    report = converted.report()
    arguments = graph.copied_arguments()
    programs = [fd._finished().executor.last_program for fd in converted.definitions]
    kernels = sum(len(p.kernels) for p in programs if p is not None)
    return Row(
        graph=graph.name,
        hidden=sizes.hidden,
        length=sizes.length,
        dtype=str(dtype),
        nodes=report.nodes,
        records=sum(report.records),
        torch=len(report.evaluated),
        kernels=kernels,
        library=sum(len(p.plans) for p in programs if p is not None) - kernels,
        error=error,
        trace_s=trace_s,
        convert_s=convert_s,
        first_s=first_s,
        ours=profiled(lambda: converted(*arguments)) if torch.cuda.is_available() else None,
    )


def profiled(call: Callable[[], object]) -> Kernels:
    """The kernels of a call on the GPU, on average over `REPEATS` calls."""
    call()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(REPEATS):
            call()
        torch.cuda.synchronize()
    count = {"generated": 0, "others": 0, "library": 0}
    spent = dict.fromkeys(count, 0.0)
    by_name: dict[str, float] = {}
    for event in profile.events():
        if event.device_type != torch.autograd.DeviceType.CUDA:
            continue
        name, us = event.name, event.time_range.elapsed_us() / REPEATS
        kind = "generated" if GENERATED.match(name) else "library" if LIBRARY.search(name) else "others"
        count[kind] += 1
        spent[kind] += us
        if kind != "library":
            by_name[name] = by_name.get(name, 0.0) + us
    slowest = tuple(sorted(by_name.items(), key=lambda item: -item[1]))
    return Kernels(
        count["generated"] // REPEATS,
        count["others"] // REPEATS,
        spent["generated"],
        spent["others"],
        spent["library"],
        slowest,
    )


# ---- torch.compile -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Inductor:
    """What torch.compile makes of a block's forward and backward pass, or of a step."""

    kernels: tuple[Kernels, ...]
    cold_s: tuple[float, ...]


def inductor_of_block(block: Block, sizes: Sizes, dtype: torch.dtype) -> Inductor:
    """Both passes. The backward pass is compiled when it is first run."""
    torch._dynamo.reset()
    module = make_module(block, sizes, dtype, "cuda")
    x = inputs_of(block, sizes, dtype, "cuda").requires_grad_()
    wanted = [*module.parameters(), x]
    compiled = torch.compile(module, dynamic=False)
    start = time.perf_counter()
    result = compiled(x)
    torch.cuda.synchronize()
    middle = time.perf_counter()
    grad = torch.randn_like(result)
    torch.autograd.grad(result, wanted, grad, retain_graph=True)
    torch.cuda.synchronize()
    end = time.perf_counter()
    forward = profiled(lambda: compiled(x))
    backward = profiled(lambda: torch.autograd.grad(result, wanted, grad, retain_graph=True))
    return Inductor((forward, backward), (middle - start, end - middle))


def inductor_of_step(block: Block, sizes: Sizes, dtype: torch.dtype) -> Inductor:
    """An AdamW step over the parameters of a block."""
    torch._dynamo.reset()
    parameters = [p.detach() for p in make_module(block, sizes, dtype, "cuda").parameters()]
    lists = [parameters, *optimizer_state(parameters)]
    step = torch.tensor(3.0, device="cuda")
    compiled = torch.compile(adamw_step, dynamic=False)
    start = time.perf_counter()
    compiled(*lists, step)
    torch.cuda.synchronize()
    cold = time.perf_counter() - start
    return Inductor((profiled(lambda: compiled(*lists, step)),), (cold,))


# ---- runs --------------------------------------------------------------------------------------------------


def measure_block(
    block: Block, kinds: Sequence[str], sizes: Sizes, dtype: torch.dtype, device: str, compare: bool
) -> list[Row]:
    """The rows of a block: its passes, or a step over its parameters, by `kinds`."""
    rows: list[Row] = []
    parts: list[tuple[Callable[[], list[Graph]], Callable[..., Inductor]]] = []
    if "passes" in kinds:
        parts.append((lambda: block_graphs(block, sizes, dtype, device), inductor_of_block))
    if "adamw" in kinds:
        parts.append((lambda: [adamw_graph(block, sizes, dtype, device)], inductor_of_step))
    for make, inductor in parts:
        start = time.perf_counter()
        graphs = make()
        trace_s = (time.perf_counter() - start) / len(graphs)
        made = [measured(graph, sizes, dtype, trace_s) for graph in graphs]
        del graphs
        if compare:
            torch.cuda.empty_cache()
            # A step over equal parameters would else be served by what inductor keeps in the process.
            with torch._inductor.utils.fresh_cache():
                theirs = inductor(block, sizes, dtype)
            made = [
                Row(**{**_fields(row), "inductor": kernels, "inductor_cold_s": cold})
                for row, kernels, cold in zip(made, theirs.kernels, theirs.cold_s)
            ]
        rows += made
    return rows


def _fields(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only", default="", metavar="NAME,...", help=f"of {', '.join(BLOCKS)}, passes, adamw"
    )
    parser.add_argument(
        "--points",
        default=",".join(f"{hidden}x{length}" for hidden, length in POINTS),
        metavar="HIDDENxLENGTH,...",
        help="sizes, in the order in which they are measured",
    )
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="bf16")
    parser.add_argument(
        "--check", action="store_true", help="tiny sizes, no times: whether results are right"
    )
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin no further block after so many seconds"
    )
    parser.add_argument(
        "--output", type=Path, default=OUTPUT / "graphs", metavar="PATH", help="writes PATH.json and PATH.md"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON, too")


def run(arguments: argparse.Namespace) -> int:
    """Measure what the arguments select; 1 if a graph failed or there is no GPU to measure on."""
    on_gpu = torch.cuda.is_available()
    if not on_gpu and not arguments.check:
        print("bench graphs: torch sees no GPU here, and GPU times need one; --check runs")
        return 1
    names = [name for name in arguments.only.split(",") if name]
    unknown = [name for name in names if name not in (*BLOCKS, "passes", "adamw")]
    if unknown:
        print(f"bench graphs: there is no {', '.join(unknown)}; there are {', '.join(BLOCKS)}, passes, adamw")
        return 1
    blocks = [BLOCKS[name] for name in names if name in BLOCKS] or list(BLOCKS.values())
    kinds = [name for name in names if name not in BLOCKS] or ["passes", "adamw"]
    points = [tuple(map(int, point.split("x"))) for point in arguments.points.split(",")]
    sizes = [TINY] if arguments.check else [Sizes.of(BATCH, length, hidden) for hidden, length in points]
    device = "cuda" if on_gpu else "cpu"
    print(", ".join(f"{name} {value}" for name, value in environment().items()), flush=True)
    results = Results()
    compare = on_gpu and not arguments.check and not arguments.no_compile
    with _cold():
        _measure_all(
            blocks, kinds, sizes, DTYPES[arguments.dtype], device, compare, arguments.seconds, results
        )
    _write(results, arguments)
    return 1 if results.failures else 0


def _cold() -> Any:
    """Within it no machine code is read from disk."""
    fresh = {
        "FUSEWRIGHT_DISABLE": ",".join(filter(None, [os.environ.get("FUSEWRIGHT_DISABLE"), "nvrtc_caching"]))
    }
    return mock.patch.dict(os.environ, fresh)


def _measure_all(
    blocks: Sequence[Block],
    kinds: Sequence[str],
    sizes: Sequence[Sizes],
    dtype: torch.dtype,
    device: str,
    compare: bool,
    seconds: float,
    results: Results,
) -> None:
    begin = time.perf_counter()
    for size in sizes:
        for block in blocks:
            if time.perf_counter() - begin > seconds:
                print(f"out of time before {block.name} at {size.hidden}, {size.length}", flush=True)
                return
            try:
                rows = measure_block(block, kinds, size, dtype, device, compare)
            except Exception as error:
                traceback.print_exc(limit=-4)
                where = f"{block.name} {size.hidden}, {size.length}"
                results.failures.append({"graph": where, "error": f"{type(error).__name__}: {error}"})
                continue
            finally:
                if device == "cuda":
                    torch.cuda.empty_cache()
            results.rows += rows
            for row in rows:
                print(
                    f"{row.graph:18} {row.hidden:5} {row.length:5}  nodes {row.nodes:4}  records "
                    f"{row.records:4}  kernels {row.kernels:3}  by torch {row.library:3}  error "
                    f"{row.error:.1e}  trace {row.trace_s:.2f} s, convert {row.convert_s:.2f} s, "
                    f"first call {row.first_s:.2f} s",
                    flush=True,
                )


def _write(results: Results, arguments: argparse.Namespace) -> None:
    cells = [row.cells() for row in results.rows]
    content = {
        "environment": environment(),
        "rows": [asdict(row) for row in results.rows],
        "failures": results.failures,
    }
    write(arguments.output, content, markdown_table(HEADER, cells))
    print(f"\n{text_table(HEADER, cells)}")
    for row in results.rows:
        if (
            row.ours is not None
            and row.inductor is not None
            and row.ours.outside_us > row.inductor.outside_us
        ):
            print(f"\n{row.graph} {row.hidden}, {row.length}: slower; us by kernel")
            for title, kernels in (("fusewright", row.ours), ("inductor", row.inductor)):
                for name, us in kernels.slowest[:6]:
                    print(f"  {title:10} {us:8.1f}  {name[:90]}")
    for failure in results.failures:
        print(f"FAILED {failure['graph']}: {failure['error'].splitlines()[0][:160]}")
    if arguments.json:
        print(arguments.output.with_suffix(".json").read_text(encoding="utf-8"))
