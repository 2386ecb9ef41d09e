"""The base of all parameter objects: how fields are declared, checked and validated."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NoReturn

from fusewright.core.declaration import shown
from fusewright.core.errors import ArgumentTypeError, FrozenParamsError, ParamsError
from fusewright.core.hardware import HardwareInfo
from fusewright.core.serialization import field_hints, read, unknown_field
from fusewright.schedulers.params.legal import Among, Legal

_KEY = "fusewright"
_PLAIN = (bool, int, float, str, types.NoneType)


@dataclass(frozen=True, slots=True)
class When:
    """The params for which a field has an effect; for others it must have its default.

    Attributes:
        otherwise: completes "expected {default} ..." in the error about another value, as in "without rows".
    """

    holds: Callable[[Any], bool]
    otherwise: str


@dataclass(frozen=True, slots=True)
class Choice:
    """The declaration of a field besides its type and default. See `choice`."""

    legal: Legal | None = None
    when: When | None = None
    reads_unset: Any = None

    def field(self, default: Any) -> Any:
        """The field of a dataclass that is declared so."""
        return dataclasses.field(default=default, metadata={_KEY: self})


def choice(
    default: Any, legal: Legal | None = None, when: When | None = None, reads_unset: Any = None
) -> Any:
    """Declares a field of a params class, as `dataclasses.field` does.

    Args:
        default: immutable.
        legal: the values that are legal whatever the other fields are. None: all values of a bool or an
            enumeration; else those of the type, of which a space tries only the default.
        when: the params for which the field has an effect. None: all.
        reads_unset: the value that an editable copy shows in place of the default, if nvFuser does.
    """
    return Choice(legal, when, reads_unset).field(default)


@dataclass(frozen=True, slots=True)
class Field:
    """One declared field of a params class."""

    name: str
    hint: Any
    default: Any
    choice: Choice

    @property
    def legal(self) -> Legal | None:
        """The declared legal values, or what the type says."""
        if self.choice.legal is not None:
            return self.choice.legal
        if self.hint is bool:
            return Among((False, True))
        if isinstance(self.hint, type) and issubclass(self.hint, enum.Enum):
            return Among(tuple(self.hint))
        return None


@dataclass(frozen=True, slots=True)
class _Checked:
    """A class whose constructor is checked.

    Attributes:
        fields: in order.
        types: of each field, those whose every value is right. Empty where a type alone does not say: tuples.
        is_right: whether all values of an object have such a type, or are the default.
    """

    fields: tuple[Field, ...]
    types: tuple[frozenset[type], ...]
    is_right: Callable[[Any], bool]


_checked: dict[type, _Checked] = {}


def _refuse_assignment(params: Any, name: str, *value: Any) -> NoReturn:
    cls = type(params)
    if not hasattr(cls, name):
        raise unknown_field(cls, name, [field.name for field in dataclasses.fields(cls)], name)
    raise FrozenParamsError(
        f"`{name}`: params are frozen",
        path=name,
        hint="dataclasses.replace makes changed ones; what fd.sched computes may be edited in schedule()",
    )


class _Constructed(type):
    """The metaclass of parameter classes: constructors and assignments reject unknown names by their path."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> type:
        # dataclass makes the class again, with slots; the method that it wrote asks for the class before it.
        if "__slots__" in namespace and "__setattr__" in namespace:
            namespace["__setattr__"] = namespace["__delattr__"] = _refuse_assignment
        return super().__new__(mcls, name, bases, namespace, **options)

    if not typing.TYPE_CHECKING:  # which would hide what each constructor takes

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            try:
                return super().__call__(*args, **kwargs)
            except TypeError:
                known = [field.name for field in dataclasses.fields(cls)]
                for name in kwargs:
                    if name not in known:
                        raise unknown_field(cls, name, known, name) from None
                try:
                    inspect.signature(cls.__init__).bind(None, *args, **kwargs)
                except TypeError as mismatch:  # of the call, not of what the constructor does
                    raise ArgumentTypeError(
                        function=cls.__name__,
                        expected=f"({', '.join(known)})",
                        given=f"{len(args)} values"
                        + "".join(f", {name}={kwargs[name]!r}" for name in kwargs),
                        hint=str(mismatch),
                    ) from None
                raise


