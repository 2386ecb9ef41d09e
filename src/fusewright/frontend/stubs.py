"""The type declarations of everything that is made from tables at run time: `methods.pyi`, beside this file.

The methods of `fd.ops` and the operators of handles come from the rows of operations, the methods of
`fd.sched` and of tensors from the primitives, and the editable copies of params from their classes.
`./dev stubs` (`python -m fusewright.frontend.stubs`) writes the file; a test compares it with `stub_text()`.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import json
import re
import textwrap
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from fusewright import schedulers
from fusewright.core import enums
from fusewright.core.declaration import attributes
from fusewright.core.dtype import DataType
from fusewright.core.errors import OptionError
from fusewright.frontend import handles
from fusewright.frontend.handles import USER_TYPES, Scalar, Tensor
from fusewright.frontend.help.signatures import user_signature, user_type, without_first
from fusewright.frontend.operators import Operators
from fusewright.frontend.scheduling.operators import OTHER_NAMES, SchedOperators
from fusewright.frontend.scheduling.primitives import KEYWORDS, OWN_KEYWORDS
from fusewright.ops import OPS, REGISTERED, OpDef
from fusewright.ops import registry as kinds
from fusewright.schedule import Schedule
from fusewright.schedulers import HeuristicParams, default_registry, is_built_in, type_name

STUB = Path(__file__).with_name("methods.pyi")

# As the formatter breaks lines.
LINE_LENGTH = 110

_HEADER = '"""Written by `./dev stubs`, for type checkers: what is made from tables at run time."""'
_ALIASES = """\
Number = bool | int | float | complex
DtypeLike = DataType | torch.dtype | type[bool] | type[int] | type[float] | type[complex]"""

# Unions that declarations call by name, the wider before the narrower.
_NAMED = {
    name: user_type(hint, USER_TYPES)
    for name, hint in (
        ("Operand", kinds.Operand),
        ("ScalarLike", kinds.ScalarLike),
        ("Shape", kinds.Shape),
        ("Dims", kinds.Dims),
        ("Contiguity", kinds.Contiguity),
        ("Values", kinds.Values),
    )
}
_NUMBER = bool | int | float | complex
_EMPTY = inspect.Parameter.empty


# ---- types as text -----------------------------------------------------------------------------------------


def _union_text(members: Sequence[Any], names: Mapping[str, Any]) -> str:
    left, found = list(members), []
    for name, alias in names.items():
        parts = typing.get_args(alias)
        if all(part in left for part in parts):
            left = [m for m in left if m not in parts]
            found.append(name)
    is_none = types.NoneType in left
    found += [_type_text(m) for m in left if m is not types.NoneType]
    return " | ".join([*found, *(["None"] if is_none else [])])


def _type_text(hint: Any) -> str:
    """A type as the stub writes it. What `DataType` stands for as a parameter is `_parameter`'s."""
    if isinstance(hint, str):
        return hint
    if hint is None or hint is types.NoneType:
        return "None"
    if hint is tuple:
        return "tuple[Any, ...]"
    if hint is Any or hint is object:
        return "Any" if hint is Any else "object"
    if hint is typing.NoReturn:
        return "NoReturn"
    origin = typing.get_origin(hint)
    if origin is None:
        return str(hint.__name__)
    arguments = typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _union_text(arguments, {**_NAMED, "Number": _NUMBER})
    inner = ["..." if a is ... else _type_text(a) for a in arguments]
    if origin is collections.abc.Callable:
        return f"Callable[{', '.join(inner)}]"
    return f"{origin.__name__}[{', '.join(inner)}]"


def _alias_text(name: str) -> str:
    narrower = list(_NAMED)[list(_NAMED).index(name) + 1 :]
    names = {n: _NAMED[n] for n in narrower if n == "ScalarLike"}
    return f"{name} = {_union_text(typing.get_args(_NAMED[name]), {**names, 'Number': _NUMBER})}"


