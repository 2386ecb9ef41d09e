"""`fd.segment`: the kernels of a definition as separate definitions, and calls that run them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from fusewright.core.call_sites import CallSite
from fusewright.core.errors import (
    ArgumentTypeError,
    ExecutionOrderError,
    FusewrightError,
    ParamsError,
    ScheduleError,
)
from fusewright.core.once import OnceCache
from fusewright.core.options import Options
from fusewright.core.tracing import Tracer
from fusewright.frontend.inputs import Device, Inputs, device_named, flattened, listed
from fusewright.frontend.recorded.fusion_schedules import FusionSchedules
from fusewright.frontend.recorded.origins import explained
from fusewright.frontend.scheduling.params import EditableParams, GivenFields
from fusewright.frontend.scheduling.user_schedules import GivenSegments
from fusewright.frontend.segments.borders import borders_at_states
from fusewright.frontend.segments.records import (
    SegmentOutput,
    Whole,
    WrittenSegment,
    parent_map,
    write_segment,
)
from fusewright.host import FusionExecutor
from fusewright.host.inputs.binding import Binder
from fusewright.host.kernels.finished import no_kernel
from fusewright.host.profile import FusionProfile, combined_profile
from fusewright.host.program.programs import copy_into
from fusewright.ir import RandomState, TensorView, Val
from fusewright.ops import describe_argument
from fusewright.runtime.random_states import random_states
from fusewright.schedulers import Registry
from fusewright.segment import Segment
from fusewright.sym import Expr

if TYPE_CHECKING:
    from fusewright.frontend.definition import FusionDefinition

#: For a segment, by its place or its definition: params of its scheduler, a dict or JSON text of some of
#: their fields, or a function of the definition that schedules it with `fd.sched`.
GivenSchedules = Mapping[Any, Any]

#: What a segment returns, of the definition of the segment, inputs, device and whether outputs may be views.
SegmentCall = Callable[["FusionDefinition", list[Any], torch.device | None, bool], list[torch.Tensor]]

# Signatures of calls whose inputs are known to fit, kept for each segmented definition.
MAX_CHECKED = 4096


@dataclass(frozen=True, slots=True)
class _Step:
    """One segment of a call.

    Attributes:
        reads, writes: where its arguments and its results are stored.
        frees: the values that nothing reads after it.
        views: whether its outputs may be views of its arguments.
        placed: whether its arguments determine where it runs.
    """

    definition: FusionDefinition
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    frees: tuple[int, ...]
    views: bool
    placed: bool


class _Partition:
    """The segments of a definition, while definitions are made of them."""

    def __init__(self, leaf: FusionSchedules, segments: Sequence[Segment]) -> None:
        self.leaf = leaf
        self.fusion = leaf.fusion
        self.whole = Whole(leaf)
        segments = borders_at_states(segments, leaf.fusion, leaf.state.index.__contains__)
        self.segments = tuple(segments)
        self.definitions: list[FusionDefinition] = []
        self.written: list[WrittenSegment] = []
        self.outputs: list[list[SegmentOutput]] = []
        self.maps: list[Mapping[int, int]] = []
        #: outputs that are changes of a tensor in memory, which nobody else reads -> that tensor
        self.bases = {tensor: base for s in segments for tensor, base in s.bases.items()}
        #: the last segment that reads a tensor
        self.last_read = {
            v: i
            for i, s in enumerate(segments)
            for v in (*s.inputs, *s.bases.values())
            if isinstance(v, TensorView)
        }
        self.home = {o.tensor: o.alias for o in self.fusion.outputs if o.alias is not None}
        self.in_place = {
            tensor: home
            for i, s in enumerate(segments)
            for tensor in s.outputs
            if (home := self.home.get(tensor)) is not None
            and tensor not in self.bases
            # Whoever comes later reads what was there before.
            and self.last_read.get(home, -1) <= i
        }
        self._final = frozenset(self.fusion.output_tensors())

    def handed_on(self, index: int) -> list[SegmentOutput]:
        """What a segment hands on, and how."""
        return [
            SegmentOutput(
                tensor, self.written_into(tensor), tensor in self._final and tensor not in self.last_read
            )
            for tensor in self.segments[index].outputs
        ]

    def written_into(self, tensor: TensorView) -> TensorView | None:
        """The tensor in whose memory a segment makes this one."""
        return self.bases.get(tensor, self.in_place.get(tensor))

    def add(self, definition: FusionDefinition, written: WrittenSegment, index: int) -> None:
        outputs = self.handed_on(index)
        made = definition._complete().fusion.outputs
        for output, own in zip(outputs, made):
            if output.alias is not None:
                self.whole.tensors[output.tensor] = self.whole.tensors[output.alias]
            else:
                self.whole.keep_layout(output.tensor, own.tensor)
        self.definitions.append(definition)
        self.written.append(written)
        self.outputs.append(outputs)
        self.maps.append(parent_map(self.whole, written, outputs))


class Segmentation:
    """The segments of one definition, and the program of calls that run them one after another.

    Attributes:
        definitions: one per segment, in execution order.
        maps: for each of them, from the states of its inputs and outputs to those of the whole definition.
        last_used: for each state that is passed to a segment, the number of the last segment that takes it.
    """

    def __init__(self, partition: _Partition) -> None:
        self.definitions = tuple(partition.definitions)
        self.maps = dict(zip(self.definitions, partition.maps))
        self.last_used = {
            partition.whole.index(argument): i
            for i, written in enumerate(partition.written)
            for argument in written.arguments
        }
        #: the place of a segment's kernel in its definition: an update comes after a copy, which never runs
        self.kernel_of = {
            definition: int(bool(segment.bases))
            for definition, segment in zip(self.definitions, partition.segments)
        }
        #: the segments that torch computes
        self._evaluated = {
            definition
            for definition, segment in zip(self.definitions, partition.segments)
            if segment.evaluated is not None
        }
        self._leaf = partition.leaf
        self._binder = Binder(partition.fusion)
        #: where a call whose inputs fit runs, by its signature
        self._checked: OnceCache[Hashable, torch.device] = OnceCache(MAX_CHECKED)
        self._lay_out(partition)

    def _lay_out(self, partition: _Partition) -> None:
        """Gives everything that a call holds a place: inputs, then sizes and scalars, then tensors."""
        fusion = partition.fusion
        slots: dict[Val | Expr, int] = {value: i for i, value in enumerate(fusion.inputs)}
        axes = [
            (i, d) for i, v in enumerate(fusion.inputs) if isinstance(v, TensorView) for d in range(v.ndim)
        ]
        #: (slot, input, dimension) of sizes
        self._sizes: list[tuple[int, int, int]] = []
        for argument in (a for written in partition.written for a in written.arguments):
            if isinstance(argument, Expr) and argument not in slots:
                slots[argument] = len(slots)
                self._sizes.append((slots[argument], *axes[-1 - partition.leaf.state.index[argument]]))
        #: slots of the seed and the offset of each state that is drawn
        self._random: list[tuple[int, int]] = []
        wanted = {a for written in partition.written for a in written.arguments}
        for node in fusion.nodes:
            if isinstance(node, RandomState) and wanted.intersection(node.outputs):
                slots.update({v: len(slots) + i for i, v in enumerate(node.outputs)})
                self._random.append((slots[node.outputs[0]], slots[node.outputs[1]]))
        for segment in partition.segments:
            for tensor in segment.outputs:
                home = partition.written_into(tensor)
                slots[tensor] = len(slots) if home is None else slots[home]
        self._count = max(slots.values(), default=-1) + 1
        #: what is returned, and which inputs are written at the end: (to, from)
        copied = {t: home for t, home in partition.home.items() if t not in partition.in_place}
        inputs = set(fusion.inputs)
        self._returned = [
            slots[copied.get(o.tensor, o.tensor) if o.tensor not in inputs else o.tensor]
            for o in fusion.outputs
            if not o.hidden
        ]
        self._copies = [(slots[home], slots[tensor]) for tensor, home in copied.items()]
        #: inputs that are copied to others, and written
        written = set(partition.home.values())
        self._snapshots = [slots[t] for t in copied if t in inputs and t in written]
        kept = {*self._returned, *(source for _, source in self._copies), *range(len(fusion.inputs))}
        last = {slots[a]: i for i, text in enumerate(partition.written) for a in text.arguments}
        self._steps = []
        for i, (definition, text) in enumerate(zip(partition.definitions, partition.written)):
            outputs = partition.outputs[i]
            reads = tuple([slots[argument] for argument in text.arguments])
            writes = tuple([slots[o.tensor] for o in outputs if o.alias is None])
            frees = [s for s in dict.fromkeys((*reads, *writes)) if s not in kept and last.get(s, i) <= i]
            # A view shares memory with what the call was given, and with nothing that it returns.
            tensors = [a for a in text.arguments if isinstance(a, TensorView)]
            shared = [t for t in tensors if (t in written if t in inputs else slots[t] in kept)]
            views = not shared and not any(o.tensor in partition.last_read for o in outputs)
            placed = any(isinstance(a, TensorView) and not a.is_cpu for a in text.arguments)
            self._steps.append(_Step(definition, reads, writes, tuple(frees), views, placed))

    def by_definition(self, schedules: GivenSchedules) -> dict[FusionDefinition, Any]:
        """Schedules by the definitions of their segments. ScheduleError for a definition that is not a
        segment.
        """
        found: dict[FusionDefinition, Any] = {}
        for key, value in schedules.items():
            is_place = type(key) is int and 0 <= key < len(self.definitions)
            index = key if is_place else next((i for i, d in enumerate(self.definitions) if d is key), None)
            if index is None:
                raise ScheduleError(
                    "schedules: there is no such segment",
                    expected=f"one of fd.segments, or its place among these {len(self.definitions)}",
                    given=key if isinstance(key, int) else describe_argument(key),
                )
            definition = self.definitions[index]
            if definition in self._evaluated:
                raise no_kernel(index, len(self.definitions))
            found[definition] = _schedule_of(value, f"schedules[{index}]")
        return found

    @contextmanager
    def numbered(self, definition: FusionDefinition) -> Iterator[None]:
        """Errors of a schedule that a segment is given name its place among all segments."""
        try:
            yield
        except ParamsError as error:
            own, place = self.kernel_of[definition], self.definitions.index(definition)
            error.move(f"schedules[{own}]", f"schedules[{place}]")
            raise

    # ---- calls

    def check(self, inputs: Inputs, place: torch.device | None) -> tuple[Sequence[Any], torch.device]:
        """The inputs one by one, and where they run; raises errors for wrong inputs."""
        try:
            signature = place, self._leaf.executor.signature(inputs)
            device = self._checked.find(signature)
        except (AttributeError, TypeError, ValueError, RuntimeError):
            device = None
        if device is None:
            inputs = self._binder.flatten(inputs)
            device = self._binder.bind(inputs, place).device
            self._checked.put((place, self._leaf.executor.signature(inputs)), device)
        return inputs, device

    def run(
        self,
        inputs: Inputs,
        place: torch.device | None,
        views: bool,
        call: SegmentCall,
    ) -> list[torch.Tensor]:
        """The outputs of the whole definition; `call` runs a segment."""
        inputs, device = self.check(inputs, place)
        held = self._held(inputs)
        for seed, offset in self._random:
            held[seed], held[offset] = random_states(device).take()
        old = {slot: held[slot].clone() for slot in self._snapshots}
        for step in self._steps:
            arguments = [held[slot] for slot in step.reads]
            made = call(step.definition, arguments, None if step.placed else device, views and step.views)
            for slot, tensor in zip(step.writes, made):
                held[slot] = tensor
            arguments = made = tensor = None  # type: ignore[assignment]  # nothing but `held` holds them
            for slot in step.frees:
                held[slot] = None
        for target, source in self._copies:
            copy_into(held[target], old.get(source, held[source]))
        return [held[slot] for slot in self._returned]

    def outline(self, inputs: Inputs, place: torch.device | None, call: SegmentCall) -> None:
        """Calls what `run` would for flat inputs, which may have no memory; nothing is drawn or written.

        `call` returns meta tensors for what a segment would return.
        """
        inputs = self._binder.flatten(inputs)
        device = self._binder.describe(inputs, place, needs_place=True).device
        held = self._held(inputs)
        for seed, offset in self._random:
            held[seed] = held[offset] = 0
        for step in self._steps:
            made = call(step.definition, [held[slot] for slot in step.reads], device, step.views)
            for slot, tensor in zip(step.writes, made):
                held[slot] = tensor

    def _held(self, inputs: Inputs) -> list[Any]:
        """What a call holds at its start."""
        held: list[Any] = [*inputs, *[None] * (self._count - len(inputs))]
        for slot, position, dim in self._sizes:
            held[slot] = held[position].shape[dim]
        return held


def segment_schedules(schedules: GivenSchedules) -> GivenSegments:
    """What a user asks of the segments of a call that is not segmented by `fd.segment`.

    Raises:
        ArgumentTypeError: not a dict of segments. ScheduleError: a segment of another definition.
        ParamsError: neither params nor a function.
    """
    if not isinstance(schedules, Mapping):
        raise ArgumentTypeError(
            function="execute", expected="schedules: a dict", given=describe_argument(schedules)
        )
    found: list[tuple[int, Any]] = []
    for key, value in schedules.items():
        if type(key) is not int:
            raise ScheduleError(
                "schedules: the definition was not segmented",
                expected="the place of a kernel in launch order",
                given=describe_argument(key),
                hint="fd.segment(inputs) makes definitions of kernels",
            )
        found.append((key, _schedule_of(value, f"schedules[{key}]")))
    return tuple(sorted(found, key=lambda pair: pair[0]))


def _schedule_of(value: Any, path: str) -> Any:
    """What a user gives one segment, in a form that may be a key. ParamsError for what cannot be given."""
    if isinstance(value, EditableParams):
        try:
            return value.freeze()
        except ParamsError as error:
            error.move_into(path)
            raise
    if isinstance(value, Mapping):
        return GivenFields(value, path)
    if isinstance(value, str):
        return GivenFields.from_json(value, path)
    if value is None or isinstance(value, type) or not isinstance(value, Hashable):
        raise ParamsError(
            path=path,
            expected="params of the segment's scheduler, as an object, dict or JSON, or a function that "
            "schedules it with fd.sched",
            given=describe_argument(value),
        )
    return value


class Segmented:
    """The segments of a `FusionDefinition`."""

    if TYPE_CHECKING:  # FusionDefinition's
        _registry: Registry | None
        _tracer: Tracer
        _writing: Any
        _call_sites: list[CallSite | None]
        _complete: Callable[[], FusionSchedules]
        _empty_like: Callable[[], FusionDefinition]

        @property
        def _options(self) -> Options: ...

    def _begin_segments(self) -> None:
        self._partition: _Partition | None = None
        self._segmentation: Segmentation | None = None

    @property
    def segments(self) -> list[FusionDefinition]:
        """The definitions that `segment` made last, in execution order."""
        return [] if self._segmentation is None else list(self._segmentation.definitions)

    @property
    def segment_index_space_maps(self) -> dict[FusionDefinition, dict[int, int]]:
        """Of each segment: from the states of its inputs and outputs to those of this definition.

        The size of an input's dimension has its negative index (`FusionState`). What is inside a composite
        operation of this definition, and so no state of it, has a number beyond all states.
        """
        found = self._segmentation
        return {} if found is None else {fd: dict(states) for fd, states in found.maps.items()}

    @property
    def map_value_to_last_used_segment(self) -> dict[int, int]:
        """For each state that is passed to a segment, the number of the last segment that takes it."""
        return {} if self._segmentation is None else dict(self._segmentation.last_used)

    @explained
    def segment(self, inputs: Inputs, *, device: Device | None = None) -> list[FusionDefinition]:
        """The kernels that serve these inputs as definitions of their own, in execution order.

        Each may be printed, scheduled and run by itself. From now on `execute` runs them one after another,
        as the user scheduled them, for inputs of any size; a tensor that passes between them is freed after
        its last use. An empty list, after which `execute` is as before: one kernel computes it all.

        Raises:
            UserError: inputs that do not fit. DefinitionError: a segment that no definition can say.
        """
        with self._writing:
            try:
                for i in range(self._setup_segmentation(inputs, device=device)):
                    self._build_segment(self._empty_like(), i)
                self._finalize_segmentation()
            finally:
                self._partition = None
        return self.segments

    def _setup_segmentation(self, inputs: Inputs, *, device: Device | None = None) -> int:
        """Cuts the definition for these inputs: the number of segments, 0 where one is enough."""
        leaf = self._complete()
        place = None if device is None else device_named(device)
        # A segment's definition consists of the definition's own nodes, so no node is rewritten here.
        executor = FusionExecutor(leaf.fusion, self._registry, repro=leaf.repro_script, as_defined=True)
        segments = executor.segments_for(
            flattened(listed(inputs, "segment")), device=place, options=self._options, tracer=self._tracer
        )
        self._partition = _Partition(leaf, segments) if len(segments) > 1 else None
        return len(segments) if len(segments) > 1 else 0

    def _build_segment(self, definition: FusionDefinition, index: int) -> dict[int, int]:
        """Writes a segment, the next in order, into an empty definition; its index map."""
        partition = self._partition
        if partition is None or index != len(partition.definitions) or index >= len(partition.segments):
            raise ExecutionOrderError(
                "_build_segment: segments are built in order, after _setup_segmentation"
            )
        if definition._leaf is not None:
            raise ArgumentTypeError(
                function="_build_segment", expected="an empty definition", given=describe_argument(definition)
            )
        written = write_segment(partition.whole, partition.segments[index], partition.handed_on(index))
        sites = self._call_sites
        definition._complete_from(
            written.records,
            [sites[r] if r is not None and r < len(sites) else None for r in written.sources],
        )
        partition.add(definition, written, index)
        return dict(partition.maps[index])

    def _finalize_segmentation(self) -> None:
        """From now on calls run the segments that were built."""
        partition, self._partition = self._partition, None
        if partition is not None and len(partition.definitions) < len(partition.segments):
            raise ExecutionOrderError("_finalize_segmentation: not all segments are built")
        self._segmentation = None if partition is None else Segmentation(partition)

    def _execute_segments(
        self,
        inputs: Inputs,
        place: torch.device | None,
        views: bool,
        options: Mapping[str, Any],
        schedules: GivenSchedules | None,
    ) -> tuple[list[torch.Tensor], FusionProfile | None]:
        """The outputs and, if the options ask for it, where the time went."""
        segmentation = self._segmentation
        assert segmentation is not None
        profiles: list[FusionProfile] = []
        given = {} if schedules is None else segmentation.by_definition(schedules)

        def call(
            definition: FusionDefinition, arguments: list[Any], device: torch.device | None, may_view: bool
        ) -> list[torch.Tensor]:
            own = {segmentation.kernel_of[definition]: given[definition]} if definition in given else None
            try:
                with segmentation.numbered(definition):
                    made = definition._execute(arguments, device, views=may_view, schedules=own, **options)
            except FusewrightError as error:
                definition._explain(error)
                raise
            if options["profile"] and definition._profile is not None:
                profiles.append(definition._profile)
            return made

        outputs = segmentation.run(inputs, place, views, call)
        if not options["profile"]:
            return outputs, None
        return outputs, combined_profile(profiles, inputs, outputs, self._complete().id)
