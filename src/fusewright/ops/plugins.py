"""Operations that users register: rows of the elementwise table, and builders."""

from __future__ import annotations

import contextlib
import functools
import keyword
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, overload

import torch

from fusewright.core.dtype import Category, DataType
from fusewright.core.errors import FusewrightError, OperationError, RegistrationError
from fusewright.core.op import ElementwiseOp
from fusewright.ir import Scalar, TensorView
from fusewright.ops.build_elementwise import RESULT_TYPE, register_row
from fusewright.ops.build_inputs import DEFINERS
from fusewright.ops.elementwise import add_row, remove_row
from fusewright.ops.registry import (
    OPS,
    OpDef,
    ScalarVector,
    builder_name,
    builder_signature,
    by_position,
    doc_of,
    register,
)

#: Every operation that was ever registered, by its key: definitions outlive registrations.
REGISTERED: dict[str, OpDef] = {}
#: By the same keys the module that registered it: another process has the operation once it imports that.
REGISTERED_BY: dict[str, str] = {}

Row = ElementwiseOp | Callable[..., Any]
_Given = TypeVar("_Given", bound=Row)
# What separates the name of a registered operation from the number of its registration, in its key.
_SEPARATOR = "~"
# What a row of each category is tried with.
_TRIED = {
    Category.BOOL: DataType.Bool,
    Category.INT: DataType.Int,
    Category.FLOAT: DataType.Float,
    Category.COMPLEX: DataType.ComplexFloat,
}


@overload
def register_op(operation: _Given) -> _Given: ...
@overload
def register_op(*, name: str | None = None) -> Callable[[_Given], _Given]: ...
def register_op(operation: Any = None, *, name: str | None = None) -> Any:
    """Makes an operation a method of `fd.ops`, of definitions from now on. With `name` alone, a decorator.

    Args:
        operation: an `ElementwiseOp`, which kernels are generated for; or a function that appends nodes to a
            `Fusion`, its first argument, and whose annotations say what others it takes.
        name: of the method; None: the row's, or the function's.

    Raises:
        RegistrationError: there is an operation of the name, or the row or function is none.
    """
    if operation is None:
        if name is not None:
            _check_name(name)
        return functools.partial(register_op, name=name)
    if isinstance(operation, ElementwiseOp):
        _check_name(name or operation.name)
        if name not in (None, operation.name):
            raise RegistrationError(
                what=f"the row {operation.name}", problem=f"it cannot be {name}: a row has a name of its own"
            )
        _check_row(operation)
        row = register_row(operation, _new_key(operation.name))
        add_row(operation)
    elif callable(operation) and not isinstance(operation, type):
        method = name or builder_name(operation)
        _check_name(method)
        signature = builder_signature(operation)
        build = _named(method, operation, by_position(operation, signature))
        row = register(OPS, method, signature, build, doc_of(operation), key=_new_key(method))
    else:
        raise RegistrationError(
            what=f"{operation!r:.60} as an operation",
            problem="expected an ElementwiseOp, or a function of a Fusion and the arguments",
        )
    REGISTERED[row.key] = row
    REGISTERED_BY[row.key] = _calling_module()
    return operation


def unregister_op(name: str) -> None:
    """Takes an operation out that was registered. Definitions that call it stay as they are.

    Raises:
        RegistrationError: no user registered one of this name.
    """
    row = OPS.get(name) if isinstance(name, str) else None
    if row is None or row.key not in REGISTERED:
        mine = [known for known, each in OPS.items() if each.key in REGISTERED]
        raise RegistrationError(
            f"{name!r} is no operation that register_op was given",
            expected=f"one of {', '.join(mine)}" if mine else "none is registered",
            given=name,
        )
    del OPS[name]
    remove_row(name)


