"""`fd.sched`: the scheduling primitives on the handles of a definition, and the automatic schedulers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fusewright.core.enums import ParallelType
from fusewright.core.errors import ArgumentTypeError, DefinitionError
from fusewright.frontend.handles import USER_TYPES, Tensor
from fusewright.frontend.help.signatures import dress, user_signature
from fusewright.frontend.help.unknown import unknown_method
from fusewright.frontend.mesh import DeviceMesh, check_mesh, check_rotation
from fusewright.frontend.recorded.origins import explained
from fusewright.frontend.recorded.states import State, StateKind
from fusewright.frontend.scheduling.automatic import AutomaticOperators
from fusewright.frontend.scheduling.primitives import Primitive
from fusewright.frontend.scheduling.workbench import UserSchedule
from fusewright.ir import TensorView
from fusewright.ir.text import scheduled_text
from fusewright.ops import describe_argument
from fusewright.schedule import Schedule
from fusewright.schedule.transforms import wrap

if TYPE_CHECKING:
    from fusewright.frontend.definition import FusionDefinition
    from fusewright.frontend.methods import SchedulingMethods
else:  # made below
    SchedulingMethods = object

#: Names of nvFuser's -> the primitives that they are.
OTHER_NAMES: Mapping[str, str] = {"reduction_factor": "rfactor"}

NOT_DEFINED = "User schedule is not defined."


class SchedOperators(AutomaticOperators, SchedulingMethods):
    """Primitives that act on the schedule being written; see `Schedule` for each of them.

    They are valid only inside `schedule()`, or between `_setup_schedule` and `_finalize_schedule`.
    """

    def __init__(self, fd: FusionDefinition) -> None:
        self._fd = fd

    def __repr__(self) -> str:
        """What was scheduled so far, as Python."""
        user = self._fd._open_schedule
        return "<fd.sched: no schedule is open>" if user is None else user.to_python()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise unknown_method("fd.sched", name, (n for n in dir(self) if not n.startswith("_")))

    def _open(self) -> UserSchedule:
        """The schedule that is being written. DefinitionError if there is none."""
        if self._fd._leaf is None:
            raise DefinitionError("Attempting to use a SchedOperators Op prior to definition!")
        if self._fd._open_schedule is None:
            raise DefinitionError(
                "Attempting to use a SchedOperators Op outside of a schedule!",
                hint="call it in schedule(), or between _setup_schedule and _finalize_schedule",
            )
        return self._fd._open_schedule

    def _handle(self, tensor: TensorView) -> Tensor:
        state = State(StateKind.TENSOR, tensor.dtype, tensor.ndim)
        return Tensor(self._fd, self._open().index_of(tensor), state)

    def _tensor(self, function: str, tensor: Any) -> TensorView:
        """The tensor of the workbench that a handle stands for."""
        if not isinstance(tensor, Tensor):
            raise ArgumentTypeError(
                function=function, expected="tensor: Tensor", given=describe_argument(tensor)
            )
        return self._unwrapped(tensor)

    def _unwrapped(self, value: Any) -> Any:
        """Arguments with handles replaced by the tensors of the workbench, numbers of numpy by Python's."""
        if isinstance(value, Tensor):
            if value._fd is not self._fd:
                raise DefinitionError(f"{value!r} belongs to another definition")
            return self._open().tensor(value.index)
        if isinstance(value, (list, tuple, set, frozenset)):
            return type(value)(self._unwrapped(item) for item in value)
        if isinstance(value, dict):
            return {self._unwrapped(key): self._unwrapped(item) for key, item in value.items()}
        return int(value) if isinstance(value, np.integer) else value

    def _wrapped(self, result: Any) -> Any:
        """A primitive's result with handles for its tensors."""
        if isinstance(result, list):
            return [self._wrapped(item) for item in result]
        return self._handle(result) if isinstance(result, TensorView) else result

    # ---- looking

    def tensors(self) -> list[Tensor]:
        """All tensors of the fusion, including those inside composite operations."""
        return [self._handle(tensor) for tensor in self._open().current.schedule.tensors()]

    def tensor(self, name: str | int) -> Tensor:
        """A tensor by its name in `to_python`, or by its number in a kernel's text.

        Raises:
            ScheduleError: there is no such tensor in what is being scheduled.
        """
        if not isinstance(name, (str, int)) or isinstance(name, bool):
            raise ArgumentTypeError(
                function="tensor", expected="name: str or int", given=describe_argument(name)
            )
        return self._handle(self._open().current.tensor(name))

    def siblings(self, tensor: Tensor) -> list[Tensor]:
        """The tensors that one node computes together with this one, including itself, such as those of
        Welford.
        """
        user = self._open()
        return [self._handle(t) for t in user.current.schedule.siblings(self._tensor("siblings", tensor))]

    def segment(self, index: int) -> None:
        """Schedules kernel `index` of the automatic partition from now on, in launch order.

        Before the first such call the whole definition is scheduled, as it was defined, as one kernel.
        After it, the primitives act on that kernel's part, in the form that automatic schedulers see: its
        views are moved to loads and stores. Kernels that are not scheduled so are scheduled automatically.

        Raises:
            ScheduleError: there is no such kernel, or torch computes it.
        """
        if type(index) is not int:
            raise ArgumentTypeError(function="segment", expected="index: int", given=describe_argument(index))
        self._open().segment(index)

    def is_reduction(self, tensor: Tensor) -> bool:
        """Whether computing the tensor, no input, reduces an axis."""
        return self._open().current.schedule.is_reduction(self._tensor("is_reduction", tensor))

    def to_string(self, tensor: Tensor) -> str:
        """The tensor with its loop axes."""
        return str(self._tensor("to_string", tensor))

    def user_schedule_ir(self) -> str:
        """The scheduled fusion as text."""
        if self._fd._open_schedule is None:
            return NOT_DEFINED
        return scheduled_text(self._fd._open_schedule.current.schedule.fusion)

    # ---- devices

    def set_device_mesh(self, tensor: Tensor, mesh: DeviceMesh) -> None:
        """Puts a tensor on a mesh of one device, where the call runs, so nothing changes.

        Raises:
            ScheduleError: a mesh of several devices.
        """
        self._tensor("set_device_mesh", tensor)
        check_mesh(mesh)

    _set_device_mesh = set_device_mesh

    def swizzle1d(self, tensor: Tensor, x: int, parallel_type: ParallelType) -> None:
        """Rotates a loop axis by the index of the device along a mesh axis: on one device, by 0.

        Raises:
            ScheduleError: there is no such axis. ArgumentTypeError: no mesh axis.
        """
        check_rotation(parallel_type)
        if type(x) is not int:
            raise ArgumentTypeError(function="swizzle1d", expected="x: int", given=describe_argument(x))
        wrap(x, len(self._tensor("swizzle1d", tensor).loop))

    # ---- text

    def to_python(self) -> str:
        """What is scheduled so far, as the text of a function `schedule(fd)` that does the same."""
        return self._open().to_python()


def _method(name: str, primitive_name: str) -> Callable[..., Any]:
    primitive = Primitive.of(primitive_name)

    @explained
    def call(self: SchedOperators, *args: Any, **kwargs: Any) -> Any:
        arguments = [self._unwrapped(a) for a in args]
        keywords = {k: self._unwrapped(v) for k, v in kwargs.items()}
        return self._wrapped(primitive(self._open().current.schedule, arguments, keywords))

    signature = user_signature(primitive.typed_signature, USER_TYPES)
    return dress(call, f"SchedOperators.{name}", signature, primitive.doc)


for _name in Schedule.PRIMITIVES:
    setattr(SchedOperators, _name, _method(_name, _name))
for _name, _primitive in OTHER_NAMES.items():
    setattr(SchedOperators, _name, _method(_name, _primitive))
