"""`fd.ops`: one method for each row of the table of operations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fusewright.core.errors import UnknownOpError
from fusewright.ops import OPS, OpDef

if TYPE_CHECKING:
    from fusewright.frontend.definition import FusionDefinition

__all__ = ["Operators"]


class Operators:
    """The operations of a definition. The methods are made from `fusewright.ops.OPS`."""

    __slots__ = ("_fd",)

    def __init__(self, fd: FusionDefinition) -> None:
        self._fd = fd

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Any]: ...

    else:

        def __getattr__(self, name: str) -> Any:
            raise UnknownOpError(name=name, known=", ".join(OPS))

    def __dir__(self) -> list[str]:
        return list(OPS)


def _method(row: OpDef) -> Callable[..., Any]:
    def method(self: Operators, *args: Any, **kwargs: Any) -> Any:
        return self._fd._record(row, args, kwargs)

    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__name__ = row.name
    method.__qualname__ = f"Operators.{row.name}"
    method.__doc__ = row.doc
    method.__signature__ = row.signature.replace(  # type: ignore[attr-defined]
        parameters=[first, *row.signature.parameters.values()]
    )
    return method


for _row in OPS.values():
    setattr(Operators, _row.name, _method(_row))
