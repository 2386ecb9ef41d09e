"""Heuristic parameters that users can change: a mutable copy of frozen ones, and dicts of their fields."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

from fusewright.core.declaration import Derived, attributes
from fusewright.core.enums import SchedulerType
from fusewright.core.errors import ParamsError
from fusewright.core.hardware import HardwareInfo
from fusewright.core.serialization import field_hints, from_dict, read, unknown_field
from fusewright.schedulers import type_name
from fusewright.schedulers.base import Scheduler
from fusewright.schedulers.params import Choice, Decision, fields_of


class EditableParams:
    """The attributes of a frozen params object, including nested ones, open to assignment.

    An assignment checks the type, and that the value is legal whatever the other fields are. A derived
    attribute may be assigned the value that it will have; `freeze()`, which returns the frozen object, checks
    that.

    Args:
        params: a dataclass.
        hardware: the GPU whose limits apply; None: `validate` checks limits.
        path: the position of this object in the outer one, for errors.
    """

    if TYPE_CHECKING:  # the attributes

        def __getattr__(self, name: str) -> Any: ...

    else:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # asked for by copy and pickle, before there are fields
                raise AttributeError(name)
            values = self._values
            if name in values:
                value, declared = values[name], self._choices.get(name)
                reads_unset = declared is not None and declared.reads_unset is not None
                return declared.reads_unset if reads_unset and value == self._defaults[name] else value
            if name in self._stated:
                return self._stated[name]
            if not hasattr(self._type, name):
                known = (*values, *attributes(self._type))
                raise AttributeError(str(unknown_field(self._type, name, known, f"{self._path}{name}")))
            return getattr(self._made(), name)

    def __init__(self, params: Any, hardware: HardwareInfo | None = None, path: str = "") -> None:
        own = vars(self)
        own["_type"], own["_hardware"] = type(params), hardware
        own["_path"] = f"{path}." if path else ""
        declared = fields_of(type(params)) if isinstance(params, Decision) else ()
        own["_choices"] = {field.name: field.choice for field in declared}
        own["_defaults"] = {field.name: field.default for field in declared}
        own["_stated"] = {}
        own["_values"] = {
            field.name: self._held(field.name, getattr(params, field.name))
            for field in dataclasses.fields(params)
        }

    def _held(self, name: str, value: Any) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return EditableParams(value, self._hardware, f"{self._path}{name}")
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        path, others = f"{self._path}{name}", attributes(self._type)
        if isinstance(value, EditableParams):
            value = value.freeze()
        if name in self._values:
            value = read(field_hints(self._type)[name], value, path)
            self._check(name, value, path)
            self._values[name] = self._held(name, value)
        elif name in others:
            value = read(others[name].hint, value, path)
            if isinstance(others[name], Derived):
                self._stated[name] = value
            else:
                others[name].expect(None, value, path)
        else:
            raise unknown_field(self._type, name, (*self._values, *others), path)

    def _check(self, name: str, value: Any, path: str) -> None:
        declared: Choice | None = self._choices.get(name)
        if declared is not None and declared.legal is not None and self._hardware is not None:
            declared.legal.check(path, value, self._hardware)

    def update(self, fields: Mapping[str, Any]) -> None:
        """Assigns what a dict has; a nested one leaves the other fields of the nested object as they are.

        Raises:
            ParamsError: naming the path of a field that is not there or takes no such value.
        """
        for name, value in fields.items():
            current = self._values.get(name)
            if isinstance(value, Mapping) and isinstance(current, EditableParams):
                current.update(value)
            elif isinstance(name, str):
                setattr(self, name, value)
            else:
                raise unknown_field(self._type, name, self._values, f"{self._path}{name}")

    def _made(self) -> Any:
        """The frozen object, whatever was stated of what follows."""
        plain = {
            name: value._made() if isinstance(value, EditableParams) else value
            for name, value in self._values.items()
        }
        try:
            return from_dict(self._type, plain)
        except ParamsError as error:
            if self._path:
                error.move_into(self._path[:-1])
            raise

    def freeze(self) -> Any:
        """The frozen object.

        Raises:
            ParamsError: an attribute was assigned that the fields it follows from do not give.
        """
        made = self._made()
        for name, value in self._stated.items():
            attributes(self._type)[name].expect(made, value, f"{self._path}{name}")
        for value in self._values.values():
            if isinstance(value, EditableParams):
                value.freeze()
        return made

    def __eq__(self, other: object) -> bool:
        if isinstance(other, EditableParams):
            return bool(self.freeze() == other.freeze())
        return bool(self.freeze() == other)

    __hash__ = None  # type: ignore[assignment]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._values, *attributes(self._type)})

    def __repr__(self) -> str:
        return repr(self._made())


class GivenFields:
    """A dict of params, or of some of their fields, that a user gives a kernel. Equal to its copies.

    Besides fields it may have "scheduler", the name of a scheduler, and "type", that of the params class, as
    in `SegmentKernel.to_dict`.

    Args:
        path: where the user gave it, for errors.
    """

    def __init__(self, fields: Mapping[str, Any], path: str = "") -> None:
        self._fields = copy.deepcopy(dict(fields))
        self._path = path
        self._key = path, _hashable(self._fields)

    @classmethod
    def from_json(cls, text: str, path: str) -> GivenFields:
        """What JSON text has. ParamsError if it is no object."""
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ParamsError(path=path, expected="JSON", given=f"{text!r:.60} ({error})") from None
        if not isinstance(fields, dict):
            raise ParamsError(path=path, expected="a JSON object", given=f"{text!r:.60}")
        return cls(fields, path)

    def put_into(self, params: Any, scheduler: Scheduler, hardware: HardwareInfo) -> Any:
        """`params`, which this scheduler chose, with the fields of the dict in place of its own.

        Raises:
            ParamsError: the dict is for another scheduler, or has an invalid field, whose path the message
                names.
        """
        fields = dict(self._fields)
        for entry, own in (("scheduler", type_name(scheduler.type)), ("type", type(params).__name__)):
            given = fields.pop(entry, own)
            if (type_name(given) if isinstance(given, SchedulerType) else given) != own:
                path = f"{self._path}.{entry}" if self._path else entry
                raise ParamsError(path=path, expected=own, given=repr(given))
        editable = EditableParams(params, hardware, self._path)
        editable.update(fields)
        return editable.freeze()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GivenFields) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def _hashable(value: Any) -> Hashable:
    """Equal for equal plain values of the same types."""
    if isinstance(value, Mapping):
        return tuple([(_hashable(name), _hashable(item)) for name, item in value.items()])
    if isinstance(value, (list, tuple)):
        return type(value), tuple(map(_hashable, value))
    return type(value), value if isinstance(value, Hashable) else repr(value)
