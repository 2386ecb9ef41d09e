"""`FusionDefinition`: defines a computation, then runs it."""

from __future__ import annotations

import inspect
import io
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import torch
from torch.compiler import is_dynamo_compiling

from fusewright.core.call_sites import CallSite, call_site
from fusewright.core.dtype import DataType, from_torch
from fusewright.core.enums import CommunicatorBackend
from fusewright.core.errors import (
    ArgumentTypeError,
    DefinitionError,
    FusewrightError,
    MissingDefinitionError,
    ProfileError,
    ScheduleError,
    UnsupportedDeviceError,
    warn_user,
)
from fusewright.core.forks import renew_in_child
from fusewright.core.options import Options
from fusewright.core.tracing import Tracer
from fusewright.frontend.described import Described
from fusewright.frontend.descriptors import compute_tensor_descriptor
from fusewright.frontend.handles import Handle, Scalar, Tensor, Vector, handle_for
from fusewright.frontend.help.advice import advice
from fusewright.frontend.help.callbacks import called
from fusewright.frontend.inputs import Device, Inputs, device_named, flattened, is_empty, is_strides, listed
from fusewright.frontend.inspection import Inspected
from fusewright.frontend.mesh import ONE_DEVICE
from fusewright.frontend.operator import PLAIN, CalledByTorch, acts_by_itself, call_operator, modes_on
from fusewright.frontend.operators import Operators, recorded_by
from fusewright.frontend.pickling import pickled
from fusewright.frontend.recorded.cache import FusionCache
from fusewright.frontend.recorded.fusion_schedules import FusionSchedules
from fusewright.frontend.recorded.origins import explain
from fusewright.frontend.recorded.printing import describe
from fusewright.frontend.recorded.recording import Recorder
from fusewright.frontend.recorded.records import Record, Ref, encode
from fusewright.frontend.recorded.states import Container
from fusewright.frontend.scheduling.early_schedule import EarlySchedule
from fusewright.frontend.scheduling.operators import SchedOperators
from fusewright.frontend.scheduling.user_schedules import Scheduled
from fusewright.frontend.segments.definitions import GivenSchedules, Segmented, segment_schedules
from fusewright.frontend.tuned.active_tuning import ACTIVE
from fusewright.host import AnySchedule, FusionExecutor
from fusewright.host.inputs.memory_checks import not_dense
from fusewright.host.profile import FusionProfile
from fusewright.ops import DEFINERS, OpDef, describe_argument
from fusewright.schedulers import Registry

if TYPE_CHECKING:
    from fusewright.frontend.methods import DtypeLike, Number

MAX_RECORDS = 9999
"""The default limit of a definition's length, nvFuser's."""


NO_OPTIONS: Sequence[str] = ()
#: The bools of `execute`, in the order in which they are checked.
FLAGS = ("override_user_schedule", "capture_debug_output", "print_repro", "profile", "save_repro_inputs")

D = TypeVar("D", bound="FusionDefinition")


def _check_flags(*flags: object) -> None:
    """Raises ArgumentTypeError for one of the `FLAGS` that is no bool."""
    for flag in flags:
        if flag is not False and flag is not True:
            name = next(name for name, given in zip(FLAGS, flags) if given is flag)
            raise ArgumentTypeError(
                function="execute", expected=f"{name}: bool", given=describe_argument(flag)
            )


