"""The cost model beside the GPU: estimates of segments and the partition's decisions, measured.

Each distinct segment of the corpus (`bench.corpus`: both passes of the blocks, and AdamW steps) is timed by
itself with the L2 cache flushed, beside the estimate of the proposal that the partition compared it by.

A decision is a choice between two sets of kernels for the same work, both of which are timed as the sum of
their kernels, each by itself:

merge: two groups that the search merged, beside the same two groups cut where the least crosses.
split, redefinition, move: what the partition tried for the sizes of the call, whether it stayed or not.
horizontal: several independent segments as one launch, beside a launch for each.

A decision is right if what was chosen is not slower. Where both take the same time within `TIE`, which is
what repeated measurements differ by, either choice is right. `--check` runs tiny sizes in the simulator,
without times.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bench.corpus import BLOCKS, Sizes
from bench.report import OUTPUT, Cell, environment, markdown_table, text_table, write
from bench.segments import (
    Chosen,
    Clock,
    Collection,
    Decision,
    Device,
    fake_graphs,
    kernel_facts,
    launch_alone,
    make_device,
    together,
)
from fusewright.core.tracing import SILENT
from fusewright.host.inputs.memory import Memory
from fusewright.host.program.plan import LaunchPlan
from fusewright.ir import Reduction, Scan, TensorView
from fusewright.runtime.rtc_kernel import RtcKernel
from fusewright.schedulers.cost import Traffic

#: Of a decision: the difference of times, as a share of the longer, within which either choice is right.
TIE = 0.03
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
#: batch x length x hidden, and the type, in the order in which they are measured.
POINTS = (
    "8x1024x768-bf16",
    "8x2048x4096-bf16",
    "8x1024x4096-fp32",
    "1x256x768-bf16",
    "8x2048x768-fp32",
    "2x512x4096-bf16",
)
TINY = Sizes(2, 16, 64, 4)
HEADER = ("scheduler", "segments", "median error", "90th percentile", "within 15%", "median ratio")
SEGMENT_HEADER = ("scheduler", "graph", "point", "MB", "estimate us", "us", "ratio")
DECISION_HEADER = ("decision", "point", "measured", "right", "ties", "wrong")


@dataclass
class Timed:
    """A kernel and its time: the median and half of the quartiles' distance. None: not measured."""

    facts: dict[str, Any]
    us: float | None = None
    spread_us: float | None = None


@dataclass
class Results:
    segments: list[dict[str, Any]] = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class Measurement:
    """Times each distinct kernel once."""

    def __init__(self, device: Device, clock: Clock | None, runs: bool) -> None:
        self._device = device
        self._clock = clock
        self._runs = runs
        self._timed: dict[Hashable, Timed] = {}
        self.failures: list[str] = []

    def load(self, plans: Sequence[LaunchPlan]) -> None:
        """Compiles kernels side by side."""
        self._device.target.load([plan.op.kernel for plan in plans], SILENT)

    def of(self, key: Hashable, plan: LaunchPlan, memory: Memory) -> Timed:
        if key not in self._timed:
            self._timed[key] = self._time(plan, memory)
        return self._timed[key]

    def _time(self, plan: LaunchPlan, memory: Memory) -> Timed:
        timed = Timed(dict(kernel_facts(plan.op.kernel, plan, memory, self._device)))
        if not self._runs:
            return timed
        try:
            launch = launch_alone(plan, memory, self._device.target)
            if self._clock is None:
                launch()
            else:
                timed.us, timed.spread_us = self._clock.microseconds(launch)
        except Exception as error:
            self.failures.append(f"{plan.op.kernel.name}: {type(error).__name__}: {error}")
        return timed


# ---- rows --------------------------------------------------------------------------------------------------


def _segment_row(point: str, graph: str, chosen: Chosen, timed: Timed) -> dict[str, Any]:
    segment, facts = chosen.segment, chosen.facts
    traffic = Traffic(segment.fusion)
    nodes = [node for node in segment.fusion.nodes if not node.is_scalar]

    def described(value: Any) -> dict[str, Any]:
        shape, strides, _ = chosen.site.memory.of(value)
        return {"shape": shape, "strides": strides, "bytes": value.dtype.size}

    return {
        "point": point,
        "graph": graph,
        "scheduler": chosen.scheduler,
        "read": traffic.read(facts),
        "written": traffic.written(facts),
        "bytes": chosen.cost.bytes,
        "estimate_us": chosen.cost.seconds * 1e6,
        "least_us": chosen.cost.least_seconds * 1e6,
        "us": timed.us,
        "spread_us": timed.spread_us,
        **timed.facts,
        "index": facts.index_dtype.name,
        "nodes": len(nodes),
        "operations": dict(Counter(node.label for node in nodes)),
        "reductions": sum(isinstance(node, (Reduction, Scan)) for node in nodes),
        "inputs": [described(v) for v in segment.inputs if isinstance(v, TensorView)],
        "outputs": [described(v) for v in segment.outputs],
        "params": repr(chosen.proposal.params),
        "reason": getattr(chosen.proposal.params, "reason", ""),
        "text": segment.text,
    }