@contextlib.contextmanager
def registered_op(operation: Row, name: str | None = None) -> Iterator[None]:
    """A block in which there is this operation; for all threads."""
    register_op(name=name)(operation)
    made = name or (operation.name if isinstance(operation, ElementwiseOp) else builder_name(operation))
    try:
        yield
    finally:
        if made in OPS:
            unregister_op(made)


def _new_key(name: str) -> str:
    """No two registrations have the same, so that nothing kept of a definition is served for another."""
    number = 1 + sum(key.rpartition(_SEPARATOR)[0] == name for key in REGISTERED)
    return f"{name}{_SEPARATOR}{number}"


def _calling_module() -> str:
    """The module whose code calls this one."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals["__name__"] in (__name__, contextlib.__name__):
        frame = frame.f_back
    return str(frame.f_globals["__name__"])


def _check_name(name: str) -> None:
    what = f"the operation {name!s:.60}"
    is_name = isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)
    if not is_name or name.startswith("_"):
        raise RegistrationError(what=what, problem="expected the name of a public method")
    if name in OPS or name in DEFINERS:
        hint = f"unregister_op({name!r}) first" if name in OPS and OPS[name].key in REGISTERED else None
        raise RegistrationError(what=what, problem="there is one of this name", hint=hint)


def _check_row(row: ElementwiseOp) -> None:
    what = f"the row {row.name}"
    if row.rule not in RESULT_TYPE:
        expected = ", ".join(rule.name for rule in RESULT_TYPE)
        raise RegistrationError(
            what=what, problem=f"expected one of the rules {expected}, got {row.rule.name}"
        )
    if not row.spellings:
        raise RegistrationError(what=what, problem="it has no spelling for any category of types")
    operands = [f"x{i}" for i in range(row.arity)]
    for category, spelling in row.spellings.items():
        try:
            spelling.render(operands, DataType.Float)
        except (KeyError, IndexError, ValueError) as error:
            raise RegistrationError(
                what=what,
                problem=f"the CUDA text for {category.name} uses {error}, got {spelling.cuda!r}",
                hint=f"the operands are {{0}} to {{{row.arity - 1}}}, the type is {{T}}",
            ) from error
        _check_values(row, _TRIED[category], what)


def _check_values(row: ElementwiseOp, dtype: DataType, what: str) -> None:
    """That the torch function computes each element of a result."""
    operands = [torch.ones(2, dtype=each.torch, device="cpu") for each in row.operand_dtypes(dtype)]
    expected = row.result_of(dtype).torch
    asked = f"the torch function for {dtype.category.name}"
    try:
        result = row.spelling(dtype).torch(*operands)
    except Exception as error:
        problem = f"{asked} failed: {type(error).__name__}: {error}"
        raise RegistrationError(what=what, problem=problem) from error
    is_tensor = isinstance(result, torch.Tensor)
    if not is_tensor or (result.dtype, tuple(result.shape)) != (expected, (2,)):
        found = f"{result.dtype} of {tuple(result.shape)}" if is_tensor else f"{result!r:.60}"
        raise RegistrationError(what=what, problem=f"{asked} has to return {expected} of (2,), not {found}")


def _named(name: str, builder: Callable[..., Any], build: Callable[..., Any]) -> Callable[..., Any]:
    """The builder, whose errors name it, and whose result is checked."""
    where = f"{builder.__module__}.{builder.__qualname__}"

    def named(*args: Any) -> Any:
        try:
            result = build(*args)
        except FusewrightError:
            raise
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            raise OperationError(name=name, builder=where, problem=problem) from error
        if not _is_result(result):
            problem = f"expected a TensorView, a Scalar, or a tuple or list of these, got {result!r:.80}"
            raise OperationError(name=name, builder=where, problem=problem)
        return result

    return named


def _is_result(value: Any) -> bool:
    if isinstance(value, (tuple, list)) and not isinstance(value, ScalarVector):
        return bool(value) and all(isinstance(item, (TensorView, Scalar, ScalarVector)) for item in value)
    return isinstance(value, (TensorView, Scalar, ScalarVector))
