"""`fd.ops`: one method for each row of the table of operations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any, TypeVar

from fusewright.frontend.handles import USER_TYPES
from fusewright.frontend.help.signatures import dress, user_signature
from fusewright.frontend.help.unknown import unknown_operation
from fusewright.ops import OPS, REGISTERED, OpDef

if TYPE_CHECKING:
    from fusewright.frontend.definition import FusionDefinition
    from fusewright.frontend.methods import OperatorMethods
else:  # made below
    OperatorMethods = object


class Operators(OperatorMethods):
    """The operations of a definition, made from `fusewright.ops.OPS`. The methods of users' operations are
    made on demand.
    """

    __slots__ = ("_fd",)

    def __init__(self, fd: FusionDefinition) -> None:
        self._fd = fd

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            row = OPS.get(name)  # one that a user registered
            if row is None:
                raise unknown_operation(name, f"fd.ops.{name}")
            return MethodType(_method(row), self)

    def __dir__(self) -> list[str]:
        return list(OPS)

    def __repr__(self) -> str:
        return f"<fd.ops: {len(OPS)} operations, which dir(fd.ops) lists>"


F = TypeVar("F", bound=Callable[..., Any])


def recorded_by(row: OpDef) -> Callable[[F], F]:
    """Gives a method `(self, *args, **kwargs)` the parameters of the row that records its calls."""
    signature = user_signature(row.signature, USER_TYPES)
    return lambda method: dress(method, method.__qualname__, signature, inspect.getdoc(method) or "")


def _method(row: OpDef) -> Callable[..., Any]:
    def method(self: Operators, *args: Any, **kwargs: Any) -> Any:
        return self._fd._record(row, args, kwargs)

    dress(method, f"Operators.{row.name}", user_signature(row.signature, USER_TYPES), row.doc)
    return method


for _row in OPS.values():
    if _row.key in REGISTERED:
        continue
    setattr(Operators, _row.name, _method(_row))