class FusionDefinition(Inspected, Described, Scheduled, Segmented, CalledByTorch):
    """A computation over tensors, its cache entry, and the methods that run it.

    Write it either in a block::

        with FusionDefinition() as fd:
            x = fd.define_tensor([-1, -1])
            fd.add_output(fd.ops.sum(x * 2.0, [1]))
        (out,) = fd.execute([torch.randn(4, 8)])

    or as a subclass that overrides `definition` and, to schedule it by hand, `schedule`.

    Args:
        id: the id of a cached definition, which this object then represents.
        max_length: the maximum number of records.
        options: of this definition; None: those of the environment.
        registry: the schedulers that segmentation and `sched` ask; None: the default registry.
    """

    def __init__(
        self,
        id: int | None = None,
        max_length: int = MAX_RECORDS,
        use_multidevice_executor: bool = False,
        backend_type: CommunicatorBackend = CommunicatorBackend.nccl,
        *,
        options: Options | None = None,
        registry: Registry | None = None,
    ) -> None:
        for name, value, kind in (
            ("id", id, int),
            ("max_length", max_length, int),
            ("use_multidevice_executor", use_multidevice_executor, bool),
            ("backend_type", backend_type, CommunicatorBackend),
            ("options", options, Options),
            ("registry", registry, Registry),
        ):
            if not (isinstance(value, kind) or (value is None and name in ("id", "options", "registry"))):
                raise ArgumentTypeError(
                    function="FusionDefinition",
                    expected=f"{name}: {kind.__name__}",
                    given=describe_argument(value),
                )
        if use_multidevice_executor or hasattr(self, "multidevice_schedule"):
            name = "use_multidevice_executor" if use_multidevice_executor else "multidevice_schedule"
            raise DefinitionError(f"{name}: {ONE_DEVICE}", expected="schedule(), or none")
        self.ops = Operators(self)
        self.sched = SchedOperators(self)
        self._max_length = max_length
        self._registry = registry
        #: where the user wrote each record; of a definition that was looked up by its id nowhere
        self._call_sites: list[CallSite | None] = []
        self._given_options = options if options is not None else Options.from_environment()
        self._tracer = Tracer(self._given_options, timing=False)
        self._recorder: Recorder | None = None
        self._leaf: FusionSchedules | None = None if id is None else FusionCache.get().schedules(id)
        self._failed = False
        self._ran: FusionExecutor | None = None
        # Held by the thread that writes the definition of a subclass, or a schedule.
        self._writing = threading.RLock()
        self._begin_schedules()
        self._begin_segments()
        renew_in_child(self)
        self._debug_output: str | None = None
        self._profile: FusionProfile | None = None
        self._repro_inputs: tuple[list[Any], dict[str, Any]] | None = None

    if not TYPE_CHECKING:  # to type checkers there is no such attribute

        def __getattr__(self, name: str) -> Any:
            if "_writing" not in self.__dict__ and (name in ("ops", "sched") or name[:1] == "_" != name[1:2]):
                raise DefinitionError(
                    problem=f"{type(self).__name__}.__init__ has not called FusionDefinition.__init__",
                    hint="super().__init__() comes first",
                )
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
            )

    @property
    def _options(self) -> Options:
        """With the policy that is in force."""
        return ACTIVE.options(self._given_options) if ACTIVE.has_policy else self._given_options

    def renew(self) -> None:
        """In a child of `fork`: discards what another thread was writing; it is written again on demand."""
        if not self._writing.acquire(blocking=False):
            self._writing = threading.RLock()
            self._recorder = self._open_schedule = None
            self._in_schedule = False
        else:
            self._writing.release()

    # ---- life cycle

    def definition(self) -> None:
        """What a subclass overrides to write its computation down."""
        raise MissingDefinitionError(
            "Fusion does not exist! Use `with FusionDefinition() as fd: ...` to define a fusion.",
            hint="a block that ended in an error leaves none" if self._failed else "or override definition()",
        )

    def __enter__(self: D) -> D:
        if self._leaf is not None:
            raise DefinitionError("Attempting to add to a completed definition!")
        self._check_written()
        self._recorder = Recorder(FusionCache.get(), self._max_length)
        self._early = EarlySchedule()
        self._call_sites = []
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        recorder, self._recorder = self._recorder, None
        self._failed = kind is not None
        if kind is None and recorder is not None:
            self._leaf = recorder.complete()
            self._tracer.dump("definition", self.__repr__)
            self._tracer.dump("fusion", self.fusion_ir)

    def _complete(self) -> FusionSchedules:
        """The cached definition, made now if a subclass has yet to write it."""
        if self._leaf is None:
            with self._writing:
                if self._leaf is None:
                    with self:
                        called(f"{type(self).__name__}.definition", self.definition)
        assert self._leaf is not None
        return self._leaf

    def _complete_from(self, records: Sequence[Record], sites: Sequence[CallSite | None]) -> None:
        """Makes these records the definition; `sites`: where the user wrote each, if that is known."""
        recorder = Recorder(FusionCache.get(), max(self._max_length, len(records)))
        for record in records:
            recorder.record(record)
        self._call_sites = list(sites)
        self._leaf = recorder.complete()

    def _empty_like(self) -> FusionDefinition:
        """A definition of nothing yet, with the options and schedulers of this one."""
        return FusionDefinition(options=self._given_options, registry=self._registry)

    def _plain_twin(self) -> FusionDefinition:
        """A definition like this one, complete, without anything of the user's."""
        twin = FusionDefinition()
        twin._leaf = self._complete()
        return twin

    def __reduce__(self) -> Any:
        return pickled(self, FusionDefinition)

    # ---- recording

    def _record(self, row: OpDef, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Records one call and returns its handles."""
        recorder = self._recorder
        if recorder is None:
            if self._leaf is not None:
                raise DefinitionError("Attempting to add to a completed definition!")
            raise DefinitionError(
                f"{row.name}: Attempting to add to a definition that has not begun!",
                hint="call it in `with FusionDefinition() as fd:`, or in definition()",
            )
        values = row.bind(args, kwargs)
        try:
            encoded = tuple([encode(value, self._ref) for value in values])
        except TypeError:
            raise row.mismatch(args, kwargs, advice(row.parameters, values)) from None
        first, outcome = recorder.record(Record(row.key, encoded))
        self._call_sites.append(call_site())
        if outcome.container is Container.NONE:
            return None
        handles = [handle_for(self, first + i, state) for i, state in enumerate(outcome.states)]
        if outcome.container is Container.ONE:
            return handles[0]
        return handles if outcome.container is Container.LIST else tuple(handles)

    def _ref(self, value: Any) -> Ref | None:
        if not isinstance(value, Handle):
            return None
        if value._fd is not self:
            raise DefinitionError(f"{value!r} belongs to another definition")
        return Ref(value.index)

    @overload
    def define_tensor(
        self,
        shape: Sequence[int],
        contiguity: bool | Sequence[bool | None] = False,
        dtype: DtypeLike = DataType.Float,
        is_cpu: bool = False,
        stride_order: Sequence[int] = (),
    ) -> Tensor: ...
    @overload
    def define_tensor(
        self,
        sizes: Sequence[int],
        strides: Sequence[int],
        dtype: DtypeLike = DataType.Float,
        static_sizes: bool = False,
        is_cpu: bool = False,
    ) -> Tensor: ...
    @recorded_by(DEFINERS["define_tensor"])
    def define_tensor(self, *args: Any, **kwargs: Any) -> Tensor:
        """The next input, a tensor.

        Either `(shape, contiguity=False, dtype=Float, is_cpu=False, stride_order=[])` or
        `(sizes, strides, dtype=Float, static_sizes=False, is_cpu=False)`. For the first see
        `ops.build_inputs.define_tensor`; in the second every size but 1 becomes -1 unless `static_sizes`.
        """
        if "sizes" in kwargs or "strides" in kwargs or is_strides(args[1:2]):
            try:
                given = _STRIDED.bind(self, *args, **kwargs)
            except TypeError as error:
                raise ArgumentTypeError(
                    function="define_tensor",
                    expected="(sizes, strides, dtype=Float, static_sizes=False, is_cpu=False)",
                    given=f"({', '.join([*map(describe_argument, args), *kwargs])})",
                    hint=str(error),
                ) from None
            return self._define_strided(*given.args[1:], **given.kwargs)
        return self._record(DEFINERS["define_tensor"], args, kwargs)

    def _define_strided(
        self,
        sizes: Sequence[int],
        strides: Sequence[int],
        dtype: DataType = DataType.Float,
        static_sizes: bool = False,
        is_cpu: bool = False,
    ) -> Tensor:
        row = DEFINERS["define_tensor"]
        for name, value in (("sizes", sizes), ("strides", strides)):
            if not (is_strides((value,)) or is_empty(value)):
                raise row.mismatch((), {"sizes": sizes, "strides": strides}, f"{name} must be a list of ints")
        if not isinstance(static_sizes, bool):
            raise row.mismatch((), {"static_sizes": static_sizes}, "static_sizes must be a bool")
        contiguity, stride_order = compute_tensor_descriptor(sizes, strides)
        shape = [size if static_sizes or size == 1 else -1 for size in sizes]
        return self._record(row, (shape, contiguity, dtype, is_cpu, stride_order), {})

    @overload
    def define_scalar(self, dtype: DtypeLike = DataType.Double, /) -> Scalar: ...
    @overload
    def define_scalar(self, value: Number | None = None, dtype: DtypeLike | None = None) -> Scalar: ...
    @recorded_by(DEFINERS["define_scalar"])
    def define_scalar(self, *args: Any, **kwargs: Any) -> Scalar:
        """`(dtype=Double)`, `(None, dtype)`: the next input, a scalar. `(value, dtype=None)`: a constant."""
        return self._record(DEFINERS["define_scalar"], args, kwargs)

    def define_constant(self, value: Number, dtype: DtypeLike | None = None) -> Scalar:
        """The old name of `define_scalar` with a value."""
        warn_user("define_constant is now define_scalar", DeprecationWarning)
        return self.define_scalar(value, dtype)

    @overload
    def define_vector(self, size: int, dtype: DtypeLike = DataType.Int) -> Vector: ...
    @overload
    def define_vector(
        self, values: int | Sequence[int | Scalar], dtype: DtypeLike = DataType.Int
    ) -> Vector: ...
    @recorded_by(DEFINERS["define_vector"])
    def define_vector(self, *args: Any, **kwargs: Any) -> Vector:
        """`(size)`: that many Int inputs. `(values, dtype=Int)`: of these ints (>= -1) and Scalars."""
        if "size" in kwargs:
            args, kwargs = (kwargs.pop("size"), *args), kwargs
        return self._record(DEFINERS["define_vector"], args, kwargs)

    def from_pytorch(self, tensor: torch.Tensor, static_sizes: bool = False) -> Tensor:
        """`define_tensor` for a tensor like this one; one of rank 0 on the CPU is a host scalar.

        Raises:
            UnsupportedDeviceError: it is neither on a CPU nor on a CUDA device.
            ArgumentTypeError: it is no dense tensor. DtypeError: fusions have no such dtype.
        """
        if not isinstance(tensor, torch.Tensor):
            raise ArgumentTypeError(
                function="from_pytorch", expected="a torch.Tensor", given=type(tensor).__name__
            )
        described = not_dense(tensor)
        if described is not None:
            given, hint = described
            raise ArgumentTypeError(
                function="from_pytorch", expected="a dense tensor", given=given, hint=hint
            )
        if tensor.device.type not in ("cpu", "cuda"):
            raise UnsupportedDeviceError(given=tensor.device.type)
        is_cpu = tensor.device.type == "cpu" and tensor.ndim == 0
        dtype = from_torch(tensor.dtype)
        return self._define_strided(tensor.shape, tensor.stride(), dtype, static_sizes, is_cpu)

    @overload
    def add_output(
        self, output: Tensor, alias_input: Tensor | None = None, stride_order: Sequence[int] = ()
    ) -> None: ...
    @overload
    def add_output(self, output: Tensor, stride_order: Sequence[int]) -> None: ...
    @recorded_by(DEFINERS["add_output"])
    def add_output(self, *args: Any, **kwargs: Any) -> None:
        """The next output: `(output)`, `(output, alias_input)` or `(output, stride_order)`.

        With `alias_input`, an input of the definition, the output is written into that input's memory and not
        returned, unless the same tensor is an output without alias too.
        """
        self._record(DEFINERS["add_output"], args, kwargs)

    # ---- running

    def execute(
        self,
        inputs: Inputs,
        *,
        device: Device | None = None,
        override_user_schedule: bool = False,
        capture_debug_output: bool = False,
        print_repro: bool = False,
        profile: bool = False,
        save_repro_inputs: bool = False,
        schedules: GivenSchedules | None = None,
        tune: Literal["fast", "full"] | float | None = None,
        _enable_options: Sequence[str] = NO_OPTIONS,
        _disable_options: Sequence[str] = NO_OPTIONS,
    ) -> list[torch.Tensor]:
        """Runs the definition and returns its outputs, except those that alias an input.

        Inside torch.compile and under dispatch modes it is one operation; for fake tensors it returns fake
        outputs. Arguments that inspect a call (capture, print, profile or save) have no effect in compiled
        graphs.

        Args:
            inputs: tensors and numbers, one per input; a list or tuple stands for its elements.
            device: where to run if no input is a tensor.
            override_user_schedule: schedule automatically, even if the user wrote a schedule.
            capture_debug_output: store the output of FUSEWRIGHT_DUMP in `debug_output()` instead of printing
                it.
            print_repro: first print a script that reproduces this call.
            profile: time each kernel, for `profile()`. The user's schedule is written anew, even if there is
                one for such inputs.
            save_repro_inputs: record the properties of the inputs, for `last_repro_script()`.
            schedules: for some of the kernels of this call, one of: params of their scheduler; a dict or JSON
                text of params, or of the fields that differ from its choice; a function of the definition
                that schedules the kernel with `fd.sched`, as `last_schedule` prints it. The keys are
                positions of kernels in launch order, or definitions that `segment` made of them. Has no
                effect in compiled graphs.
            tune: first search for better params of the kernels of this call: "fast", "full", or a number of
                seconds. Later calls like this one use the results (docs/tuning.md).
            _enable_options, _disable_options: switches for this call, in addition to the environment's.

        Raises:
            UserError: inputs that do not fit the definition. Inputs and caches are then unchanged.
        """
        _check_flags(override_user_schedule, capture_debug_output, print_repro, profile, save_repro_inputs)
        observed = capture_debug_output or print_repro or profile or save_repro_inputs
        observed = observed or schedules is not None or tune is not None
        call = override_user_schedule, _enable_options, _disable_options
        if is_dynamo_compiling() or (modes_on() and not observed):
            return call_operator(self, inputs, device, *call)
        arguments = inputs if isinstance(inputs, (list, tuple)) else listed(inputs)
        for value in arguments:
            if value.__class__ not in PLAIN:
                arguments = flattened(arguments)
                if not observed and any(map(acts_by_itself, arguments)):
                    return call_operator(self, arguments, device, *call)
                break
        place = None if device is None else device_named(device)
        if save_repro_inputs or print_repro:
            self._describe_inputs(arguments, save_repro_inputs, print_repro, *call[1:])
        stream = io.StringIO() if capture_debug_output else None
        try:
            if tune is not None or ACTIVE.every is not None:
                self._tune(arguments, place, tune)
            return self._execute(
                arguments,
                place,
                override_user_schedule,
                _enable_options,
                _disable_options,
                stream,
                profile,
                schedules=schedules,
            )
        except FusewrightError as error:
            self._explain(error)
            raise
        finally:
            if stream is not None:
                self._debug_output = stream.getvalue()

    def _tune(self, arguments: Inputs, place: torch.device | None, effort: Any = None) -> None:
        """Searches for params of a call of flat inputs; effort: None: as each call has."""
        if ACTIVE.tune is not None:
            ACTIVE.tune(self, arguments, place, effort)

    def _execute(
        self,
        arguments: Inputs,
        place: torch.device | None,
        automatic: bool,
        enable: Sequence[str],
        disable: Sequence[str],
        stream: io.StringIO | None = None,
        profile: bool = False,
        views: bool = True,
        schedules: GivenSchedules | None = None,
    ) -> list[torch.Tensor]:
        """`execute` of flat inputs, here and now; `stream` takes the dumps.

        `views`: whether outputs may be views of inputs.
        """
        if self._segmentation is not None:
            call = {
                "automatic": automatic,
                "enable": enable,
                "disable": disable,
                "stream": stream,
                "profile": profile,
            }
            outputs, found = self._execute_segments(arguments, place, views, call, schedules)
            self._profile = self._profile if found is None else found
            return outputs
        leaf = self._leaf if self._leaf is not None else self._complete()
        executor = leaf.executor if self._registry is None else leaf.executor_for(self._registry)
        self._ran = executor
        options, tracer = self._given_options, self._tracer
        if ACTIVE.has_policy:
            options = ACTIVE.options(options)
        if enable is not NO_OPTIONS or disable is not NO_OPTIONS:
            options = options.with_switches(enable, disable)
        schedule: AnySchedule | None = None
        if schedules is not None:
            given = segment_schedules(schedules)
            schedule = self._given_for(leaf, given, arguments, place, views)
        elif not automatic and self._is_scheduled:
            schedule = self._user_schedule(leaf, arguments, place, rebuild=profile, views=views)
        if stream is not None:
            tracer = Tracer(options, stream)
        try:
            if not profile:
                return executor.execute(
                    arguments,
                    device=place,
                    options=options,
                    tracer=tracer,
                    user_schedule=schedule,
                    views=views,
                )
            outputs, self._profile = executor.profile(
                arguments,
                device=place,
                options=options,
                tracer=tracer,
                user_schedule=schedule,
                fusion_id=leaf.id,
            )
            return outputs
        except ScheduleError:
            # The next call writes it anew.
            if schedule is not None and schedules is None and self._has_schedule:
                self._schedules(leaf).forget(self._signature(leaf, arguments, place))
            raise

    def _explain(self, error: FusewrightError) -> None:
        """Has an error that this definition led to show the user's lines of what it names."""
        if self._leaf is not None:
            explain(error, self._leaf.records, self._leaf.outcomes, self._call_sites)

    def profile(self) -> FusionProfile:
        """The profile of the last call with `profile=True`. ProfileError, a ValueError, if there was none."""
        if self._profile is None:
            raise ProfileError("fd.profile() has nothing to show", hint="fd.execute(inputs, profile=True)")
        return self._profile

    @property
    def profiled(self) -> bool:
        """Whether there is a profile."""
        return self._profile is not None

    def debug_output(self) -> str | None:
        """What the last call with `capture_debug_output` printed."""
        return self._debug_output

    def _describe_inputs(
        self, arguments: Inputs, save: bool, show: bool, enable: Sequence[str], disable: Sequence[str]
    ) -> None:
        if save:
            options = {"_enable_options": list(enable), "_disable_options": list(disable)}
            self._repro_inputs = ([describe(value) for value in arguments], options)
        if show:
            print(self.repro_script_for(arguments))


_STRIDED = inspect.signature(FusionDefinition._define_strided)
