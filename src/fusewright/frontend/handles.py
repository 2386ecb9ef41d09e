"""Handles: the user's objects for the tensors, scalars and vectors of a definition.

Operators record the corresponding operation. Between two tensors, or two scalars, `==` and `!=` compare the
handles, as in nvFuser; `fd.ops.eq` and `fd.ops.ne` are the operations.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch

from fusewright.core.dtype import DataType
from fusewright.core.enums import ParallelType
from fusewright.core.errors import ArgumentTypeError, DefinitionError, UnknownOpError
from fusewright.frontend.help.recipes import RECIPES
from fusewright.frontend.help.signatures import dress, user_signature, without_first
from fusewright.frontend.help.unknown import unknown_method, unknown_operation
from fusewright.frontend.mesh import DeviceMesh, check_mesh, check_rotation
from fusewright.frontend.recorded.states import State, StateKind
from fusewright.frontend.scheduling.primitives import Primitive
from fusewright.ir import Scalar as IrScalar
from fusewright.ir import TensorView
from fusewright.ops import OPS, ScalarVector, describe_argument
from fusewright.schedule import Schedule

if TYPE_CHECKING:
    from fusewright.frontend.definition import FusionDefinition
    from fusewright.frontend.methods import ScalarMethods, TensorMethods
else:  # made below
    ScalarMethods = TensorMethods = object


def _unknown_attribute(kind: type[Handle], name: str) -> AttributeError:
    """The error for an attribute that handles of a kind lack; often a method of torch's tensors."""
    if name.startswith("__"):  # a protocol of Python's or of a library's, which asks by hasattr
        return AttributeError(name)
    if name in OPS:
        return UnknownOpError(name=f"{kind.__name__}.{name}", hint=f"fd.ops.{name} is the operation")
    if name in RECIPES:
        return unknown_operation(name, f"{kind.__name__}.{name}")
    return unknown_method(kind.__name__, name, [n for n in dir(kind) if not n.startswith("_")])


class Handle:
    """State number `index` of a definition."""

    __slots__ = ("_fd", "_state", "index")

    # numpy's operators leave a handle to the handle's own.
    __array_ufunc__ = None

    def __init__(self, fd: FusionDefinition, index: int, state: State) -> None:
        self._fd = fd
        self._state = state
        self.index = index

    def _get_fusion_definition(self) -> FusionDefinition:
        return self._fd

    def _op(self, name: str, *operands: Any) -> Any:
        return getattr(self._fd.ops, name)(*operands)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise _unknown_attribute(type(self), name)

    def __reduce__(self) -> NoReturn:
        raise DefinitionError(
            problem=f"a {type(self).__name__} is part of its definition, and cannot be pickled or copied",
            hint="pickle or copy the definition",
        )

    @classmethod
    def __torch_function__(cls, function: Callable[..., Any], *_: Any) -> Any:
        """Called where torch's functions and operators meet a handle; they compute nothing with it."""
        name = function.__name__.strip("_")
        raise ArgumentTypeError(
            function=f"torch.{name}",
            expected="tensors with values",
            given=f"a {cls.__name__} of a definition",
            hint=f"fd.ops.{name} is the operation of a definition" if name in OPS else None,
        )


# Python's operator -> the operation. `/` divides integers as C does: fd.ops.truediv is the true quotient.
BINARY_OPERATORS = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv": "div",
    "mod": "mod",
    "pow": "pow",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
    "matmul": "matmul",
}
COMPARISONS = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
UNARY_OPERATORS = {"neg": "neg", "abs": "abs", "invert": "bitwise_not"}


def _method(operation: str, reflected: bool = False) -> Callable[..., Any]:
    if reflected:
        return lambda self, other: self._op(operation, other, self)
    return lambda self, *others: self._op(operation, self, *others)