def _decision_row(point: str, decision: Decision, measurement: Measurement) -> dict[str, Any]:
    sides = []
    for i, side in enumerate((decision.first, decision.second)):
        if decision.together and i:
            plans = together(decision)
            keys: list[Hashable] = [("together", i, *(c.key for c in side)) for i in range(len(plans))]
        else:
            plans = [(chosen.plan, chosen.site.memory) for chosen in side]
            keys = [chosen.key for chosen in side]
        timed = [measurement.of(key, *plan) for key, plan in zip(keys, plans)]
        times = [each.us for each in timed]
        sides.append(
            {
                "estimate_us": sum(chosen.cost.seconds for chosen in side) * 1e6,
                "us": None if None in times else sum(times),  # type: ignore[arg-type]
                "kernels": [
                    {
                        "kernel": each.facts["kernel"],
                        "us": each.us,
                        **({} if len(plans) != len(side) else {"estimate_us": c.cost.seconds * 1e6}),
                    }
                    for each, c in zip(timed, side)
                ],
                "schedulers": [chosen.scheduler for chosen in side],
            }
        )
    row = {
        "point": point,
        "kind": decision.kind,
        "text": decision.text,
        "taken": decision.taken,
        "without": sides[0],
        "with": sides[1],
    }
    row["verdict"] = verdict(sides[0]["us"], sides[1]["us"], decision.taken)
    return row


def verdict(without: float | None, with_: float | None, taken: bool) -> str | None:
    """Whether a decision was "right", "wrong", or about a "tie"; None if not measured."""
    if without is None or with_ is None:
        return None
    if abs(without - with_) <= TIE * max(without, with_):
        return "tie"
    return "right" if taken == (with_ < without) else "wrong"


# ---- runs --------------------------------------------------------------------------------------------------


def _measure_point(
    point: str, names: Sequence[str], device: Device, measurement: Measurement, known: set[Hashable]
) -> Results:
    sizes, dtype = _point(point)
    found = Collection()
    found.seen(known)
    for name in names:
        for graph in fake_graphs(BLOCKS[name], sizes, dtype):
            found.add_graph(graph, device)
    known.update(found.segments)
    chosen = [c for _, c in found.segments.values()]
    for decision in found.decisions:
        chosen += [*decision.first, *decision.second]
    plans = [c.plan for c in chosen]
    for decision in found.decisions:
        if decision.together:
            plans += [plan for plan, _ in together(decision)]
    measurement.load(plans)
    results = Results()
    for key, (source, each) in found.segments.items():
        timed = measurement.of(key, each.plan, each.site.memory)
        results.segments.append(_segment_row(point, source, each, timed))
    for decision in found.decisions:
        if decision.together and len(together(decision)) == len(decision.second):
            continue  # these cannot be one kernel, whoever decides
        results.decisions.append(_decision_row(point, decision, measurement))
    return results


