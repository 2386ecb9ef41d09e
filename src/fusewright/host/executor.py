"""Runs a fusion: finds the program that is bound to the signature of the inputs, or makes it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import are_deterministic_algorithms_enabled

from fusewright.core.collector import paused_collector
from fusewright.core.errors import (
    FAULTS_OF_CODE,
    ExecutionOrderError,
    FusewrightError,
    InputError,
    InternalError,
)
from fusewright.core.options import Options
from fusewright.core.tracing import SILENT, Tracer
from fusewright.host.inputs.binding import Binder, Binding
from fusewright.host.inputs.layout import Layout, Layouts, fresh_outputs
from fusewright.host.inputs.memory import Memory, empty_outputs, input_layouts
from fusewright.host.inputs.memory_checks import has_no_memory
from fusewright.host.inputs.signature import compile_key_function
from fusewright.host.kernel_dumps import dump_kernels
from fusewright.host.kernels.calls import Question, call_of
from fusewright.host.kernels.finished import AnySchedule, FinishedSchedule, PlannedCall
from fusewright.host.kernels.kept_partitions import KeptPartitions
from fusewright.host.kernels.new_calls import NewCall, served
from fusewright.host.kernels.recall import Decided, Recall
from fusewright.host.kernels.segment_kernels import SegmentKernels, Wording, described_kernels
from fusewright.host.kernels.settings import DeviceState, Setting, Settings
from fusewright.host.profile import FusionProfile, run_profiled
from fusewright.host.program.overlaps import unwritable
from fusewright.host.program.plan import LaunchPlan, placed
from fusewright.host.program.programs import NO_VIEWS, BoundProgram, Chosen, Programs
from fusewright.host.program.views import OutputViews, Views
from fusewright.host.reuse.repeated_calls import matcher
from fusewright.host.reuse.stable_sizes import StableSizes
from fusewright.ir import Fusion, TensorView
from fusewright.rewrite import simplified
from fusewright.runtime.compiled_kernel import CompiledKernel
from fusewright.runtime.hardware import present
from fusewright.runtime.targets import CudaTarget, SimulatedTarget, Target
from fusewright.schedulers import Cost, Registry, default_registry
from fusewright.segment import (
    Segment,
    SegmentedFusion,
    Separation,
    estimated,
    separation,
)
from fusewright.sym import Symbol

Result = TypeVar("Result")

NO_SIZES: frozenset[Symbol] = frozenset()

Inputs = Sequence[Any]
Repro = Callable[[Inputs], str]


class FusionExecutor:
    """Executes one fusion for all inputs that fit it. Several threads may use it.

    There are three caches, each used only if the previous one misses: bound programs, by the signature of a
    call; compiled kernels, which all fusions share, by canonical segment, parameters, index type and GPU; and
    the disk cache of cubins. So neither a new size with equal parameters nor an equal segment compiles
    anything.

    Args:
        registry: the schedulers to ask, in their current state. None: the default registry.
        options: the options of calls that pass none. None: the options that the environment sets.
        repro: makes a script that reproduces a call. Errors that are bugs in Fusewright quote it.
        as_defined: whether segments consist of the nodes of the definition, without rewrites.
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
        self.registry = (registry if registry is not None else default_registry()).copy()
        self.options = options if options is not None else Options.from_environment()
        if not as_defined:
            with paused_collector():
                fusion = simplified(fusion, Tracer(self.options, timing=False))
        self.fusion = fusion
        self.repro = repro
        self._binder = Binder(fusion)
        #: computes the signature of a call's flat inputs; raises an error if they do not fit
        self.signature = compile_key_function(fusion, self._binder.size_scalars.inputs)
        self._views = OutputViews(fusion)
        self._fresh = fresh_outputs(fusion)
        self._partitions = KeptPartitions(fusion, self.registry)
        self._stable_sizes = StableSizes()
        self._recall = Recall(self._binder, self._stable_sizes, self._partitions, self._question)
        #: positions of the inputs that outputs are written into
        self._written = [fusion.inputs.index(o.alias) for o in fusion.outputs if o.alias is not None]
        self._layouts = Layouts(fusion)
        self._settings = Settings(fusion, self.registry, as_defined)
        self._latest = self._settings.get(self.options, None)
        #: whether calls ask torch for deterministic algorithms
        self._unordered = bool(self._settings.unordered)
        #: the program that the latest call ran, for inspection
        self.last_program: BoundProgram | None = None

    def execute(
        self,
        inputs: Inputs,
        *,
        device: torch.device | None = None,
        options: Options | None = None,
        tracer: Tracer | None = None,
        user_schedule: AnySchedule | None = None,
        views: bool = True,
    ) -> list[torch.Tensor]:
        """Runs the fusion and returns its visible outputs, in the order in which they were added.

        A call with CUDA tensors runs on their device, on torch's current stream. A call with CPU tensors
        runs in the simulator. A repeated call computes the key of its inputs, looks up its program and runs
        it.

        Args:
            inputs: one value for each input of the fusion. Lists and tuples among them are unpacked.
            device: where to run if no input is a tensor.
            user_schedule: a schedule of the whole fusion, which makes one kernel instead of the automatic
                segments, or schedules of some of these segments.
            views: whether outputs may be views of inputs. A schedule of the whole fusion ignores this.

        Raises:
            InputError, DtypeError, ShapeError, DeviceError, ContiguityError: the inputs do not fit.
            ScheduleError: no scheduler takes the fusion, or a user's schedule does not work for these inputs.
            CompileError: NVRTC rejects a kernel.
            DriverError: the CUDA driver rejects a kernel or its launch.
            SimulationError: a kernel does something invalid in the simulator.
        """
        if options is None:
            options = self.options
        setting = self._latest
        if (
            setting.options is not options
            or setting.device is not device
            or setting.views is not views
            or (self._unordered and setting.deterministic is not are_deterministic_algorithms_enabled())
        ):
            setting = self._latest = self._settings.get(options, device, views)
        key: tuple[Any, ...] | None = None
        program: BoundProgram | None
        try:
            repeated = setting.repeated
            if repeated is not None and user_schedule is None and repeated[0](inputs):
                program = repeated[1]
            else:
                key = self.signature(inputs)
                program = setting.programs.find(key if user_schedule is None else (user_schedule, key))
        except (AttributeError, TypeError, ValueError, RuntimeError):
            program = None
        if program is None:
            flat = self._binder.flatten(inputs)
            if flat is not inputs:
                key, inputs = None, flat
            program = self._new(setting, user_schedule, inputs, tracer, key)
        elif program is self.last_program and key is not None and user_schedule is None:
            self._note_repeated(setting, inputs, program)
        self.last_program = program
        try:
            return program.run(inputs)
        except Exception:
            # The key does not contain the values of scalars. So the program is the first to fail for a scalar
            # beyond the range of its type; the binder raises an error that names the scalar.
            self._binder.bind(self._binder.flatten(inputs), setting.device)
            raise

    def compile(
        self,
        inputs: Inputs,
        *,
        device: torch.device | None = None,
        options: Options | None = None,
        tracer: Tracer | None = None,
        user_schedule: AnySchedule | None = None,
        views: bool = True,
    ) -> BoundProgram:
        """The program that `execute` would run, without running it."""
        setting = self._settings.get(options or self.options, device, views)
        return self._bound(setting, user_schedule, self._binder.flatten(inputs), tracer)

    def empty_outputs(
        self, inputs: Inputs, device: torch.device | None = None, as_meta: bool = False
    ) -> list[torch.Tensor]:
        """Uninitialized tensors like those that `execute` allocates for its outputs (`fresh_outputs`).

        Nothing runs. So inputs may be tensors without memory, on a GPU that is not present, or with symbolic
        sizes. Raises like `execute` for inputs that do not fit.

        Args:
            as_meta: whether the result consists of meta tensors. Then inputs may be meta tensors, too.
        """
        found = self._binder.shapes(self._binder.flatten(inputs), device, with_meta=as_meta)
        place = torch.device("meta") if as_meta else found.device
        memory = [(tensor, *Layout(tensor).at(found.sizes)) for tensor in self._fresh]
        return [
            torch.empty_strided(shape, strides, dtype=tensor.dtype.torch, device=place)
            for tensor, shape, strides in memory
        ]

    def profile(
        self,
        inputs: Inputs,
        *,
        device: torch.device | None = None,
        options: Options | None = None,
        tracer: Tracer | None = None,
        user_schedule: AnySchedule | None = None,
        fusion_id: int = 0,
    ) -> tuple[list[torch.Tensor], FusionProfile]:
        """Executes with a clock at each launch; returns the outputs and the profile of the call."""
        inputs = self._binder.flatten(inputs)
        setting = self._settings.get(options or self.options, device)
        program = self.last_program = self._bound(setting, user_schedule, inputs, tracer)
        binding = self._binder.bind(inputs, device)
        memory = Memory(self.fusion, binding, self._layouts)
        target = self._place(setting, binding.device).target
        return run_profiled(inputs, program, memory, target, fusion_id)

    def kernels_for(
        self,
        inputs: Inputs,
        *,
        device: torch.device | None = None,
        options: Options | None = None,
        user_schedule: AnySchedule | None = None,
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
        user_schedule: AnySchedule | None = None,
    ) -> BoundProgram:
        """The program that serves these inputs.

        Raises:
            ExecutionOrderError: no call with inputs of this signature was executed or compiled before.
        """
        setting = self._settings.get(options or self.options, device)
        program = self._program(setting, self._binder.flatten(inputs), user_schedule)
        if program is None:
            raise ExecutionOrderError(
                "the fusion is not compiled for these inputs", hint="execute it with them first"
            )
        return program

    def segment_kernels(
        self,
        inputs: Inputs,
        wording: Wording,
        *,
        device: torch.device | None = None,
        options: Options | None = None,
        tracer: Tracer | None = None,
        user_schedule: AnySchedule | None = None,
        views: bool = True,
    ) -> SegmentKernels:
        """The compiled kernels that `execute` would run, with the facts about them.

        Nothing runs, and stable sizes do not count the call. So inputs may be tensors without memory. For a
        GPU that is not present, the kernels are those of the simulated GPU. This method and calls share
        their kernels.

        Args:
            wording: the names that the definition uses for values and schedules of the fusion.
            device: where the call runs if no input determines it.
            views: whether outputs may be views of inputs.
        """
        options, tracer = options or self.options, tracer if tracer is not None else SILENT
        inputs = self._binder.flatten(inputs)
        binding = self._binder.describe(inputs, device, needs_place=True)
        setting = self._settings.get(options, device if self._binder.is_placed_by_device else None, views)
        place = self._place(setting, present(binding.device))
        stable = self._stable_sizes.at(binding.sizes) if setting.constant_sizes else NO_SIZES
        program = self._program(setting, inputs, user_schedule)
        if program is not None:
            stable = program.stable
        memory = Memory(self.fusion, binding, self._layouts)
        repro = self._repro_of(inputs)
        new = NewCall(setting, place, user_schedule, binding, memory, stable, repro, tracer)
        call = self._question(setting, binding, memory, stable).call

        def describe(chosen: Chosen) -> SegmentKernels:
            plans, _ = placed(self.fusion, chosen.plans, memory)
            costs: dict[Segment | None, Cost] = {
                s: estimated(call, s, proposal) for s, proposal in chosen.proposals.items()
            }
            parallel = not options.disabled("parallel_compile")
            return described_kernels(plans, memory, costs, wording, parallel, tracer)

        return self._served(new, describe)

    def segments_for(
        self,
        inputs: Inputs,
        *,
        device: torch.device | None = None,
        options: Options | None = None,
        tracer: Tracer | None = None,
    ) -> tuple[Segment, ...]:
        """The segments for these inputs in order, if kernels compute all outputs and none is a view.

        Their nodes are those of the definition; an executor with `as_defined` takes such segments.
        """
        program = self.compile(inputs, device=device, options=options, tracer=tracer, views=False)
        parts = [
            p for plan in program.plans for p in (plan.parts if isinstance(plan, LaunchPlan) else [plan])
        ]
        segments = sorted([p.segment for p in parts if p.segment is not None], key=lambda s: s.index)
        layouts = input_layouts(self._layouts, program.binding)
        return self._partitions.without(frozenset(), layouts).as_defined(segments)

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
        """Explains why one kernel does not compute two tensors of the fusion, or two segments.

        Nothing is compiled or run.

        Args:
            inputs: the inputs of the call; may be tensors without memory. None: the latest call's inputs.
            parts: two tensors, or the indices of two segments.

        Raises:
            ExecutionOrderError: there are no inputs, and there was no call. Otherwise raises like `execute`.
        """
        tracer = tracer if tracer is not None else Tracer()
        setting = self._settings.get(options or self.options, device, views)
        if inputs is not None:
            binding = self._binder.describe(self._binder.flatten(inputs), device)
        elif self.last_program is not None:
            binding = self.last_program.binding
        else:
            raise ExecutionOrderError("there was no call", hint="execute the fusion, or give inputs")
        question = self._question(setting, binding)
        kept = self._partitions.without(question.uncomputed, question.memory.input_layouts)
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
        """The kernels that would serve these inputs, without compiling them. Raises like `execute`."""
        binding = self._binder.describe(self._binder.flatten(inputs), device, needs_place=True)
        setting = self._settings.get(
            options or self.options, device if self._binder.is_placed_by_device else None, views
        )
        question = self._question(setting, binding)
        partitions = self._partitions.without(question.uncomputed, question.memory.input_layouts)
        return PlannedCall(partitions.select(question.call, tracer or SILENT, question.required), question)

    def _question(
        self,
        setting: Setting,
        binding: Binding,
        memory: Memory | None = None,
        stable: frozenset[Symbol] | None = None,
    ) -> Question:
        """The partition's input for a call.

        stable: the stable sizes. None: the sizes that earlier calls show to be stable.
        """
        if stable is None:
            stable = self._stable_sizes.at(binding.sizes) if setting.constant_sizes else NO_SIZES
        memory = memory or Memory(self.fusion, binding, self._layouts)
        views, empty = self._without_kernels(setting, binding, memory)
        hardware = setting.hardware_for(binding.device)
        call = call_of(self.fusion, binding, memory, stable, hardware, setting.horizontal)
        return Question(call, setting.excluded, memory, views, empty)

    def _without_kernels(
        self, setting: Setting, binding: Binding, memory: Memory
    ) -> tuple[Views, tuple[TensorView, ...]]:
        """The outputs of a call that are views of inputs, and those without elements."""
        views = self._views.find(binding) if setting.views else NO_VIEWS
        return views, () if self._as_defined else empty_outputs(self._fresh, memory, views)

    def segments(self, tracer: Tracer | None = None) -> SegmentedFusion:
        """The partition of the fusion into kernels, for any sizes."""
        return self._partitions.without(frozenset()).structural(tracer or Tracer())

    def _program(self, setting: Setting, inputs: Inputs, schedule: AnySchedule | None) -> BoundProgram | None:
        """The program that is bound to flat inputs; None if there is none, or if no call accepts them."""
        if has_no_memory(inputs):
            return None
        try:
            key = self.signature(inputs)
        except (AttributeError, TypeError, ValueError, RuntimeError):
            return None
        return setting.programs.find(key if schedule is None else (schedule, key))

    def _note_repeated(self, setting: Setting, inputs: Inputs, program: BoundProgram) -> None:
        """Called when `program` serves two calls in a row: the next call is first compared with these.

        The program keeps its matcher, so calls that take turns build each matcher once.
        """
        if program.matches is None:
            program.matches = matcher(self.fusion, self._binder.size_scalars.inputs, inputs)
        setting.repeated = program.matches, program

    # ---- a call with a new signature

    def _new(
        self,
        setting: Setting,
        schedule: AnySchedule | None,
        inputs: Inputs,
        tracer: Tracer | None,
        signature: tuple[Any, ...] | None,
    ) -> BoundProgram:
        """The program of flat inputs. `signature`: the signature of the inputs, if it is known."""
        is_silent = not setting.dumps and (tracer is None or tracer.is_silent)
        if signature is not None and schedule is None and is_silent:
            program = self._recall.find(setting, signature, inputs)
            if program is not None:
                if self._written:
                    self._check_written(inputs)
                return program
        return self._bound(setting, schedule, inputs, tracer, signature)

    def _bound(
        self,
        setting: Setting,
        schedule: AnySchedule | None,
        inputs: Inputs,
        tracer: Tracer | None,
        signature: tuple[Any, ...] | None = None,
    ) -> BoundProgram:
        """Checks the inputs and finds or makes their program.

        Two threads may bind the same program concurrently. Waiting would cost more than binding twice.

        signature: the signature of the inputs, if it is known.
        """
        tracer = tracer if tracer is not None else Tracer(setting.options, timing=False)
        with tracer.stage("bind"):
            binding = self._binder.bind(inputs, setting.device)
            if signature is None:
                signature = self.signature(inputs)
            if self._written:
                self._check_written(inputs)
        key: Hashable = signature if schedule is None else (schedule, signature)
        program = setting.programs.find(key)
        if program is None:
            program = self._make(setting, schedule, inputs, binding, tracer, signature)
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
        schedule: AnySchedule | None,
        inputs: Inputs,
        binding: Binding,
        tracer: Tracer,
        signature: tuple[Any, ...],
    ) -> BoundProgram:
        # A user's schedule of the whole fusion has no constant sizes.
        counts = setting.constant_sizes and not isinstance(schedule, FinishedSchedule)
        stable = self._stable_sizes.with_call(binding.sizes) if counts else NO_SIZES
        recalls = schedule is None and setting.options.policy is None
        place = self._place(setting, binding.device)
        memory = Memory(self.fusion, binding, self._layouts)
        repro = self._repro_of(inputs)
        call = NewCall(setting, place, schedule, binding, memory, stable, repro, tracer)

        def bind(chosen: Chosen) -> BoundProgram:
            kernels = [plan.op.kernel for plan in chosen.plans if isinstance(plan, LaunchPlan)]
            if len(kernels) > 1:
                place.target.load(kernels, tracer)
            with tracer.stage("host program"):
                return place.programs.bind(chosen, binding, memory, stable, tracer)

        def note(decided: Decided) -> None:
            if recalls:
                self._recall.note(setting, place, signature, binding, stable, decided, repro)

        program = self._served(call, bind, note)
        if setting.options.dump_dir is not None:
            dump_kernels(self.fusion, program, memory, setting.options)
        return program

    def _repro_of(self, inputs: Inputs) -> Callable[[], str]:
        return partial(self.repro, inputs) if self.repro is not None else str

    def _served(
        self, call: NewCall, use: Callable[[Chosen], Result], note: Callable[[Decided], None] | None = None
    ) -> Result:
        """The result of `use` on the steps that serve a call.

        If `use` raises a LaunchError, because a kernel cannot be launched for this call, other steps are
        tried, unless the user asked for these.

        note: called with the decision for the call, if later calls may reuse it.

        Raises:
            InternalError: a fault of Fusewright, with a script that reproduces the call.
        """
        schedule = call.schedule
        try:
            if isinstance(schedule, FinishedSchedule):
                return use(Chosen([call.steps(self.fusion).of_user(schedule)]))
            question = self._question(call.setting, call.binding, call.memory, call.stable)
            return served(self.fusion, call, schedule, self._partitions, question, use, note)
        except InternalError as error:
            error.repro = error.repro or call.repro() or None
            raise
        except FusewrightError:
            raise
        except FAULTS_OF_CODE as error:
            problem = f"{type(error).__name__}: {error}"
            raise InternalError(problem=problem, repro=call.repro() or None) from error

    def _place(self, setting: Setting, device: torch.device) -> DeviceState:
        def make() -> DeviceState:
            if device.type == "cuda":
                target: Target = CudaTarget(device, setting.options)
            else:
                target = SimulatedTarget(setting.options)
            programs = Programs(self.fusion, target, self._binder.size_scalars.static)
            return DeviceState(target, programs, setting.compiler)

        return setting.places.get(device, make)