class Arithmetic(Handle):
    """A handle with operators, whose other operand may be a handle or a Python number."""

    __slots__ = ()

    @property
    def dtype(self) -> DataType:
        return self._state.dtype

    def _no_value(self, function: str, hint: str) -> NoReturn:
        raise ArgumentTypeError(
            function=function,
            expected="values, which a definition has when it is executed",
            given=f"a {type(self).__name__} of a definition",
            hint=hint,
        )

    def __bool__(self) -> bool:
        self._no_value(
            "bool",
            "`is None` asks if there is one, fd.ops.where chooses by value, a < b < c is two operations",
        )

    if not TYPE_CHECKING:  # to type checkers there is no such conversion

        def __float__(self) -> float:
            self._no_value("float", "fd.ops.cast converts values")

        def __int__(self) -> int:
            self._no_value("int", "fd.ops.cast converts values")

        def __complex__(self) -> complex:
            self._no_value("complex", "fd.ops.cast converts values")

        def __index__(self) -> int:
            self._no_value("index", "a Scalar may be a size where an operation takes a shape")


for _name, _operation in BINARY_OPERATORS.items():
    setattr(Arithmetic, f"__{_name}__", _method(_operation))
    setattr(Arithmetic, f"__r{_name}__", _method(_operation, reflected=True))
for _name, _operation in (COMPARISONS | UNARY_OPERATORS).items():
    setattr(Arithmetic, f"__{_name}__", _method(_operation))


# What holds values, which `==` compares with those of a handle (and refuses where it cannot).
_VALUES = (bool, int, float, complex, np.generic, np.ndarray, torch.Tensor)


def _comparison(operation: str, same: bool) -> Callable[[Arithmetic, Any], Any]:
    """`==` or `!=`: about the handles, if they are of one kind; about values for a handle and a number."""

    def method(self: Arithmetic, other: Any) -> Any:
        if isinstance(other, Arithmetic) and type(other) is not type(self):
            return self._op(operation, self, other)
        if isinstance(other, _VALUES):
            return self._op(operation, self, other)
        return (self is other) == same

    return method


Arithmetic.__eq__ = _comparison("eq", same=True)  # type: ignore[assignment]
Arithmetic.__ne__ = _comparison("ne", same=False)  # type: ignore[assignment]
Arithmetic.__hash__ = Handle.__hash__  # type: ignore[method-assign]


class Tensor(Arithmetic, TensorMethods):
    """A tensor of the definition.

    Its scheduling methods are those of `fd.sched`; if one of these returns nothing, the method returns the
    tensor. Calls made while the definition is written are part of its schedule, like `schedule`.
    """

    __slots__ = ()

    @property
    def ndim(self) -> int:
        return self._state.size

    def shape(self) -> Vector:
        """All sizes: records `fd.ops.shape`."""
        return self._op("shape", self)

    def size(self, dim: int) -> Scalar:
        """One size: records `fd.ops.size`."""
        return self._op("size", self, dim)

    if not TYPE_CHECKING:  # to type checkers a Tensor is no sequence

        def __len__(self) -> int:
            self._no_value("len", "size(0) is the size of its first dimension, ndim the number of dimensions")

        def __iter__(self) -> Iterator[Tensor]:
            self._no_value("iter", "fd.ops.split and fd.ops.select take it apart")

        def __getitem__(self, index: object) -> Tensor:
            self._no_value("Tensor.__getitem__", "fd.ops.slice and fd.ops.select are the operations")

        def __contains__(self, value: object) -> bool:
            self._no_value("Tensor.__contains__", "fd.ops.any(fd.ops.eq(tensor, value)) is the operation")

    def inner_split(self, axis: int, factor: int) -> Tensor:
        """[.., n, ..] -> [.., ceilDiv(n, factor), factor, ..]."""
        return self.split(axis, factor)

    def outer_split(self, axis: int, factor: int) -> Tensor:
        """[.., n, ..] -> [.., factor, ceilDiv(n, factor), ..]."""
        return self.split(axis, factor, inner_split=False)

    def axis(self, index: int) -> Axis:
        """The loop axis that is at this position when the axis is used."""
        return Axis(self, index)

    def set_allocation_domain(self, new_allocation_domain: Sequence[Axis], new_contiguity: bool) -> Tensor:
        """`store_along` these of the tensor's axes, `x.axis(i)`, outermost first.

        Args:
            new_contiguity: True. What a kernel stores has no gaps but the padding of `store_along`.
        """
        given = new_allocation_domain
        if not isinstance(given, (list, tuple)) or not all(isinstance(axis, Axis) for axis in given):
            self._refuse_allocation("a list of axes, x.axis(i)", describe_argument(given))
        foreign = [axis for axis in given if not axis.is_of(self)]
        if foreign:
            self._refuse_allocation(f"axes of {self!r}", f"one of {foreign[0]._tensor!r}")
        if new_contiguity is not True:
            self._refuse_allocation(
                "new_contiguity: True", describe_argument(new_contiguity), "store_along takes a padding"
            )
        return self.store_along([axis._position for axis in given])

    def set_device_mesh(self, mesh: DeviceMesh) -> Tensor:
        """`fd.sched.set_device_mesh`: puts the tensor on a mesh of one device, where the call runs."""
        check_mesh(mesh)
        return self._scheduled("set_device_mesh", mesh)

    def swizzle1d(self, x: int, parallel_type: ParallelType) -> Tensor:
        """`fd.sched.swizzle1d`: rotates an axis by the index of the device, by 0 on one."""
        check_rotation(parallel_type)
        return self._scheduled("swizzle1d", x, parallel_type)

    def _scheduled(self, method: str, *args: Any) -> Tensor:
        """Calls a method of `fd.sched`, now or when what is being written is scheduled."""
        if self._fd._recorder is not None:
            return self._fd._early.add(method, False, self, args, {})
        getattr(self._fd.sched, method)(self, *args)
        return self

    def _refuse_allocation(self, expected: str, given: str, hint: str | None = None) -> NoReturn:
        raise ArgumentTypeError(function="set_allocation_domain", expected=expected, given=given, hint=hint)

    def __repr__(self) -> str:
        return f"Tensor(index={self.index}, ndim={self.ndim})"