def _point(text: str) -> tuple[Sizes, torch.dtype]:
    """Sizes and type of `8x1024x768-bf16` or `tiny-bf16`."""
    sizes, _, dtype = text.partition("-")
    if sizes == "tiny":
        return TINY, DTYPES[dtype]
    batch, length, hidden = map(int, sizes.split("x"))
    return Sizes.of(batch, length, hidden), DTYPES[dtype]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default="", metavar="NAME,...", help=f"of {', '.join(BLOCKS)}")
    parser.add_argument(
        "--points",
        default=",".join(POINTS),
        metavar="BATCHxLENGTHxHIDDEN-DTYPE,...",
        help="sizes and types, in the order in which they are measured",
    )
    parser.add_argument("--check", action="store_true", help="tiny sizes, no times; runs in the simulator")
    parser.add_argument(
        "--seconds", type=float, default=120.0, help="begin no further point after so many seconds"
    )
    parser.add_argument(
        "--output", type=Path, default=OUTPUT / "cost", metavar="PATH", help="writes PATH.json and PATH.md"
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure what the arguments select; 1 if a kernel failed or there is no GPU to measure on."""
    on_gpu = torch.cuda.is_available()
    if not on_gpu and not arguments.check:
        print("bench cost: torch sees no GPU here, and GPU times need one; --check runs")
        return 1
    names = [name for name in arguments.only.split(",") if name] or list(BLOCKS)
    unknown = [name for name in names if name not in BLOCKS]
    if unknown:
        print(f"bench cost: there is no {', '.join(unknown)}; there are {', '.join(BLOCKS)}")
        return 1
    points = ["tiny-bf16"] if arguments.check else arguments.points.split(",")
    facts = environment()
    print(", ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    device = make_device(torch.device("cuda", 0) if on_gpu else torch.device("cpu"))
    clock = Clock() if on_gpu and not arguments.check else None
    if clock is not None:
        facts |= {"nothing_us": clock.microseconds(lambda: None)[0], "empty_us": _empty_us(clock)}
        print(f"nothing {facts['nothing_us']:.2f} us, an empty kernel {facts['empty_us']:.2f} us")
    measurement = Measurement(device, clock, runs=True)
    results = Results()
    known: set[Hashable] = set()
    begin = time.perf_counter()
    for point in points:
        if time.perf_counter() - begin > arguments.seconds:
            print(f"out of time before {point}", flush=True)
            break
        start = time.perf_counter()
        found = _measure_point(point, names, device, measurement, known)
        results.segments += found.segments
        results.decisions += found.decisions
        seconds = time.perf_counter() - start
        count = f"{len(found.segments)} segments, {len(found.decisions)} decisions"
        print(f"{point}: {count} in {seconds:.1f} s", flush=True)
    results.failures = measurement.failures
    _write(results, facts, arguments.output)
    return 1 if results.failures else 0


def _empty_us(clock: Clock) -> float:
    kernel = RtcKernel('extern "C" __global__ void nothing() {}', "nothing")
    return clock.microseconds(lambda: kernel.launch(1, 32, []))[0]


# ---- tables ------------------------------------------------------------------------------------------------


def summary(rows: Sequence[dict[str, Any]]) -> list[tuple[Cell, ...]]:
    """Errors of the estimates, over all and by scheduler."""
    measured = [row for row in rows if row["us"] is not None]
    names = ["all", *sorted({row["scheduler"] for row in measured})]
    table: list[tuple[Cell, ...]] = []
    for name in names:
        ratios = [r["estimate_us"] / r["us"] for r in measured if name in ("all", r["scheduler"])]
        if not ratios:
            continue
        errors = sorted(abs(ratio - 1) for ratio in ratios)
        table.append(
            (
                name,
                len(ratios),
                statistics.median(errors),
                errors[min(len(errors) - 1, int(0.9 * len(errors)))],
                sum(error <= 0.15 for error in errors) / len(errors),
                statistics.median(ratios),
            )
        )
    return table


def decision_summary(rows: Sequence[dict[str, Any]]) -> list[tuple[Cell, ...]]:
    table: list[tuple[Cell, ...]] = []
    for kind in ["all", *sorted({row["kind"] for row in rows})]:
        verdicts = [r["verdict"] for r in rows if kind in ("all", r["kind"]) and r["verdict"] is not None]
        if verdicts:
            counts = Counter(verdicts)
            share = 1 - counts["wrong"] / len(verdicts)
            table.append(
                (kind, f"{share:.1%} right", len(verdicts), *(counts[v] for v in ("right", "tie", "wrong")))
            )
    return table


def _write(results: Results, facts: dict[str, Any], output: Path) -> None:
    content = {
        "environment": facts,
        "segments": results.segments,
        "decisions": results.decisions,
        "failures": results.failures,
    }
    estimates, decisions = summary(results.segments), decision_summary(results.decisions)
    tables = [(HEADER, estimates), (DECISION_HEADER, decisions)]
    write(output, content, "\n\n".join(markdown_table(header, rows) for header, rows in tables))
    rows = sorted(results.segments, key=lambda row: (row["scheduler"], row["point"], row["graph"]))
    cells = [
        (
            row["scheduler"],
            row["graph"],
            row["point"],
            (row["read"] + row["written"]) / 1e6,
            row["estimate_us"],
            row["us"],
            None if row["us"] is None else row["estimate_us"] / row["us"],
        )
        for row in rows
    ]
    print(text_table(SEGMENT_HEADER, cells))
    for header, table in tables:
        print(f"\n{text_table(header, table)}")
    for row in results.decisions:
        if row["verdict"] == "wrong":
            sides = ", ".join(
                f"{name} {row[name]['us']:.1f} us (estimate {row[name]['estimate_us']:.1f})"
                for name in ("without", "with")
            )
            choice = "taken" if row["taken"] else "not taken"
            print(f"wrong: {row['point']} {row['kind']} {choice}: {sides}; {row['text']}")
    for failure in results.failures:
        print(f"FAILED {failure.splitlines()[0][:200]}")
