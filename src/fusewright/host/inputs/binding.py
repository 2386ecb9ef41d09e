"""Checks the inputs of a call against the definition and finds the value of every size symbol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from fusewright.core.dtype import INT32_MAX, DataType
from fusewright.core.errors import (
    ContiguityError,
    DeviceError,
    InputDtypeError,
    InputError,
    InternalError,
    RankError,
    ShapeError,
    UnsupportedDeviceError,
    shown_number,
)
from fusewright.host.inputs.memory_checks import is_plain, spanned_elements, storage_fault, unreadable
from fusewright.host.inputs.places import is_kept_by_torch
from fusewright.host.inputs.scalars import Number, SizeScalars, checked_scalar, dtype_name
from fusewright.host.inputs.signature import ALIGNMENT_BYTES
from fusewright.ir import INDEX_HEADROOM, Fusion, IterDomain, Scalar, TensorView, Val, check_offsets
from fusewright.runtime.hardware import default_device
from fusewright.sym import (
    ZERO,
    Add,
    Const,
    Expr,
    Le,
    Lt,
    Symbol,
    as_int,
    defined,
    evaluate,
    is_nonneg,
    le,
    product,
    substitute,
    to_function,
)


@dataclass(frozen=True, eq=False)
class Shapes:
    """The sizes of a call.

    Attributes:
        sizes: the value of every size symbol of the inputs.
        values: the values of the scalars that sizes depend on.
        shapes, strides: one for each input, () for a scalar. The strides are those that kernels may assume;
            they may differ from the tensor's for dimensions of one element.
        device: the device on which the call runs.
    """

    sizes: dict[Symbol, int]
    values: dict[Val, Number]
    shapes: tuple[tuple[int, ...], ...]
    strides: tuple[tuple[int, ...], ...]
    device: torch.device


@dataclass(frozen=True, eq=False)
class Binding(Shapes):
    """The facts about a call once its inputs are checked.

    Attributes:
        spans: for each input, the number of elements in memory from its first to its last; 0 if it is empty.
        alignment: for each input, the bytes that its address is a multiple of.
        index_dtype: the narrowest type for the call's indices.
    """

    spans: tuple[int, ...]
    alignment: tuple[int, ...]
    index_dtype: DataType


class Binder:
    """Binds calls of one fusion; caches the data that all calls need."""

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self.size_scalars = SizeScalars(fusion)
        self._tensors = [
            (i, _TensorInput(i, v)) for i, v in enumerate(fusion.inputs) if isinstance(v, TensorView)
        ]
        #: the positions of inputs that may lie in host memory, wherever the others are
        written = {output.alias for output in fusion.outputs}
        self._kept_by_torch = {
            i for i, spec in self._tensors if spec.tensor not in written and is_kept_by_torch(spec.tensor)
        }
        self.scalars = [(i, v) for i, v in enumerate(fusion.inputs) if isinstance(v, Scalar)]
        # For each number of points over which a tensor is computed, the tensor with the widest elements.
        widest: dict[Expr, TensorView] = {}
        for tensor in fusion.tensors():
            points = product(a.visible_extent for a in tensor.logical)
            if points not in widest or widest[points].dtype.size < tensor.dtype.size:
                widest[points] = tensor
        self._widest = list(widest.values())
        # Single sizes are checked, too: a size may be large while the product is 0.
        sizes = {axis.visible_extent: None for tensor in fusion.tensors() for axis in tensor.logical}
        self._domains = to_function([*widest, *(size for size in sizes if size not in widest)])
        # Indices add offsets to positions: sizes that may be negative, and constants of the definition.
        offsets = [s for s in self.size_scalars.symbols if s.lo < 0]
        self._offsets = to_function([*offsets, *(ZERO - s for s in offsets)])
        indices = (e for node in fusion.nodes for e in node.index_expressions())
        self._constant_offset = max(map(_largest_constant, indices), default=0)
        known = {axis.visible_extent for _, t in self._tensors for axis in t.tensor.shape}
        known |= self.size_scalars.symbols
        #: pairs of sizes that the definition requires to be equal, as expressions of the inputs' sizes
        self._equalities = _among(known, fusion.equalities)
        self._equal_sizes = to_function([size for pair in self._equalities for size in pair])
        self._computed_sizes = to_function(list(fusion.computed_sizes.values()))
        #: pairs of a requirement on the sizes of a call, and the message if it does not hold
        self._conditions = [*fusion.checks, *_differences(fusion.computed_sizes.values())]
        self._checks = to_function([defined(condition) for condition, _ in self._conditions])

    def flatten(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The inputs with lists and tuples (vectors) unpacked; `inputs` itself if there are none.

        Raises:
            InputError: the number of inputs is wrong.
        """
        flat = inputs
        if any(isinstance(value, (list, tuple)) for value in inputs):
            flat = []
            for value in inputs:
                flat.extend(value) if isinstance(value, (list, tuple)) else flat.append(value)
        expected = len(self.fusion.inputs)
        if len(flat) != expected:
            names = ", ".join(v.name for v in self.fusion.inputs)
            raise InputError(f"Expected {expected} inputs ({names}), but got {len(flat)}")
        return flat

    def bind(self, inputs: Sequence[Any], device: torch.device | None) -> Binding:
        """Checks flat inputs and returns the facts about their call.

        device: where the call runs if no input determines it.

        Raises:
            InputError, InputDtypeError, RankError, ShapeError, ContiguityError, DeviceError: an input does
                not fit.
        """
        found = self.shapes(inputs, device)
        place = found.device
        if device is not None and place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
            raise DeviceError(
                what="a call", expected=f"one of {torch.cuda.device_count()} GPUs here", given=place
            )
        spans = list(map(spanned_elements, found.shapes, found.strides))
        alignment = [ALIGNMENT_BYTES] * len(inputs)
        for i, spec in self._tensors:
            given = inputs[i]
            spec.check_memory(given, spans[i])
            alignment[i] = _alignment(given)
        return self._binding(found, spans, alignment)

    def _binding(self, found: Shapes, spans: Sequence[int], alignment: Sequence[int]) -> Binding:
        return Binding(
            found.sizes,
            found.values,
            found.shapes,
            found.strides,
            found.device,
            tuple(spans),
            tuple(alignment),
            self.index_dtype(spans, found.sizes),
        )

    def describe(
        self, inputs: Sequence[Any], device: torch.device | None, needs_place: bool = False
    ) -> Binding:
        """Like `bind`, for tensors that may have no memory; assumes storages as torch allocates them.

        Meta tensors are assumed to be on the device of the other tensors. If all are meta tensors, they are
        assumed to be on `device`, or without `device` on the default device of calls.

        needs_place: whether `device` must be passed if all tensors are meta tensors.

        Raises:
            DeviceError: `device` must be passed, and is not. Otherwise raises like `bind`.
        """
        if needs_place and device is None and self._is_nowhere(inputs):
            raise DeviceError(
                "meta tensors do not say where the call runs",
                expected='device="cuda", or device="cpu" for the simulated GPU',
                given="no device",
            )
        found = self.shapes(inputs, device, with_meta=True)
        alignment = [ALIGNMENT_BYTES] * len(inputs)
        for i, _ in self._tensors:
            given = inputs[i]
            has_memory = is_plain(type(given)) and given.device.type != "meta"
            alignment[i] = _alignment(given) if has_memory else _expected_alignment(given)
        return self._binding(found, list(map(spanned_elements, found.shapes, found.strides)), alignment)

    @property
    def is_placed_by_device(self) -> bool:
        """Whether no input determines the device of a call, so that the caller's `device` does."""
        return all(spec.tensor.is_cpu for _, spec in self._tensors)

    def _is_nowhere(self, inputs: Sequence[Any]) -> bool:
        """Whether all inputs that determine where a call runs are meta tensors; False if there are none."""
        given = [inputs[i] for i, spec in self._tensors if not spec.tensor.is_cpu]
        return bool(given) and all(isinstance(t, torch.Tensor) and t.device.type == "meta" for t in given)

    def shapes(self, inputs: Sequence[Any], device: torch.device | None, with_meta: bool = False) -> Shapes:
        """Does the part of `bind` that needs no memory. Tensors may have no memory, or symbolic sizes."""
        values: dict[Val, Number] = {}
        for i, scalar in self.scalars:
            number = checked_scalar(i, scalar, inputs[i])
            if scalar in self.size_scalars.inputs:
                values[scalar] = number
        for i, spec in self._tensors:
            spec.check_tensor(inputs[i])
        place = self._device(inputs, device, with_meta)
        sizes: dict[Symbol, int] = {}
        shapes: list[tuple[int, ...]] = [()] * len(inputs)
        strides: list[tuple[int, ...]] = [()] * len(inputs)
        for i, spec in self._tensors:
            shape = shapes[i] = tuple(inputs[i].shape)
            if not spec.bind_sizes(shape, sizes):
                self._refuse_sizes(inputs)
            strides[i] = spec.kernel_strides(inputs[i], shape)
        self.size_scalars.bind(values, sizes)
        self.complete(sizes)
        return Shapes(sizes, values, tuple(shapes), tuple(strides), place)

    def _refuse_sizes(self, inputs: Sequence[Any]) -> NoReturn:
        """Raises the ShapeError of the first size that contradicts the definition or another one."""
        known: dict[Symbol, tuple[int, str]] = {}
        for i, spec in self._tensors:
            spec.refuse_sizes(tuple(inputs[i].shape), known)
        raise InternalError("sizes that were refused agree")

    def _device(self, inputs: Sequence[Any], device: torch.device | None, with_meta: bool) -> torch.device:
        found: dict[torch.device, int] = {}
        aside: dict[torch.device, int] = {}
        for i, spec in self._tensors:
            given = inputs[i].device
            if with_meta and given.type == "meta":
                continue
            if spec.tensor.is_cpu:
                if given.type != "cpu":
                    raise DeviceError(what=f"input {i}, {spec.name},", expected="the CPU", given=given)
            elif given.type == "cpu" and i in self._kept_by_torch:
                aside.setdefault(given, i)
            else:
                found.setdefault(given, i)
        if device is None:
            found = found or aside
        if len(found) > 1:
            given = " and ".join(f"input {i} on {d}" for d, i in found.items())
            raise DeviceError(what="all input tensors", expected="one device", given=given)
        if found:
            place = next(iter(found))
            if device is not None and not _is_same(device, place):
                raise DeviceError(
                    what="the device of a call", expected=f"{place}, as its tensors", given=device
                )
        elif device is not None:
            place = device
        else:
            place = default_device()
        if place.type not in ("cpu", "cuda"):
            raise UnsupportedDeviceError(given=place)
        return place

    def complete(self, sizes: dict[Symbol, int]) -> None:
        """Adds the sizes that the host computes. Raises ShapeError for sizes that do not fit."""
        if not (self._equalities or self._conditions or self.fusion.computed_sizes):
            return
        sizes.update(zip(self.fusion.computed_sizes, self._computed_sizes(sizes)))
        self._check_equalities(sizes)

    def _check_equalities(self, sizes: Mapping[Symbol, int]) -> None:
        values = self._equal_sizes(sizes)
        for (size, same), a, b in zip(self._equalities, values[::2], values[1::2]):
            if a != b:
                raise ShapeError(
                    f"{size} and {same}: a conflict was found with 2 different sizes", expected=b, given=a
                )
        for (condition, message), holds in zip(self._conditions, self._checks(sizes)):
            if not holds:
                raise ShapeError(message, expected=str(condition), given=_size_values(condition, sizes))

    def index_dtype(self, spans: Sequence[int], sizes: Mapping[Symbol, int]) -> DataType:
        """Int32 if every size, offset, position in an iteration space and index is below 2^31, else Int.

        Raises:
            ShapeError: one of them is beyond 64 bits.
        """
        limit = INT32_MAX - INDEX_HEADROOM - max([self._constant_offset, *self._offsets(sizes)])
        wide = max(spans, default=0) > limit + 1  # the last element's offset is one less
        counts = self._domains(sizes)
        if max(counts, default=0) > limit:
            wide = True
            for tensor in self._widest:
                extents = [evaluate(axis.visible_extent, sizes) for axis in tensor.logical]
                check_offsets(tensor.name, tensor.dtype, extents)
        return DataType.Int if wide else DataType.Int32