class Axis:
    """A loop axis of a tensor, by its position."""

    __slots__ = ("_position", "_tensor")

    def __init__(self, tensor: Tensor, position: int) -> None:
        self._tensor = tensor
        self._position = position

    def is_of(self, tensor: Tensor) -> bool:
        """Whether it is one of this tensor's axes."""
        return self._tensor is tensor or (
            self._tensor._fd is tensor._fd and self._tensor.index == tensor.index >= 0
        )

    def parallelize(self, parallel_type: ParallelType) -> None:
        """Binds the axis."""
        self._tensor.parallelize(self._position, parallel_type)


class Scalar(Arithmetic, ScalarMethods):
    """A scalar of the definition."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Scalar(index={self.index})"


class Vector(Handle):
    """Several scalars in one handle: the sizes of a tensor, or a shape."""

    __slots__ = ()

    @property
    def size(self) -> int:
        return self._state.size

    def at(self, index: int) -> Scalar:
        """One entry; a negative index counts from the end. Records `fd.ops.at`."""
        return self._op("at", self, index)

    def __getitem__(self, index: int) -> Scalar:
        return self.at(index)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Scalar]:
        return (self.at(i) for i in range(self.size))

    def __repr__(self) -> str:
        return f"Vector(index={self.index}, size={self.size})"


#: What builders and primitives take and return -> what users hold of it.
USER_TYPES: Mapping[object, object] = {TensorView: Tensor, IrScalar: Scalar, ScalarVector: Vector}

for _class in (Tensor, Scalar, Vector):
    _class.__module__ = "fusewright"  # where users import it from, and what signatures say


def _scheduling_method(name: str) -> Callable[..., Any]:
    primitive = Primitive.of(name)
    returned = typing.get_type_hints(primitive.function)["return"]

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        fd = self._fd
        if fd._recorder is not None and returned in (TensorView, type(None)):
            return fd._early.add(name, returned is TensorView, self, args, kwargs)
        result = getattr(fd.sched, name)(self, *args, **kwargs)
        return self if result is None else result

    signature = without_first(user_signature(primitive.typed_signature, USER_TYPES))
    if signature.return_annotation is None:
        signature = signature.replace(return_annotation=Tensor)
    return dress(method, f"Tensor.{name}", signature, primitive.doc)


for _name in Schedule.PRIMITIVES:
    if _name != "inline_most":  # it takes no tensor first
        setattr(Tensor, _name, _scheduling_method(_name))


_CLASSES = {StateKind.TENSOR: Tensor, StateKind.SCALAR: Scalar, StateKind.VECTOR: Vector}


def handle_for(fd: FusionDefinition, index: int, state: State) -> Handle | None:
    """The handle of a state; None for a result that the operation leaves out."""
    if state.kind is StateKind.NOTHING:
        return None
    return _CLASSES[state.kind](fd, index, state)