def _default_text(value: object) -> str:
    if isinstance(value, Enum):
        text = f"{type(value).__name__}.{value.name}"
        return text if value.name.isidentifier() else "..."
    if isinstance(value, str):
        return json.dumps(value)
    return repr(value) if isinstance(value, (bool, int, float, tuple, type(None))) else "..."


# ---- methods as text ---------------------------------------------------------------------------------------


def _parameter(parameter: inspect.Parameter) -> str:
    hint = parameter.annotation
    if hint is DataType:
        text = "DtypeLike"
    elif hint == DataType | None:
        text = "DtypeLike | None"
    elif hint == Sequence[DataType]:
        text = "Sequence[DtypeLike]"
    else:
        text = _type_text(hint)
    default = "" if parameter.default is _EMPTY else f" = {_default_text(parameter.default)}"
    return f"{parameter.name}: {text}{default}"


def _parameters(signature: inspect.Signature) -> list[str]:
    """The parameters, with the markers of those that are given by position or by keyword alone."""
    parameters = signature.parameters.values()
    by_position = [p for p in parameters if p.kind is inspect.Parameter.POSITIONAL_ONLY]
    by_keyword = [p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    either = [p for p in parameters if p not in by_position and p not in by_keyword]
    texts = ["self", *map(_parameter, by_position), *(["/"] if by_position else [])]
    return [*texts, *map(_parameter, either), *(["*"] if by_keyword else []), *map(_parameter, by_keyword)]


def _definition(name: str, signature: inspect.Signature, doc: str, note: str = "") -> list[str]:
    """The lines of one signature; `note` is a comment for type checkers."""
    result = _type_text(signature.return_annotation)
    parameters = _parameters(signature)
    one_line = f"    def {name}({', '.join(parameters)}) -> {result}:"
    if len(one_line) + (0 if doc else 4) <= LINE_LENGTH:
        lines = [one_line]
    else:
        lines = [f"    def {name}(", *(f"        {p}," for p in parameters), f"    ) -> {result}:"]
    if not doc:
        lines[-1] += " ..." + note
        return lines
    quoted = doc.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    body = f'"""{quoted}"""' if "\n" not in doc else f'"""{quoted}\n"""'
    return [*lines, *textwrap.indent(body, " " * 8).splitlines()]


def _method(name: str, signatures: Sequence[inspect.Signature], doc: str = "", note: str = "") -> list[str]:
    """A method, overloaded if it has several signatures."""
    if len(signatures) == 1:
        return _definition(name, signatures[0], doc, note)
    lines = []
    for i, signature in enumerate(signatures):
        lines += [f"    @overload{note}", *_definition(name, signature, "" if i else doc)]
    return lines


def _with_body(method: list[str]) -> list[str]:
    """A method of a module: one that has a docstring alone, as overloads do not in the end, gets a body."""
    return method if method[-1].endswith("...") else [*method, " " * 8 + "..."]


def _class(name: str, doc: str, methods: Iterable[list[str]]) -> list[str]:
    return [f"class {name}:", f'    """{doc}"""', "", *(line for method in methods for line in method), ""]


# ---- operations --------------------------------------------------------------------------------------------


def _renamed(signature: inspect.Signature, names: Mapping[str, str]) -> inspect.Signature:
    parameters = [p.replace(name=names.get(p.name, p.name)) for p in signature.parameters.values()]
    return signature.replace(parameters=parameters)


def _by_operands(signature: inspect.Signature) -> list[inspect.Signature]:
    """One signature for each kind of result: of several operands one Tensor makes the result a Tensor.

    What makes the result a union otherwise is a value, which no declaration can tell: it is Any.
    """
    result = signature.return_annotation
    if typing.get_origin(result) not in (typing.Union, types.UnionType):
        return [signature]
    if result != Tensor | Scalar:
        return [signature.replace(return_annotation=Any)]
    parameters = list(signature.parameters.values())
    operands = [i for i, p in enumerate(parameters) if p.annotation == _NAMED["Operand"]]
    found = []
    for i in operands:
        given = [p.replace(annotation=Tensor) if i == j else p for j, p in enumerate(parameters)]
        found.append(signature.replace(parameters=given, return_annotation=Tensor))
    scalar = _NAMED["ScalarLike"]
    given = [p.replace(annotation=scalar) if i in operands else p for i, p in enumerate(parameters)]
    return [*found, signature.replace(parameters=given, return_annotation=Scalar)]


@cache
def _row_signatures(row: OpDef) -> tuple[inspect.Signature, ...]:
    """All ways to call an operation: its overloads, its signature, and that with other keywords."""
    signature = user_signature(row.signature, USER_TYPES)
    found = _by_operands(signature)
    if row.aliases:
        found += _by_operands(_renamed(signature, {name: alias for alias, name in row.aliases.items()}))
    overloads = []
    for names, result in row.overloads.items():
        parameters = [signature.parameters[n].replace(default=_EMPTY) for n in names]
        overloads.append(inspect.Signature(parameters, return_annotation=user_type(result, USER_TYPES)))
    # The first that fits says what is returned.
    is_exact = found[0].return_annotation is not Any
    return (*found, *overloads) if is_exact else (*overloads, *found)


def _operations() -> Iterator[list[str]]:
    for row in OPS.values():
        if row.name in vars(Operators):  # not those that users register
            yield _method(row.name, _row_signatures(row), row.doc)


def _operator(
    name: str, row: OpDef, kind: type, reflected: bool = False
) -> tuple[str, list[inspect.Signature]] | None:
    """The operator of handles of a kind that records `row`; None if the row takes none of these."""
    found = []
    for signature in map(_by_position, _row_signatures(row)):
        parameters = list(signature.parameters.values())
        own = parameters.pop() if reflected else parameters.pop(0)
        if kind not in (own.annotation, *typing.get_args(own.annotation)):
            continue
        if reflected:  # by anything but a number, the operator of the left operand is asked first
            if not set(typing.get_args(_NUMBER)) <= set(typing.get_args(parameters[0].annotation)):
                continue
            parameters = [parameters[0].replace(annotation=_NUMBER)]
        found.append(signature.replace(parameters=parameters))
    return (f"__{'r' * reflected}{name}__", _distinct(found)) if found else None


def _by_position(signature: inspect.Signature) -> inspect.Signature:
    """Operands of an operator have no keywords."""
    only = inspect.Parameter.POSITIONAL_ONLY
    return signature.replace(parameters=[p.replace(kind=only) for p in signature.parameters.values()])


def _distinct(signatures: Sequence[inspect.Signature]) -> list[inspect.Signature]:
    """Those that take something which none before takes."""

    def taken(signature: inspect.Signature) -> set[Any]:
        hints = [p.annotation for p in signature.parameters.values()]
        return {member for hint in hints for member in typing.get_args(hint) or (hint,)}

    by_width = sorted(signatures, key=lambda s: -len(taken(s)))
    found: list[inspect.Signature] = []
    for signature in by_width:
        same = [f for f in found if f.return_annotation == signature.return_annotation]
        if not any(taken(signature) <= taken(f) for f in same):
            found.append(signature)
    return found


def _operators(kind: type) -> Iterator[list[str]]:
    tables = handles.BINARY_OPERATORS | handles.COMPARISONS | handles.UNARY_OPERATORS
    for name, operation in tables.items():
        sides = (False, True) if name in handles.BINARY_OPERATORS else (False,)
        for found in (_operator(name, OPS[operation], kind, side) for side in sides):
            if found is not None:
                yield _method(*found)
    other = Scalar if kind is Tensor else Tensor
    for name in ("eq", "ne"):  # `handles._comparison`
        yield [
            "    @overload  # type: ignore[override]",
            f"    def __{name}__(self, other: {kind.__name__}, /) -> bool: ...",
            "    @overload",
            f"    def __{name}__(self, other: {other.__name__}, /) -> Tensor: ...",
            "    @overload",
            f"    def __{name}__(self, other: Number | torch.Tensor, /) -> {kind.__name__}: ...",
        ]
    yield ["    def __hash__(self) -> int: ..."]


# ---- primitives --------------------------------------------------------------------------------------------


def _keywords(names: Mapping[str, str], signature: inspect.Signature) -> dict[str, str]:
    """The workbench's keywords of a primitive -> the reference's."""
    return {ours: theirs for theirs, ours in names.items() if ours in signature.parameters}


def _ways(primitive: str, signature: inspect.Signature) -> list[inspect.Signature]:
    """The ways to call a primitive: with the workbench's keywords and with the reference's."""
    reference = _keywords(KEYWORDS, signature)
    own = _keywords(OWN_KEYWORDS.get(primitive, {}), signature)
    ways = [{}, {k: v for k, v in reference.items() if k == "tensor"}]
    ways += [{k: v for k, v in reference.items() if k != "tensor"}, reference]
    if own:
        ways += [own, {**reference, **own}]
    return [_renamed(signature, names) for i, names in enumerate(ways) if names not in ways[:i]]


def _primitives(owner: type) -> Iterator[list[str]]:
    """The methods of a class that are primitives, as the class has them at run time."""
    for name, method in vars(owner).items():
        primitive = OTHER_NAMES.get(name, name)
        if primitive in Schedule.PRIMITIVES:
            signature = without_first(inspect.signature(method))
            yield _method(name, _ways(primitive, signature), inspect.getdoc(method) or "")


# ---- params ------------------------------------------------------------------------------------------------


def _params_classes() -> list[type]:
    """Every class of params with the dataclasses that these nest, what is nested first."""
    found: dict[type, None] = {}

    def visit(cls: type) -> None:
        for hint in typing.get_type_hints(cls).values():
            if dataclasses.is_dataclass(hint) and isinstance(hint, type):
                visit(hint)
        found[cls] = None

    for cls in vars(schedulers).values():
        if isinstance(cls, type) and issubclass(cls, HeuristicParams):
            visit(cls)
    return list(found)


def _editable(cls: type) -> Iterator[list[str]]:
    """The fields of a class of params, open to assignment, and what it has besides."""
    hints, nested = typing.get_type_hints(cls), set(_params_classes())
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        if hint in nested:
            editable, taken = f"Editable{hint.__name__}", f"{hint.__name__} | Editable{hint.__name__}"
            value = inspect.Parameter("value", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=taken)
            getter = inspect.Signature(return_annotation=editable)
            setter = inspect.Signature([value], return_annotation=None)
            yield ["    @property", *_definition(field.name, getter, "")]
            yield [f"    @{field.name}.setter", *_definition(field.name, setter, "")]
        else:
            yield [f"    {field.name}: {_type_text(hint)}"]
    for name, attribute in attributes(cls).items():
        yield [f"    {name}: {_type_text(attribute.hint)}"]
    for name, member in inspect.getmembers(cls, lambda m: isinstance(m, property)):
        result = typing.get_type_hints(member.fget)["return"]
        yield ["    @property", f"    def {name}(self) -> {_type_text(result)}: ..."]
    yield ["    def update(self, fields: Mapping[str, Any]) -> None: ..."]
    yield [f"    def freeze(self) -> {cls.__name__}: ..."]


def _heuristics() -> Iterator[list[str]]:
    """`compute_heuristics`, by the type of the scheduler, in both forms."""
    rows = [
        (f'Literal[SchedulerType.{name}, "{name}"]', f"Editable{scheduler.params_type.__name__}")
        for scheduler in default_registry()
        if is_built_in(scheduler) and (name := type_name(scheduler.type))
    ]
    rows.append(("SchedulerType | str", "Any"))
    for before, after in (([], []), (["fusion: FusionDefinition"], ["inputs: Sequence[Any]"])):
        for taken, made in rows:
            parameters = ["self", *before, f"scheduler_type: {taken}", *after]
            broken = [f"        {parameter}," for parameter in parameters]
            yield ["    @overload", "    def compute_heuristics(", *broken, f"    ) -> {made}: ..."]


# ---- the file ----------------------------------------------------------------------------------------------


def _import(module: str, names: Iterable[str]) -> list[str]:
    listed = sorted(names, key=str.lower)
    if not listed:
        return []
    line = f"from {module} import {', '.join(listed)}"
    if len(line) <= LINE_LENGTH:
        return [line]
    return [f"from {module} import (", *(f"    {name}," for name in listed), ")"]


def _names_in(body: str) -> set[str]:
    """The words of declarations, without those of docstrings."""
    return set(re.findall(r"\w+", re.sub(r'"""(.|\n)*?"""', "", body)))


def _imports(body: str) -> Iterator[str]:
    """What declarations name, from where users' types are defined."""
    used = _names_in(body)
    names = ("Callable", "Collection", "Mapping", "Sequence")
    yield from _import("collections.abc", used.intersection(names))
    yield from _import("typing", used.intersection(("Any", "Literal", "NoReturn", "overload")))
    yield from ["", *(["import torch"] if "torch" in used else []), ""]
    yield from _import("fusewright.core.dtype", used.intersection(["DataType"]))
    members = {name for name, value in vars(enums).items() if isinstance(value, type)}
    yield from _import("fusewright.core.enums", used & members)
    yield from _import("fusewright.frontend.definition", used.intersection(["FusionDefinition"]))
    yield from _import("fusewright.frontend.handles", used.intersection(["Scalar", "Tensor", "Vector"]))
    yield from _import("fusewright.schedulers", used.intersection(cls.__name__ for cls in _params_classes()))
    yield ""


def stub_text() -> str:
    """The text of `methods.pyi`."""
    lines = [_ALIASES, *(_alias_text(name) for name in reversed(_NAMED)), ""]
    lines += _class("OperatorMethods", "The operations: the methods of `fd.ops`.", _operations())
    lines += _class(
        "SchedulingMethods", "The primitives: methods of `fd.sched`.", _primitives(SchedOperators)
    )
    lines += _class("HeuristicMethods", "What depends on the type of a scheduler.", _heuristics())
    own = [*_operators(Tensor), *_primitives(Tensor)]
    lines += _class("TensorMethods", "Operators, and primitives on the tensor.", own)
    lines += _class("ScalarMethods", "Operators.", _operators(Scalar))
    for cls in _params_classes():
        doc = f"A {cls.__name__} whose fields may be assigned."
        lines += _class(f"Editable{cls.__name__}", doc, _editable(cls))
    body = "\n".join(lines).rstrip() + "\n"
    return "\n".join([_HEADER, "", *_imports(body), body])


# ---- operations that users register ------------------------------------------------------------------------

_TYPED = """\
\"\"\"Written by `fusewright ops --typed`: definitions to which registered operations are declared, too.\"\"\"

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fusewright import FusionDefinition

if TYPE_CHECKING:
{imports}

{operations}
    class RegisteredOperators(Operators, RegisteredOperations):
        \"\"\"All operations.\"\"\"


class {name}(FusionDefinition):
    \"\"\"A definition as any other, at run time.\"\"\"

    if TYPE_CHECKING:
        ops: RegisteredOperators
"""


def registered_text(name: str = "Definition") -> str:
    """A module for type checkers: a class of definitions whose `ops` also declare users' operations.

    Args:
        name: of that class.

    Raises:
        OptionError: nothing is registered.
    """
    rows = [row for row in OPS.values() if row.key in REGISTERED]
    if not rows:
        raise OptionError("there is no registered operation to declare", hint="--plugin names what has some")
    # In a module a declaration needs a body besides its docstring, for checkers that look at it.
    methods = [_with_body(_method(row.name, _row_signatures(row), row.doc)) for row in rows]
    operations = "\n".join(_class("RegisteredOperations(Protocol)", "Those that are registered.", methods))
    imports = [line for line in _imports(operations) if line]
    named = _names_in(operations).intersection((*_NAMED, "Number", "DtypeLike"))
    imports += _import("fusewright.frontend.methods", named)
    imports += _import("fusewright.frontend.operators", ["Operators"])
    return _TYPED.format(
        imports=textwrap.indent("\n".join(imports), " " * 4),
        operations=textwrap.indent(operations, " " * 4),
        name=name,
    )


if __name__ == "__main__":
    STUB.write_text(stub_text(), encoding="utf-8")
