"""Scheduling methods of tensors that are called while the definition is being written.

The fusion does not exist yet, so the calls are stored and executed when an execution schedules the
definition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fusewright.core.errors import SourceLocation, UserError, user_location
from fusewright.frontend.handles import Tensor
from fusewright.frontend.recorded.states import State

if TYPE_CHECKING:
    from fusewright.frontend.definition import FusionDefinition
    from fusewright.frontend.scheduling.operators import SchedOperators


class EarlyTensor(Tensor):
    """The future result of a stored call. It has no state before the call is made."""

    __slots__ = ()

    def __init__(self, fd: FusionDefinition, state: State) -> None:
        super().__init__(fd, -1, state)

    def __repr__(self) -> str:
        return f"Tensor(ndim={self.ndim}, made by scheduling)"


@dataclass(frozen=True, slots=True)
class _Call:
    method: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    result: EarlyTensor | None
    location: SourceLocation | None


class EarlySchedule:
    """The stored `calls` of one definition, in order."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls: list[_Call] = []

    def add(
        self,
        method: str,
        returns_tensor: bool,
        tensor: Tensor,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Tensor:
        """Stores a call of a tensor's method. Returns a stand-in for the method's result, or the tensor
        itself.
        """
        result = EarlyTensor(tensor._fd, tensor._state) if returns_tensor else None
        self.calls.append(_Call(method, (tensor, *args), kwargs, result, user_location()))
        return tensor if result is None else result

    def run(self, sched: SchedOperators) -> None:
        """Makes the calls. Errors name the lines that the user wrote."""
        made: dict[EarlyTensor, Tensor] = {}

        def actual(value: Any) -> Any:
            if isinstance(value, EarlyTensor):
                return made[value]
            if isinstance(value, (list, tuple, set, frozenset)):
                return type(value)(actual(item) for item in value)
            return value

        for call in self.calls:
            keywords = {name: actual(value) for name, value in call.kwargs.items()}
            try:
                result = getattr(sched, call.method)(*map(actual, call.args), **keywords)
            except UserError as error:
                error.location = call.location
                raise
            if call.result is not None:
                made[call.result] = result
