"""Runs a fusion: finds the program that is bound to the signature of the inputs, or makes it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import torch
from torch import are_deterministic_algorithms_enabled

from fusewright.core.collector import paused_collector
from fusewright.core.enums import SchedulerType
from fusewright.core.errors import ExecutionOrderError, InputError, InternalError
from fusewright.core.once import OnceCache
from fusewright.core.options import Options
from fusewright.core.tracing import Tracer
from fusewright.host.binding import Binder, Binding
from fusewright.host.calls import Question, call_of, hardware_for
from fusewright.host.evaluation import EvaluatePlan
from fusewright.host.finished import (
    FinishedSchedule,
    PlannedCall,
    SegmentSchedules,
    check_one_kernel,
    check_params,
)
from fusewright.host.ir import Evaluate, LaunchKernel
from fusewright.host.kernel_dumps import dump_kernels
from fusewright.host.layout import Layout, fresh_outputs
from fusewright.host.memory import Memory, empty_outputs
from fusewright.host.memory_checks import unwritable
from fusewright.host.plan import (
    NO_VIEWS,
    BoundProgram,
    LaunchError,
    LaunchPlan,
    Programs,
    StepPlan,
)
from fusewright.host.profile import FusionProfile, run_profiled
from fusewright.host.selection import Selection
from fusewright.host.settings import DeviceState, Setting
from fusewright.host.signature import compile_key_function
from fusewright.host.stable_sizes import StableSizes
from fusewright.host.views import OutputViews, Views
from fusewright.ir import Fusion, LibraryCall, TensorView
from fusewright.rewrite import simplified
from fusewright.runtime.arguments import slot_values
from fusewright.runtime.compiler import CompiledKernel, KernelCompiler, index_dtype_of
from fusewright.runtime.targets import CudaTarget, SimulatedTarget, Target
from fusewright.schedulers import Proposal, Registry, default_registry, is_built_in, naming, type_name
from fusewright.segment import (
    NO_EXCLUSIONS,
    Exclusions,
    Partitions,
    Segment,
    SegmentedFusion,
    Separation,
    separation,
)
from fusewright.sym import Symbol

# Settings are options with a device; so many are kept of a fusion.
MAX_SETTINGS = 64

Inputs = Sequence[Any]
Repro = Callable[[Inputs], str]
#: Of the whole fusion, or of some of its segments.
UserSchedule = FinishedSchedule | SegmentSchedules


class FusionExecutor:
    """Executes one fusion for all inputs that fit it. Safe to call from several threads.

    Three caches, each asked only if the one before misses: bound programs by the signature of a call;
    compiled kernels, which all fusions share, by canonical segment, parameters, index type and GPU, so that
    neither a new size with equal parameters nor an equal segment compiles anything; and the disk cache of
    cubins.

    Args:
        registry: the schedulers to ask; None: the built-in ones.
        options: for calls that give none.
        repro: makes a script that reproduces a call, for errors that are faults of Fusewright.
        as_defined: whether segments are made of the nodes of the definition, none of which is rewritten.
    """

    def __init__(
        self,
        fusion: Fusion,
        registry: Registry | None = None,
        options: Options | None = None,
        repro: Repro | None = None,
        as_defined: bool = False,
    ) -> None:
        self._as_defined = as_defined
        self.registry = registry if registry is not None else default_registry()
        self.options = options if options is not None else Options.from_environment()
        if not as_defined:
            with paused_collector():
                fusion = simplified(fusion, Tracer(self.options, timing=False))
        self.fusion = fusion
        self.repro = repro
        self._binder = Binder(fusion)
        #: the signature of a call's flat inputs, with what it raises where they do not fit
        self.signature = compile_key_function(fusion, self._binder.size_scalars.inputs)
        self._views = OutputViews(fusion)
        #: by the outputs that kernels do not compute
        self._partitions: OnceCache[frozenset[TensorView], Partitions] = OnceCache(MAX_SETTINGS)
        self._stable_sizes = StableSizes()
        #: positions of the inputs that outputs are written into
        self._written = [fusion.inputs.index(o.alias) for o in fusion.outputs if o.alias is not None]
        #: what kernels compute in an order that differs from run to run
        self._unordered = [node for node in fusion.ordered_nodes() if node.traits.updates]
        #: what torch computes unless an option is disabled, and that option
        self._switched = [
            (node, switch)
            for node in fusion.nodes
            if isinstance(node, LibraryCall) and (switch := node.op.switch)
        ]
        self._layouts: dict[TensorView, Layout] = {}
        self._settings: OnceCache[tuple[Hashable, ...], Setting] = OnceCache(MAX_SETTINGS)
        self._latest = self._setting(self.options, None)
        #: what the latest call ran, for whoever wants to look at it
        self.last_program: BoundProgram | None = None

    def execute(
        self,
        inputs: Inputs,
        *,
        device: torch.device | None = None,
        options: Options | None = None,
        tracer: Tracer | None = None,
        user_schedule: UserSchedule | None = None,
        views: bool = True,
    ) -> list[torch.Tensor]:
        """The visible outputs, in the order in which they were added.

        CUDA tensors run on their device, on torch's current stream of it; CPU tensors in the simulator. A
        repeated call costs the key of its inputs, one look-up and the bound program.

        Args:
            inputs: one an input of the fusion; lists and tuples among them are unpacked.
            device: where to run if no input is a tensor.
            user_schedule: of the whole fusion: it makes one kernel instead of the automatic segments; or of
                some of these segments.
            views: whether outputs may be views of inputs; a user's schedule computes them all.

        Raises:
            InputError, DtypeError, ShapeError, DeviceError, ContiguityError: inputs that do not fit.
            ScheduleError: no scheduler takes the fusion, or a user's schedule does not work for these inputs.
            CompileError, DriverError, SimulationError: see there.
        """
        setting = self._latest
        if (
            setting.device is not device
            or setting.views is not views
            or (self._unordered and setting.deterministic is not are_deterministic_algorithms_enabled())
            or (options is not None and options is not setting.options)
            or (options is None and setting.options is not self.options)
        ):
            setting = self._latest = self._setting(options or self.options, device, views)
        try:
            key = self.signature(inputs)
            program = setting.programs.find(key if user_schedule is None else (user_schedule, key))
        except (AttributeError, TypeError, ValueError, RuntimeError):
            program = None
        if program is None:
            inputs = self._binder.flatten(inputs)
            program = self._bound(setting, user_schedule, inputs, tracer)
        self.last_program = program
        try:
            return program.run(inputs)
        except Exception:
            # Scalars are no part of the key, so one beyond its type's range shows only in the program: a
            # check of the inputs then tells which.
            self._binder.bind(self._binder.flatten(inputs), setting.device)
            raise

    def compile(
        self,
        inputs: Inputs,
        *,
        device: torch.device | None = None,
        options: Options | None = None,
        tracer: Tracer | None = None,
        user_schedule: UserSchedule | None = None,
        views: bool = True,
    ) -> BoundProgram:
        """The program that `execute` would run, without running it."""
        setting = self._setting(options or self.options, device, views)
        return self._bound(setting, user_schedule, self._binder.flatten(inputs), tracer)

    def empty_outputs(self, inputs: Inputs, device: torch.device | None = None) -> list[torch.Tensor]:
        """Tensors like those that `execute` allocates for its outputs (`fresh_outputs`), without values.

        Nothing runs, so inputs may be tensors without memory, on a GPU that is not there, or with symbolic
        sizes. Raises as `execute` for those that do not fit.
        """
        found = self._binder.shapes(self._binder.flatten(inputs), device)
        memory = [(tensor, *Layout(tensor).at(found.sizes)) for tensor in fresh_outputs(self.fusion)]
        return [
            torch.empty_strided(shape, strides, dtype=tensor.dtype.torch, device=found.device)
            for tensor, shape, strides in memory
        ]

    def profile(
        self,
        inputs: Inputs,
        *,
        device: torch.device | None = None,
        options: Options | None = None,
        tracer: Tracer | None = None,
        user_schedule: UserSchedule | None = None,
        fusion_id: int = 0,
    ) -> tuple[list[torch.Tensor], FusionProfile]:
        """As `execute`, with a clock at each launch: the outputs and where the time went."""
        inputs = self._binder.flatten(inputs)
        setting = self._setting(options or self.options, device)
        program = self.last_program = self._bound(setting, user_schedule, inputs, tracer)
        binding = self._binder.bind(inputs, device)
        memory = Memory(self.fusion, binding, self._layouts)
        target = self._place(setting, binding.device).target
        return run_profiled(inputs, program, memory, target, setting.compiler, fusion_id)

    def kernels_for(
        self,
        inputs: Inputs,
        *,
        device: torch.device | None = None,
        options: Options | None = None,
        user_schedule: UserSchedule | None = None,
    ) -> tuple[CompiledKernel, ...]:
        """The kernels that serve these inputs, in launch order. Raises as `program_for`."""
        found = self.program_for(inputs, device=device, options=options, user_schedule=user_schedule)
        return found.kernels

    def program_for(
        self,
        inputs: Inputs,
        *,
        device: torch.device | None = None,
        options: Options | None = None,
        user_schedule: UserSchedule | None = None,
    ) -> BoundProgram:
        """The program that serves these inputs.

        Raises:
            ExecutionOrderError: no call with such inputs was executed or compiled before.
        """
        setting = self._setting(options or self.options, device)
        key = self.signature(self._binder.flatten(inputs))
        program = setting.programs.find(key if user_schedule is None else (user_schedule, key))
        if program is None:
            raise ExecutionOrderError(
                "the fusion is not compiled for these inputs", hint="execute it with them first"
            )
        return program

    def segments_for(
        self,
        inputs: Inputs,
        *,
        device: torch.device | None = None,
        options: Options | None = None,
        tracer: Tracer | None = None,
    ) -> tuple[Segment, ...]:
        """The segments that compute all outputs for these inputs, none of them as a view, in order.

        Their nodes are those of the definition, for an executor that is to keep these.
        """
        program = self.compile(inputs, device=device, options=options, tracer=tracer, views=False)
        parts = [
            p for plan in program.plans for p in (plan.parts if isinstance(plan, LaunchPlan) else [plan])
        ]
        segments = sorted([p.segment for p in parts if p.segment is not None], key=lambda s: s.index)
        return self._partitions_without(frozenset()).as_defined(segments)

    def separation(
        self,
        inputs: Inputs | None,
        parts: tuple[TensorView | int, TensorView | int],
        *,
        device: torch.device | None = None,
        options: Options | None = None,
        tracer: Tracer | None = None,
        views: bool = True,
    ) -> Separation:
        """Why two tensors of the fusion, or two segments, are not one kernel for these inputs.

        Nothing is compiled or run: inputs may be tensors without memory. None: the latest call's.

        Raises:
            ExecutionOrderError: no inputs, and no call before. Otherwise as `execute`.
        """
        tracer = tracer if tracer is not None else Tracer()
        setting = self._setting(options or self.options, device, views)
        if inputs is not None:
            binding = self._binder.describe(self._binder.flatten(inputs), device)
        elif self.last_program is not None:
            binding = self.last_program.binding
        else:
            raise ExecutionOrderError("there was no call", hint="execute the fusion, or give inputs")
        question = self._question(setting, binding)
        kept = self._partitions_without(question.uncomputed)
        return separation(kept, question.call, tracer, question.required, parts, question.uncomputed)

    def planned(
        self,
        inputs: Inputs,
        *,
        device: torch.device | None = None,
        options: Options | None = None,
        tracer: Tracer | None = None,
        views: bool = True,
    ) -> PlannedCall:
        """The kernels that would serve these inputs, none of them compiled. Raises as `execute`."""
        setting = self._setting(options or self.options, device, views)
        binding = self._binder.bind(self._binder.flatten(inputs), device)
        question = self._question(setting, binding)
        partitions = self._partitions_without(question.uncomputed)
        return PlannedCall(partitions.select(question.call, tracer or Tracer(), question.required), question)

    def _question(self, setting: Setting, binding: Binding, counts: bool = False) -> Question:
        """What the partition is asked for a call. `counts`: whether the call runs, with these sizes."""
        stable: frozenset[Symbol] = frozenset()
        if setting.constant_sizes:
            stable = (self._stable_sizes.with_call if counts else self._stable_sizes.at)(binding.sizes)
        memory = Memory(self.fusion, binding, self._layouts)
        views = self._views.find(binding) if setting.views else NO_VIEWS
        empty = () if self._as_defined else empty_outputs(self.fusion, memory, views)
        hardware = hardware_for(binding.device, setting.options)
        call = call_of(self.fusion, binding, memory, stable, hardware, setting.horizontal)
        return Question(call, self._excluded_by(setting.options, setting.deterministic), memory, views, empty)

    def segments(self, tracer: Tracer | None = None) -> SegmentedFusion:
        """The partition of the fusion into kernels, whatever the sizes."""
        return self._partitions_without(frozenset()).structural(tracer or Tracer())

    def compiler(self, options: Options | None = None) -> KernelCompiler:
        """The compiler of this fusion's kernels, for cubins of any architecture and their resources."""
        return self._setting(options or self.options, None).compiler

    # ---- a call with a new signature

    def _partitions_without(self, outputs: frozenset[TensorView]) -> Partitions:
        """Of what is left for kernels when these outputs are computed otherwise."""

        def make() -> Partitions:
            kept = [o for o in self.fusion.outputs if o.tensor not in outputs]
            fusion = self.fusion.with_outputs(kept) if outputs else self.fusion
            return Partitions(fusion, self.registry)

        return self._partitions.get(outputs, make)

    def _setting(self, options: Options, device: torch.device | None, views: bool = True) -> Setting:
        deterministic = bool(self._unordered) and are_deterministic_algorithms_enabled()
        key = options.key(), device, views, deterministic
        setting = self._settings.get(key, lambda: Setting(options, device, views, deterministic))
        # Equal options make equal programs; the caller's object is compared by identity at the next call.
        setting.options = options
        return setting

    def _bound(
        self, setting: Setting, schedule: UserSchedule | None, inputs: Inputs, tracer: Tracer | None
    ) -> BoundProgram:
        """Checks the inputs and makes their program.

        Two threads may bind the same program concurrently. Waiting would cost more than binding twice.
        """
        tracer = tracer if tracer is not None else Tracer(setting.options, timing=False)
        with tracer.stage("bind"):
            binding = self._binder.bind(inputs, setting.device)
            self._check_written(inputs)
        signature = self.signature(inputs)
        key = signature if schedule is None else (schedule, signature)
        program = setting.programs.find(key)
        if program is None:
            program = self._make(setting, schedule, inputs, binding, tracer)
            setting.programs.put(key, program)
            tracer.dump("time", tracer.table)
        return program

    def _check_written(self, inputs: Inputs) -> None:
        for position in self._written:
            problem = unwritable(inputs[position])
            if problem is not None:
                name, expected = self.fusion.inputs[position].name, "a tensor that can be written in place"
                raise InputError(index=position, name=name, expected=expected, given=problem)

    def _make(
        self,
        setting: Setting,
        schedule: UserSchedule | None,
        inputs: Inputs,
        binding: Binding,
        tracer: Tracer,
    ) -> BoundProgram:
        repro = partial(self.repro, inputs) if self.repro is not None else str
        try:
            return self._compiled(setting, schedule, binding, repro, tracer)
        except InternalError as error:
            error.repro = error.repro or repro() or None
            raise

    def _compiled(
        self,
        setting: Setting,
        schedule: UserSchedule | None,
        binding: Binding,
        repro: Callable[[], str],
        tracer: Tracer,
    ) -> BoundProgram:
        place = self._place(setting, binding.device)
        if isinstance(schedule, FinishedSchedule):
            check_one_kernel(self.fusion)
            launch = self._launch(setting, schedule, None, binding, place, tracer)
            memory = Memory(self.fusion, binding, self._layouts)
            return self._bind(setting, place, [launch], binding, memory, tracer)

        def make(segment: Segment, proposal: Proposal) -> StepPlan:
            return self._step(setting, segment, proposal.params, binding, place, tracer)

        question = self._question(setting, binding, counts=True)
        memory = question.memory
        if schedule is not None:
            views, empty = schedule.planned.outputs_in(question)
            question.call.start(schedule.planned.segments)
            plans = self._rescheduled(setting, schedule, make, binding, place, tracer)
            try:
                return self._bind(setting, place, plans, binding, memory, tracer, views, empty)
            except LaunchError as error:
                raise error.cause from None
        partitions = self._partitions_without(question.uncomputed)
        selection = Selection(partitions, question.call, make, repro, tracer, question.required)
        while True:
            plans, launches = selection.plans()
            plans = place.bundles.joined(plans, launches, memory, tracer)
            try:
                return self._bind(
                    setting, place, plans, binding, memory, tracer, question.views, question.empty
                )
            except LaunchError as error:
                segment, cause = error.launch.segment, error.cause
                assert segment is not None
                if not is_built_in(segment.scheduler):
                    with naming(segment.scheduler, "apply"):
                        raise cause from None
                selection.report_fault(segment, cause)

    def _bind(
        self,
        setting: Setting,
        place: DeviceState,
        plans: Sequence[StepPlan],
        binding: Binding,
        memory: Memory,
        tracer: Tracer,
        views: Views = NO_VIEWS,
        empty: tuple[TensorView, ...] = (),
    ) -> BoundProgram:
        kernels = [plan.op.kernel for plan in plans if isinstance(plan, LaunchPlan)]
        if len(kernels) > 1:
            place.target.load(kernels, tracer)
        with tracer.stage("host program"):
            program = place.programs.bind(plans, binding, memory, tracer, views, empty)
        if setting.options.dump_dir is not None:
            dump_kernels(self.fusion, program, memory, setting.compiler, setting.options)
        return program

    def _place(self, setting: Setting, device: torch.device) -> DeviceState:
        def make() -> DeviceState:
            if device.type == "cuda":
                target: Target = CudaTarget(device, setting.options, setting.compiler)
            else:
                target = SimulatedTarget(setting.options)
            programs = Programs(self.fusion, target, self._binder.size_scalars.static)
            return DeviceState(target, programs, setting.compiler)

        return setting.places.get(device, make)

    def _excluded_by(self, options: Options, deterministic: bool) -> Exclusions:
        """What torch may not compute under these options, and what only torch may where the results of
        repeated calls are to be the same.
        """
        excluded = NO_EXCLUSIONS.without_redefinition() if self._as_defined else NO_EXCLUSIONS
        if deterministic:
            evaluated = type_name(SchedulerType.expr_eval)
            kernels = [name for s in self.registry if (name := type_name(s.type)) != evaluated]
            for name in kernels:
                excluded = excluded.without_nodes(name, self._unordered)
        for node, switch in self._switched:
            if options.disabled(switch):
                excluded = excluded.without_nodes(type_name(SchedulerType.expr_eval), [node])
        return excluded

    def _step(
        self,
        setting: Setting,
        segment: Segment,
        params: Any,
        binding: Binding,
        place: DeviceState,
        tracer: Tracer,
    ) -> StepPlan:
        """What computes a segment with these parameters. ParamsError for indices that are too narrow."""
        node = segment.evaluated
        if node is not None:
            op = Evaluate(segment.index, node, segment.operands, segment.results, segment.outputs)
            return place.evaluations.get(segment, lambda: EvaluatePlan(op, segment, place.target))
        index_dtype = index_dtype_of(params, binding.index_dtype)
        key = segment, params, index_dtype
        known = place.launches.find(key)
        if known is not None:
            return known

        def make() -> LaunchPlan:
            with segment.names.in_errors(), paused_collector():
                kernel = setting.compiler.compile(
                    segment.fusion,
                    segment.scheduler,
                    params,
                    place.target.hardware,
                    index_dtype,
                    tracer=tracer,
                    text=segment.text,
                    names=str(segment.names) if tracer.dumps_compilation else "",
                )
            values = (*segment.inputs, *segment.outputs)
            op = LaunchKernel(segment.index, kernel, values, segment.outputs, segment.bases)
            return LaunchPlan(op, segment, place.target)

        return place.launches.get(key, make)

    def _rescheduled(
        self,
        setting: Setting,
        schedules: SegmentSchedules,
        make: Callable[[Segment, Proposal], StepPlan],
        binding: Binding,
        place: DeviceState,
        tracer: Tracer,
    ) -> list[StepPlan]:
        """A plan for each segment, as the user schedules it or, as `make` makes it, automatically.

        Raises:
            ScheduleError: there is no such segment, or torch computes it. ParamsError: params of another
                scheduler than the segment's.
        """
        planned, given = schedules.planned, dict(schedules.by_index)
        for index in given:
            planned.check_kernel(index)
        plans = []
        for segment, proposal in zip(planned.segments, planned.proposals):
            own = given.get(segment.index)
            if own is None:
                plans.append(make(segment, proposal))
            elif isinstance(own, FinishedSchedule):
                plans.append(self._launch(setting, own, segment, binding, place, tracer))
            else:
                check_params(segment, own)
                plans.append(self._step(setting, segment, own, binding, place, tracer))
        return plans

    def _launch(
        self,
        setting: Setting,
        schedule: FinishedSchedule,
        segment: Segment | None,
        binding: Binding,
        place: DeviceState,
        tracer: Tracer,
    ) -> LaunchPlan:
        """The launch of a user's schedule of a segment; None: of the whole fusion.

        Equal schedules share their kernel.
        """
        index_dtype = index_dtype_of(schedule.params, binding.index_dtype)
        hardware = place.target.hardware

        def compile_() -> CompiledKernel:
            return setting.compiler.compile_schedule(
                schedule.schedule, hardware, index_dtype, params=schedule.params, tracer=tracer
            )

        def make() -> LaunchPlan:
            text = segment.text if segment is not None else None
            kernel = setting.user_kernels.get((text, schedule.key, index_dtype, hardware), compile_)
            if segment is None:
                outputs = tuple(t for t in self.fusion.output_tensors() if t.definition is not None)
                op = LaunchKernel(0, kernel, slot_values(self.fusion), outputs)
            else:
                values = (*segment.inputs, *segment.outputs)
                op = LaunchKernel(segment.index, kernel, values, segment.outputs, segment.bases)
            return LaunchPlan(op, segment, place.target)

        return place.launches.get((segment, schedule.key, index_dtype), make)