def check_hardware(hardware: object) -> None:
    """Raises ParamsError unless this is the description of a GPU."""
    if not isinstance(hardware, HardwareInfo):
        raise ParamsError(path="hardware", expected="a HardwareInfo", given=repr(hardware))


class Decision(metaclass=_Constructed):
    """The base of parameter objects, which are frozen dataclasses.

    Their constructors accept what `from_dict` accepts and raise ParamsError for anything else.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        known = _checked.get(type(self)) or _check_of(type(self))
        if known.is_right(self):
            return
        for field, right in zip(known.fields, known.types):
            value = getattr(self, field.name)
            if type(value) not in right and (converted := read(field.hint, value, field.name)) is not value:
                object.__setattr__(self, field.name, converted)

    def validate(self, hardware: HardwareInfo) -> None:
        """Raises ParamsError for values with which no fusion can be scheduled on this GPU, and for values
        without effect: a field either has its meaning or its default.

        A class extends it with constraints between its fields.
        """
        check_hardware(hardware)
        for field in fields_of(type(self)):
            value, when = getattr(self, field.name), field.choice.when
            if when is not None and not when.holds(self):
                self.expect(field.name, field.default, when.otherwise)
            elif field.choice.legal is not None:
                field.choice.legal.check(field.name, value, hardware)
            if isinstance(value, Decision):
                try:
                    value.validate(hardware)
                except ParamsError as error:
                    error.move_into(field.name)
                    raise

    def expect(self, name: str, value: object, where: str = "for this fusion") -> None:
        """Raises ParamsError unless the field has the one value that works there."""
        self.require(getattr(self, name) == value, name, f"{shown(value)} {where}")

    def require(self, holds: bool, path: str, expected: str) -> None:
        """Raises ParamsError about the value at `path`, as `lparams.bdimx`, unless it is as expected."""
        if not holds:
            raise ParamsError(path=path, expected=expected, given=shown(attrgetter(path)(self)))


def fields_of(cls: type) -> tuple[Field, ...]:
    """The fields of a params class as they were declared."""
    return (_checked.get(cls) or _check_of(cls)).fields


def _check_of(cls: type) -> _Checked:
    fields = tuple(_fields(cls, field_hints(cls)))
    types = tuple(_right_types(field.hint) for field in fields)
    found = _checked[cls] = _Checked(fields, types, _generated_check(fields, types))
    return found


def _generated_check(fields: Sequence[Field], types: Sequence[frozenset[type]]) -> Callable[[Any], bool]:
    """`_Checked.is_right` as one expression. Planners make params in every call with a new size: this takes
    0.3 us for those of a reduction, a loop over the fields five times as long.
    """
    terms, names = ["True"], dict[str, Any]()
    for i, (field, right) in enumerate(zip(fields, types)):
        value = f"params.{field.name}"
        if not right:
            names[f"default{i}"] = field.default
            terms.append(f"{value} is default{i}")
        elif len(right) == 1:
            (names[f"type{i}"],) = right
            terms.append(f"type({value}) is type{i}")
        else:
            names[f"types{i}"] = right
            terms.append(f"type({value}) in types{i}")
    checked: Callable[[Any], bool] = eval(f"lambda params: {' and '.join(terms)}", names)
    return checked


def _fields(cls: Any, hints: Mapping[str, Any]) -> list[Field]:
    found = []
    for field in dataclasses.fields(cls):
        declared = field.metadata.get(_KEY) or Choice()
        found.append(Field(field.name, hints[field.name], field.default, declared))
    return found


def _right_types(hint: Any) -> frozenset[type]:
    """The types whose every value is one of `hint`; none where a type does not say."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        choices = [_right_types(choice) for choice in typing.get_args(hint)]
        return frozenset[type]().union(*choices) if all(choices) else frozenset()
    is_plain = isinstance(hint, type) and (
        hint in _PLAIN or issubclass(hint, enum.Enum) or dataclasses.is_dataclass(hint)
    )
    return frozenset({hint}) if is_plain else frozenset()