def _alignment(tensor: torch.Tensor) -> int:
    return _aligned_bytes(tensor.data_ptr())


def _expected_alignment(tensor: torch.Tensor) -> int:
    """Of a tensor without memory: torch aligns storages, and a view may start anywhere in one."""
    offset = tensor.storage_offset()
    return _aligned_bytes(offset * tensor.element_size()) if isinstance(offset, int) else ALIGNMENT_BYTES


def _aligned_bytes(address: int) -> int:
    return min(ALIGNMENT_BYTES, address & -address or ALIGNMENT_BYTES)


def _among(known: set[Expr], equalities: Sequence[tuple[Expr, Expr]]) -> list[tuple[Expr, Expr]]:
    """The pairs of equal sizes as expressions of known sizes. Omits pairs that have no such expressions.

    An unknown symbol is replaced by the size that it equals, in all pairs.
    """
    names = {size: same for size, same in equalities if isinstance(size, Symbol) and size not in known}
    renamed = ((substitute(size, names), substitute(same, names)) for size, same in equalities)
    return [(a, b) for a, b in renamed if a is not b and known >= a.free_symbols | b.free_symbols]


def _differences(sizes: Iterable[Expr]) -> list[tuple[Expr, str]]:
    """(condition that the size is at least 0, message) for each computed size that may be negative."""
    return [
        (le(ZERO, size), f"{size} is used as a size, and is negative")
        for size in sizes
        if not is_nonneg(size)
    ]


