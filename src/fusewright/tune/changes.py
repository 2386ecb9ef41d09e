"""Params as changes of other params: for the path of a field its value, or the factor of a number."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from math import log2
from typing import Any, TypeGuard

from fusewright.core.errors import ParamsError
from fusewright.core.serialization import to_dict
from fusewright.schedulers import HeuristicParams
from fusewright.schedulers.params import Decision


def fields_by_path(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The fields of params as a dict, including those of nested objects."""
    found: dict[str, Any] = {}
    for name, own in value.items():
        if isinstance(own, dict):
            found.update(fields_by_path(own, f"{prefix}{name}."))
        else:
            found[prefix + name] = own
    return found


def differences(base: Any, params: Any) -> dict[str, Any]:
    """The fields in which params differ from others, by path."""
    old, new = fields_by_path(to_dict(base)), fields_by_path(to_dict(params))
    return {path: value for path, value in new.items() if path != "reason" and old.get(path) != value}


def with_differences(base: Any, changes: Mapping[str, Any]) -> Any:
    """The params that differ so. ParamsError for fields or values that there are not."""
    own: dict[str, Any] = {"reason": ""} if isinstance(base, HeuristicParams) else {}
    nested: dict[str, dict[str, Any]] = {}
    for path, value in changes.items():
        name, dot, rest = path.partition(".")
        if dot:
            nested.setdefault(name, {})[rest] = value
        else:
            own[name] = value
    for name, inside in nested.items():
        part = getattr(base, name, None)
        if not isinstance(part, Decision):
            path = f"{name}.{next(iter(inside))}"
            expected = f"a field of {type(base).__name__}"
            raise ParamsError(path=path, expected=expected, given=f"the path {path!r}")
        try:
            own[name] = with_differences(part, inside)
        except ParamsError as error:
            error.move_into(name)
            raise
    return replace(base, **own)


def with_changes(base: Any, changes: Mapping[str, Any], length: int | None) -> Any:
    """The same with as many threads as rows, or columns, of this length take. None: nothing is reduced."""
    changed = with_differences(base, changes)
    return changed if length is None else changed.for_length(length)


def changes_of(base: Any, params: Any, length: int | None) -> dict[str, Any]:
    """The differences that do not follow from other fields and the length: `with_changes` reconstructs the
    params from them.
    """
    changes = differences(base, params)
    for path in [path for path in changes if path.startswith("lparams.")]:
        others = {name: value for name, value in changes.items() if name != path}
        if with_changes(base, others, length) == params:
            return others
    return changes


@dataclass(frozen=True, slots=True)
class Change:
    """Changes to any params.

    Attributes:
        values: new values, by path.
        factors: factors of numbers, by path.
    """

    values: dict[str, Any]
    factors: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def of(base: Any, changes: Mapping[str, Any]) -> Change:
        """With factors for numbers that become a power of two times as large, values for others."""
        factors = {
            path: value / known
            for path, value in changes.items()
            if _is_count(value)
            and _is_count(known := _value_at(base, path))
            and log2(value / known).is_integer()
        }
        return Change({path: value for path, value in changes.items() if path not in factors}, factors)

    def __len__(self) -> int:
        return len(self.values) + len(self.factors)

    def __str__(self) -> str:
        values = [f"{path} = {json.dumps(value)}" for path, value in self.values.items()]
        return ", ".join([*values, *(f"{path} *= {factor:g}" for path, factor in self.factors.items())])

    def fields(self, base: Any) -> dict[str, Any]:
        """The new values of params. ParamsError: a number cannot be multiplied, or would not be positive."""
        found = dict(self.values)
        for path, factor in self.factors.items():
            value = _value_at(base, path)
            product = value * factor if _is_count(value) else 0.0
            if product < 1 or product != int(product):
                expected = f"a number that can be multiplied by {factor:g}"
                raise ParamsError(path=path, expected=expected, given=value)
            found[path] = int(product)
        return found


def _value_at(params: Any, path: str) -> Any:
    """What params have at a path; None: there is no such field."""
    return reduce(lambda part, name: getattr(part, name, None), path.split("."), params)


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
