"""The arguments of the methods of `fd.sched`: nvFuser's keywords, and a kind for each parameter."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fusewright.core.enums import CacheOp, LoadStoreOpType, MemoryType, ParallelType
from fusewright.core.errors import ArgumentTypeError
from fusewright.ir import TensorView
from fusewright.ops import describe_argument
from fusewright.schedule import Schedule

#: Keywords of the reference -> those of the workbench.
KEYWORDS: Mapping[str, str] = {
    "arg": "tensor",
    "selected_tensors": "selected",
    "selected_parallel_types": "types",
}

#: A primitive -> those that the reference's direct front end has for it alone.
OWN_KEYWORDS: Mapping[str, Mapping[str, str]] = {
    "split": {"axis": "dim"},
    "merge": {"axis_o": "dim", "axis_i": "inner"},
    "rfactor": {"axes": "dims"},
    "warp_specialize": {"tv": "tensor"},
    **{name: {"reference_tv": "tensor"} for name in ("transform_like", "parallelize_like", "inline_at")},
}


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _collection_of(kind: type) -> Callable[[object], bool]:
    def accepts(value: object) -> bool:
        return isinstance(value, (list, tuple, set, frozenset)) and all(isinstance(v, kind) for v in value)

    return accepts


def _instance_of(kind: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kind)


# What the primitives declare their parameters as -> what messages call it, and whether a value is one.
_KINDS: Mapping[object, tuple[str, Callable[[object], bool]]] = {
    TensorView: ("Tensor", _instance_of(TensorView)),
    int: ("int", _is_int),
    int | None: ("int", lambda v: v is None or _is_int(v)),
    bool: ("bool", _instance_of(bool)),
    Sequence[int] | None: (
        "list of ints",
        lambda v: v is None or (isinstance(v, (list, tuple)) and all(map(_is_int, v))),
    ),
    Sequence[int]: ("list of ints", lambda v: isinstance(v, (list, tuple)) and all(map(_is_int, v))),
    Mapping[int, int]: (
        "dict of ints to ints",
        lambda v: isinstance(v, Mapping) and all(map(_is_int, (*v.keys(), *v.values()))),
    ),
    Collection[TensorView]: ("list of Tensors", _collection_of(TensorView)),
    Collection[ParallelType]: ("set of ParallelTypes", _collection_of(ParallelType)),
    **{
        kind: (kind.__name__, _instance_of(kind))
        for kind in (CacheOp, LoadStoreOpType, MemoryType, ParallelType)
    },
}


@dataclass(frozen=True, slots=True)
class Primitive:
    """One scheduling primitive: its function, signature, and the kind of each parameter."""

    function: Callable[..., Any]
    signature: inspect.Signature
    kinds: Mapping[str, tuple[str, Callable[[object], bool]]]

    @staticmethod
    def of(name: str) -> Primitive:
        """The primitive of `Schedule` with this name."""
        function = getattr(Schedule, name)
        hints = typing.get_type_hints(function)
        signature = inspect.signature(function)
        return Primitive(function, signature, {n: _KINDS[hints[n]] for n in list(signature.parameters)[1:]})

    @property
    def doc(self) -> str:
        return inspect.getdoc(self.function) or ""

    @property
    def typed_signature(self) -> inspect.Signature:
        """What it takes after the schedule, and returns; annotations are types."""
        hints = typing.get_type_hints(self.function)
        parameters = list(self.signature.parameters.values())[1:]
        return inspect.Signature(
            [p.replace(annotation=hints[p.name]) for p in parameters], return_annotation=hints["return"]
        )

    def __call__(self, schedule: Schedule, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Applies it; tensors are those of the schedule.

        Raises:
            ArgumentTypeError: arguments that it does not take.
        """
        ours = {**KEYWORDS, **OWN_KEYWORDS.get(self.function.__name__, {})}
        keywords = {ours.get(name, name): value for name, value in kwargs.items()}
        if len(keywords) < len(kwargs):
            raise self._mismatch(args, kwargs, "two of these keywords name one argument")
        try:
            given = self.signature.bind(schedule, *args, **keywords)
        except TypeError as error:
            raise self._mismatch(args, kwargs, str(error)) from None
        for name, (text, accepts) in self.kinds.items():
            if name in given.arguments and not accepts(given.arguments[name]):
                problem = f"{name} must be {text}, not {describe_argument(given.arguments[name])}"
                raise self._mismatch(args, kwargs, problem)
        return self.function(schedule, *args, **keywords)

    def _mismatch(self, args: Sequence[Any], kwargs: Mapping[str, Any], hint: str) -> ArgumentTypeError:
        expected = ", ".join(
            f"{name}: {text}" + ("" if default is inspect.Parameter.empty else f" = {_default_text(default)}")
            for name, (text, _) in self.kinds.items()
            for default in (self.signature.parameters[name].default,)
        )
        given = [describe_argument(a) for a in args]
        given += [f"{name}: {describe_argument(value)}" for name, value in kwargs.items()]
        return ArgumentTypeError(
            function=self.function.__name__,
            expected=f"({expected})",
            given=f"({', '.join(given)})",
            hint=hint,
        )


def _default_text(default: object) -> str:
    return str(getattr(default, "name", default))