def _largest_constant(e: Expr) -> int:
    """The largest magnitude of a constant in `e` that is added in a sum, or compared with."""
    sums = (e, *e.args) if isinstance(e, (Lt, Le)) else (e,)
    own = (abs(each.constant) for each in sums if isinstance(each, (Add, Const)))
    return max((*own, *(_largest_constant(arg) for arg in e.args if not isinstance(arg, Const))), default=0)


def _is_same(named: torch.device, place: torch.device) -> bool:
    """Whether `named` is the device `place`; a device named without its number equals all of its type."""
    return named.type == place.type and (named.index is None or named.index == place.index)


class _TensorInput:
    """The definition's statements about one tensor input."""

    def __init__(self, index: int, tensor: TensorView) -> None:
        self.index = index
        self.tensor = tensor
        self.name = tensor.name
        self._label = f"input {index}, {tensor.name},"
        self._dtype = tensor.dtype.torch
        self._axes: tuple[IterDomain, ...] = tensor.shape
        position = {axis: i for i, axis in enumerate(self._axes)}
        dims = [position[axis] for axis in tensor.allocation if axis in position]
        # (dimension, contiguity), innermost first
        self._memory = list(zip(dims, tensor.contiguity))[::-1]
        #: whether it is defined as contiguous, with its dimensions in order
        self._is_plain = dims == sorted(dims) and all(tensor.contiguity)
        #: for each dimension, (symbol, None) or (None, number): its defined size
        self._extents = [
            (e, None) if isinstance(e := axis.visible_extent, Symbol) else (None, as_int(e))
            for axis in self._axes
        ]

    def check_tensor(self, given: Any) -> None:
        if not isinstance(given, torch.Tensor):
            described = (
                f"scalar {shown_number(given)}"
                if isinstance(given, (bool, int, float, complex))
                else type(given).__name__
            )
            raise InputError(index=self.index, name=self.name, expected="an at::Tensor", given=described)
        if is_plain(type(given)):  # other classes have a shape and a dtype of their own, too
            self._check_layout(given)
        if given.dtype != self._dtype:
            expected = self.tensor.dtype.ir_name
            raise InputDtypeError(
                index=self.index, name=self.name, expected=expected, given=dtype_name(given)
            )
        if given.dim() != len(self._axes):
            raise RankError(what=self._label, expected=len(self._axes), given=given.dim())

    def _check_layout(self, given: torch.Tensor) -> None:
        problem = unreadable(given)
        if problem is not None:
            described, hint = problem
            raise InputError(
                index=self.index, name=self.name, expected="a dense tensor", given=described, hint=hint
            )

    def check_memory(self, given: torch.Tensor, span: int) -> None:
        """Raises InputError unless the tensor's memory holds its values, or their conjugates.

        Called after `check_tensor`. `span`: the number of elements from the first to the last.
        """
        if not is_plain(type(given)):  # `check_tensor` has checked plain tensors
            self._check_layout(given)
        if given.is_neg() and not self.tensor.is_cpu:
            raise InputError(
                index=self.index,
                name=self.name,
                expected="a tensor that holds its values",
                given="a lazily negated view",
                hint="call resolve_neg() on it",
            )
        fault = storage_fault(given, span)
        if fault is not None:
            raise InputError(
                index=self.index, name=self.name, expected="a tensor whose storage holds it", given=fault
            )

    def bind_sizes(self, shape: tuple[int, ...], sizes: dict[Symbol, int]) -> bool:
        """Adds the sizes of the tensor to `sizes`; returns whether they agree with the known ones."""
        for (symbol, fixed), size in zip(self._extents, shape):
            if size != (fixed if symbol is None else sizes.setdefault(symbol, size)):
                return False
        return True

    def refuse_sizes(self, shape: tuple[int, ...], sources: dict[Symbol, tuple[int, str]]) -> None:
        """Like `bind_sizes`, but raises ShapeError; `sources` tells where each size came from."""
        for dim, (axis, size) in enumerate(zip(self._axes, shape)):
            extent = axis.visible_extent
            if isinstance(extent, Symbol):
                known, source = sources.setdefault(extent, (size, f"{self.name}.size({dim})"))
                if known != size:
                    raise ShapeError(
                        f"{self._label} dimension {dim}: a conflict was found with 2 different sizes",
                        expected=f"{known}, as {source}",
                        given=size,
                    )
            elif size != as_int(extent):
                raise ShapeError(
                    f"Expected {self._label} dimension {dim}, to have size {extent}, but got {size}: "
                    "a conflict was found with 2 different sizes",
                    hint="a dimension that is defined with size 1 is broadcast, and serves no other size"
                    if axis.is_broadcast
                    else "define the dimension with size -1 to serve all sizes",
                )

    def kernel_strides(self, given: torch.Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The strides for kernels, after checking the tensor's strides against the definition's contiguity.

        The stride of a dimension with one element is free. It is set to the stride that the definition
        implies, or to 0, which allows vectors of any width.
        """
        own = given.stride()
        if 0 in shape:
            return (0,) * len(own)  # nothing is accessed, whatever they are
        if self._is_plain and 1 not in shape and given.is_contiguous():
            return own
        strides = list(own)
        expected: int | None = 1  # the stride that the next contiguous dimension must have; None: any
        free: int | None = None  # a dimension of one element whose stride the next dimension determines
        for dim, contiguous in self._memory:
            axis, size, stride = self._axes[dim], shape[dim], strides[dim]
            if axis.is_broadcast or contiguous is None:
                if axis.expanded is not None and size != 1 and stride != 0:
                    self._refuse_strides(given, "0 where it is expanded", dim)
                continue
            if size == 1:
                if contiguous and expected is not None:
                    strides[dim] = expected
                elif not contiguous:
                    strides[dim] = 0
                    free, expected = dim, None
                continue
            if contiguous and expected is not None and stride != expected:
                self._refuse_strides(given, f"{expected} for a contiguous dimension", dim)
            if contiguous and free is not None:
                strides[free] = stride
            free, expected = None, stride * size
        return tuple(strides)

    def _refuse_strides(self, given: torch.Tensor, expected: str, dim: int) -> None:
        raise ContiguityError(
            f"Expected {self._label} to have contiguity {list(self.tensor.contiguity)} as defined, "
            f"but its strides contradict that",
            expected=f"stride {expected} in dimension {dim}",
            given=f"shape {tuple(given.shape)}, strides {given.stride()}",
            hint="define the tensor with contiguity=False (any strides), or pass tensor.contiguous()",
        )


def _size_values(condition: Expr, sizes: Mapping[Symbol, int]) -> str:
    """The values of the sizes in a condition, for a message."""
    found = sorted(condition.free_symbols, key=lambda symbol: symbol.name)
    return ", ".join(f"{symbol.name} = {sizes[symbol]}" for symbol in found)
