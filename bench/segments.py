"""The segments of the corpus one by one: what the partition decided for them, and each kernel by itself.

Graphs are traced with fake tensors, so that sizes cost nothing until a kernel is timed, and as if they were
on the CPU, so that they are the same wherever this runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch._subclasses import FakeTensorMode

from bench.corpus import Block, Graph, Sizes, inputs_of, make_module, pass_graphs, step_graph
from fusewright.core.errors import NoSchedulerError
from fusewright.core.options import Options
from fusewright.core.tracing import SILENT
from fusewright.host.inputs.binding import Binder, Binding
from fusewright.host.inputs.layout import Layouts
from fusewright.host.inputs.memory import Memory
from fusewright.host.inputs.memory_checks import spanned_elements
from fusewright.host.kernels.bundles import Bundles
from fusewright.host.program.ir import LaunchKernel
from fusewright.host.program.plan import LaunchPlan, in_place_candidates
from fusewright.host.program.workspaces import ZeroedWorkspace
from fusewright.host.reuse.stable_sizes import StableSizes
from fusewright.ir import Fusion, Scalar, TensorView, Val
from fusewright.runtime.arguments import Pointer, Value, Workspace
from fusewright.runtime.compiled_kernel import CompiledKernel
from fusewright.runtime.compiler import KernelCompiler, index_dtype_of
from fusewright.runtime.targets import Target
from fusewright.schedulers import Cost, Facts, Proposal, default_registry, type_name
from fusewright.schedulers.base import Reject
from fusewright.schedulers.cost import CostModel
from fusewright.segment import NO_EXCLUSIONS, Call, Partitions, Segment, SegmentedFusion, State, Trial
from fusewright.segment.bundles import launches
from fusewright.segment.draft import Draft
from fusewright.segment.recompute import border_inputs
from fusewright.sym import Symbol, evaluate
from fusewright.torch_compile import from_fx
from fusewright.torch_compile.recording import meta_of

# Cuts of one segment that are tried until a scheduler takes both parts.
CUTS_TRIED = 6
# Tensors of more bytes than the L2 caches of the described GPUs hold.
FLUSHED_BYTES = 256 * 2**20
# Clock cycles that the GPU waits in front of a timed launch, so that all of it is enqueued by then.
WAIT_CYCLES = 200_000
# Timed launches, or fewer of a kernel that takes long.
REPEATS, LONG_REPEATS, LONG_US = 21, 7, 1000.0


# ---- graphs ------------------------------------------------------------------------------------------------


def fake_graphs(block: Block, sizes: Sizes, dtype: torch.dtype) -> list[Graph]:
    """Both passes of a block and an AdamW step over its parameters, of fake tensors."""
    module = make_module(block, sizes, dtype, "meta")
    with FakeTensorMode(allow_non_fake_inputs=True):
        for part in module.modules():
            for name, parameter in part._parameters.items():
                if parameter is not None:
                    part._parameters[name] = nn.Parameter(_like(parameter))
            for name, buffer in part._buffers.items():
                if buffer is not None:
                    part._buffers[name] = _like(buffer)
        passes = pass_graphs(block.name, module, inputs_of(block, sizes, dtype, "cpu"))
        return [*passes, step_graph(block.name, module)]


def _like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype)


# ---- a fusion at the sizes of one call ---------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Chosen:
    """A segment with what its scheduler proposes for a call.

    Attributes:
        site: the fusion that it is part of, at the sizes of the call.
    """

    site: Site
    segment: Segment
    facts: Facts
    proposal: Proposal
    cost: Cost

    @property
    def scheduler(self) -> str:
        return type_name(self.segment.scheduler.type)

    @cached_property
    def key(self) -> Hashable:
        """Equal for kernels that do the same work."""
        sizes = tuple((symbol.name, size) for symbol, size in self.facts.sizes.items())
        return self.segment.text, self.scheduler, repr(self.proposal.params), sizes, self.facts.strides

    @cached_property
    def plan(self) -> LaunchPlan:
        return self.site.plan(self)


@dataclass(frozen=True, eq=False)
class Decision:
    """A choice between two sets of kernels for the same work.

    Attributes:
        kind: "merge" (of two groups, by structure), "split", "redefinition", "move", "horizontal".
        text: for people.
        first, second: without and with the change; for a merge the parts and the whole.
        taken: whether the second was chosen.
        together: whether the second is one launch.
    """

    kind: str
    text: str
    first: tuple[Chosen, ...]
    second: tuple[Chosen, ...]
    taken: bool
    together: bool = False


class Site:
    """A fusion at the sizes of one call, whose tensors need no memory."""

    def __init__(self, fusion: Fusion, binding: Binding, stable: frozenset[Symbol], device: Device) -> None:
        self.fusion = fusion
        self.device = device
        self.binding = binding
        self.memory = Memory(fusion, binding, Layouts(fusion))
        self._stable = stable

    @classmethod
    def of_inputs(cls, fusion: Fusion, inputs: Sequence[Any], device: Device) -> Site:
        binder = Binder(fusion)
        shapes = binder.shapes(binder.flatten(inputs), None)
        spans = list(map(spanned_elements, shapes.shapes, shapes.strides))
        binding = binder._binding(shapes, spans, (256,) * len(inputs))
        return cls(fusion, binding, StableSizes().with_call(binding.sizes), device)

    @classmethod
    def of_segment(cls, chosen: Chosen) -> Site:
        """The segment as a fusion of its own."""
        fusion, facts = chosen.segment.fusion, chosen.facts
        shapes = tuple(
            tuple(evaluate(e, facts.sizes) for e in v.extents) if isinstance(v, TensorView) else ()
            for v in fusion.inputs
        )
        binding = Binding(
            dict(facts.sizes),
            {},
            shapes,
            facts.strides,
            chosen.site.binding.device,
            tuple(map(spanned_elements, shapes, facts.strides)),
            facts.alignment,
            facts.index_dtype,
        )
        return cls(fusion, binding, facts.stable, chosen.site.device)

    def facts(self, segment: Segment) -> Facts:
        return self.memory.facts_of(segment, self.binding.index_dtype, self._stable)

    def call(self, watch: Callable[[Trial, State, State], None] | None = None) -> Call:
        def start(segments: Sequence[Segment]) -> None:
            steps = [(segment.inputs, segment.outputs) for segment in segments]
            self.memory.place(in_place_candidates(self.fusion, steps, self.memory))

        hardware = self.device.target.hardware
        return Call(tuple(self.binding.sizes.values()), start, self.facts, hardware, watch=watch)

    def chosen(self, segment: Segment, proposal: Proposal) -> Chosen:
        facts = self.facts(segment)
        hardware = self.device.target.hardware
        estimate = proposal.estimate or CostModel(segment.fusion).estimate(facts, hardware)
        return Chosen(self, segment, facts, proposal, estimate())

    def plan(self, chosen: Chosen) -> LaunchPlan:
        segment, params = chosen.segment, chosen.proposal.params
        kernel = self.device.compiler.compile(
            segment.fusion,
            segment.scheduler,
            params,
            self.device.target.hardware,
            index_dtype_of(params, self.binding.index_dtype),
            tracer=SILENT,
            text=segment.text,
        )
        values = (*segment.inputs, *segment.outputs)
        op = LaunchKernel(segment.index, kernel, values, segment.outputs, segment.bases)
        return LaunchPlan(op, segment, self.device.target)


class Device:
    """What kernels are made for and run on."""

    def __init__(self, target: Target, compiler: KernelCompiler) -> None:
        self.target = target
        self.compiler = compiler
        self.bundles = Bundles(compiler, target)


# ---- decisions ---------------------------------------------------------------------------------------------


@dataclass
class Collection:
    """The distinct segments of graphs at given sizes, and the decisions about them."""

    segments: dict[Hashable, tuple[str, Chosen]] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    _known: set[Hashable] = field(default_factory=set)
    _seen: frozenset[Hashable] = frozenset()

    def seen(self, keys: Iterable[Hashable]) -> None:
        """Segments that are not added."""
        self._seen = frozenset(keys)

    def add_graph(self, graph: Graph, device: Device) -> None:
        """Partitions each definition of the graph."""
        for step in from_fx(graph.module)._steps:
            if not hasattr(step, "fd"):
                continue
            inputs = [meta_of(node) for node in step.inputs]
            fusion = step.fd._finished().executor.fusion
            self._add_fusion(graph.name, Site.of_inputs(fusion, inputs, device))

    def _add_fusion(self, graph: str, site: Site) -> None:
        def watch(trial: Trial, before: State, after: State) -> None:
            kept_before, kept_after = set(before.segments), set(after.segments)
            first = _of_state(site, before, kept_after)
            second = _of_state(site, after, kept_before)
            kind = "move" if "in another kernel" in trial.change else "redefinition"
            kind = "split" if " without " in trial.change else kind
            self._add_decision(Decision(kind, f"{graph}: {trial.change}", first, second, trial.kept))

        planned = Partitions(site.fusion, default_registry()).select(site.call(watch), SILENT)
        found = [site.chosen(s, p) for s, p in zip(planned.partition.segments, planned.proposals)]
        for members in planned.partition.launches:
            together = tuple(found[i] for i in members)
            if len(together) > 1:
                text = f"{graph}: {len(together)} segments in one launch"
                self._add_decision(Decision("horizontal", text, together, together, True, together=True))
        for pair in _launched_apart(planned.partition):
            apart = tuple(found[i] for i in pair)
            text = f"{graph}: 2 segments in one launch"
            self._add_decision(Decision("horizontal", text, apart, apart, False, together=True))
        for chosen in found:
            if _is_kernel(chosen) and chosen.key not in self.segments and chosen.key not in self._seen:
                self.segments[chosen.key] = graph, chosen
                for decision in _cuts(graph, chosen):
                    self._add_decision(decision)

    def _add_decision(self, decision: Decision) -> None:
        """Unless an equal one is known, or a library computes a part of it."""
        sides = decision.first, decision.second
        if not all(side and all(map(_is_kernel, side)) for side in sides):
            return
        key = decision.kind, *(frozenset(chosen.key for chosen in side) for side in sides)
        if key not in self._known:
            self._known.add(key)
            self.decisions.append(decision)


def _is_kernel(chosen: Chosen) -> bool:
    return chosen.segment.evaluated is None and not chosen.segment.bases


def _launched_apart(partition: SegmentedFusion) -> Iterator[tuple[int, int]]:
    """Pairs of segments that might be one launch, if that paid, and are not."""
    single = {i for members in partition.launches if len(members) == 1 for i in members}
    free = [Cost(0, 0.0, 0.0) for _ in partition.segments]
    for members in launches(partition.fusion, partition.segments, free):
        apart = [i for i in members if i in single]
        yield from zip(apart[::2], apart[1::2])


def _of_state(site: Site, state: State, others: set[Segment]) -> tuple[Chosen, ...]:
    pairs = zip(state.segments, state.proposals)
    return tuple(site.chosen(segment, proposal) for segment, proposal in pairs if segment not in others)


def _cuts(graph: str, chosen: Chosen) -> Iterator[Decision]:
    """The segment beside two that compute the same: cut where the least crosses, if schedulers take both."""
    site = Site.of_segment(chosen)
    draft = Draft(site.fusion, default_registry())
    nodes = draft.nodes
    cuts = [(_crossing(site, nodes[i:]), i) for i in range(1, len(nodes))]
    for _, i in sorted(cuts)[:CUTS_TRIED]:
        try:
            segments = draft.segments([nodes[:i], nodes[i:]], NO_EXCLUSIONS)
        except NoSchedulerError:
            continue
        if len(segments) < 2:
            continue
        call = site.call()
        call.start(segments)
        answers = [call.plan(segment) for segment in segments]
        if any(isinstance(answer, Reject) for answer in answers):
            continue
        parts = tuple(site.chosen(s, a) for s, a in zip(segments, answers))  # type: ignore[arg-type]
        names = ", ".join(v.name for v in segments[0].outputs)
        yield Decision("merge", f"{graph}: {chosen.scheduler} cut behind {names}", parts, (chosen,), True)
        return


def _crossing(site: Site, group: Sequence[Any]) -> int:
    """Bytes that cross the border in front of a group."""
    sizes = site.memory.sizes
    total = 0
    for tensor in border_inputs(group):
        count = tensor.dtype.size
        for extent in tensor.extents:
            count *= evaluate(extent, sizes)
        total += count
    return total


# ---- kernels by themselves ---------------------------------------------------------------------------------


def launch_alone(plan: LaunchPlan, memory: Memory, target: Target) -> Callable[[], object]:
    """A launch of the plan on tensors of its own, and nothing but the launch."""
    op = plan.op
    names = plan.bound(
        memory,
        lambda kernel, argument, workspace, count, grid: ZeroedWorkspace(
            count, workspace.dtype.torch, target.device
        ),
        SILENT,
    )
    stream = target.stream()
    tensors: dict[Val, torch.Tensor] = {}
    kept: list[torch.Tensor] = []
    arguments: list[Any] = []
    for j, (param, source) in enumerate(zip(op.kernel.kernel.params, op.kernel.arguments)):
        if isinstance(source, Pointer):
            value = op.values[source.slot]
            if value not in tensors:
                tensors[value] = _tensor(value, memory, target.device)
            arguments.append(tensors[value])
        elif isinstance(source, Workspace):
            work = f"work{op.segment}_{j}"
            arguments.append(
                names[f"alloc_{work}"](stream)
                if source.zeroed
                else torch.empty(names[f"shape_{work}"], dtype=source.dtype.torch, device=target.device)
            )
        elif isinstance(source, Value):
            arguments.append(target.argument(param, _number(op.values[source.slot], memory)))  # type: ignore[arg-type]
        else:
            arguments.append(names[f"c{op.segment}_{j}"])
    kept = [a for a in arguments if isinstance(a, torch.Tensor)]
    if target.takes_pointers:
        arguments = [a.data_ptr() if isinstance(a, torch.Tensor) else a for a in arguments]
    launch = names[f"launch_{op.segment}"]

    def run(_: Sequence[torch.Tensor] = tuple(kept)) -> object:
        return launch(stream, arguments)

    return run


def _tensor(value: Val, memory: Memory, device: torch.device) -> torch.Tensor:
    """Random floats, and integers that are 0, so that any index is in range."""
    shape, strides, _ = memory.of(value)
    spanned = sum((size - 1) * stride for size, stride in zip(shape, strides)) + 1
    made = torch.zeros(max(1, spanned), dtype=value.dtype.torch, device=device)
    if made.dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        made.normal_()
    return made.as_strided(shape, strides)


def _number(value: Val, memory: Memory) -> Any:
    if isinstance(value, Scalar):
        if value.value is not None:
            return value.value
        if value.extent is not None:
            return evaluate(value.extent, memory.sizes)
    return 0.5 if value.dtype.is_float else 1


class Clock:
    """Times launches on the GPU, with other data in the L2 cache, as `triton.testing.do_bench` leaves it.

    The GPU waits in front of a launch until all of it is enqueued, so that no time of the CPU is counted.
    """

    def __init__(self) -> None:
        self._flushed = torch.empty(FLUSHED_BYTES, dtype=torch.int8, device="cuda")
        self._events = [
            (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
            for _ in range(REPEATS)
        ]

    def microseconds(self, launch: Callable[[], object]) -> tuple[float, float]:
        """The median, and half of the spread between the quartiles."""
        once = self._times(launch, 2)
        times = self._times(launch, LONG_REPEATS if min(once) > LONG_US else REPEATS)
        quartiles = statistics.quantiles(times, n=4)
        return statistics.median(times), (quartiles[2] - quartiles[0]) / 2

    def _times(self, launch: Callable[[], object], count: int) -> list[float]:
        events = self._events[:count]
        for start, end in events:
            self._flushed.zero_()
            torch.cuda._sleep(WAIT_CYCLES)
            start.record()
            launch()
            end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) * 1e3 for start, end in events]


def together(decision: Decision) -> list[tuple[LaunchPlan, Memory]]:
    """The launches of a decision's second side, several segments of which are one if they can be."""
    site = decision.second[0].site
    plans = [chosen.plan for chosen in decision.second]
    joined = site.device.bundles.joined(plans, [tuple(range(len(plans)))], site.memory, SILENT)
    return [(plan, site.memory) for plan in joined if isinstance(plan, LaunchPlan)]


def kernel_facts(
    kernel: CompiledKernel, plan: LaunchPlan, memory: Memory, device: Device
) -> Mapping[str, Any]:
    """What a fit of the model may need of a kernel."""
    shape = plan.shape(memory)
    found: dict[str, Any] = {"kernel": kernel.name}
    if shape is not None:
        found |= {"grid": shape.grid, "block": shape.block, "shared": shape.shared_bytes}
    if device.target.takes_pointers:
        resources = kernel.resources()
        found |= {
            "registers": resources.registers,
            "spilled": resources.spill_stores + resources.spill_loads,
            "static_shared": resources.static_shared,
        }
    return found


def make_device(device: torch.device) -> Device:
    """The GPU, or the simulator of a described one."""
    from fusewright.runtime.targets import CudaTarget, SimulatedTarget  # noqa: PLC0415

    options = Options.from_environment()
    compiler = KernelCompiler(options)
    if device.type == "cuda":
        return Device(CudaTarget(device, options), compiler)
    return Device(SimulatedTarget(options), compiler)
