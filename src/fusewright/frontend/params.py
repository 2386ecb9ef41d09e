"""Heuristic parameters that a user may assign to: a mutable copy of frozen ones."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from fusewright.core.errors import ParamsError
from fusewright.core.serialization import from_dict

__all__ = ["EditableParams"]


class EditableParams:
    """The fields of a frozen params object, nested ones included, open to assignment.

    `freeze()` checks the types of all fields and gives the frozen object.
    """

    def __init__(self, params: Any) -> None:
        vars(self)["_type"] = type(params)
        for field in dataclasses.fields(params):
            value = getattr(params, field.name)
            is_nested = dataclasses.is_dataclass(value) and not isinstance(value, type)
            vars(self)[field.name] = EditableParams(value) if is_nested else value

    if TYPE_CHECKING:  # the fields

        def __getattr__(self, name: str) -> Any: ...

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in vars(self) or name == "_type":
            fields = ", ".join(k for k in vars(self) if k != "_type")
            raise ParamsError(path=name, expected=f"one of {fields}", given=f"the name {name!r}")
        is_frozen = dataclasses.is_dataclass(value) and not isinstance(value, type)
        vars(self)[name] = EditableParams(value) if is_frozen else value

    def _plain(self) -> dict[str, Any]:
        return {
            name: value._plain() if isinstance(value, EditableParams) else value
            for name, value in vars(self).items()
            if name != "_type"
        }

    def freeze(self) -> Any:
        """The frozen object. ParamsError, with the path of the field, for a value of a wrong type."""
        return from_dict(vars(self)["_type"], self._plain())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, EditableParams):
            return bool(self.freeze() == other.freeze())
        return bool(self.freeze() == other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.freeze())
