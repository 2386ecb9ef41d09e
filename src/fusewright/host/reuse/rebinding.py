"""Binds calls whose inputs differ from an earlier call's only in sizes and strides.

`Binder` checks every property of each input. The key of the call determines most of them: classes, dtypes,
devices and addresses of inputs, which equal those of an earlier call. Sizes and strides remain, and for most
of them a few comparisons, as straight-line code, are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from fusewright.core.recorded import Range
from fusewright.host.inputs.binding import Binder, Binding
from fusewright.host.inputs.layout import size_value
from fusewright.host.inputs.signature import key_parts
from fusewright.ir import Fusion, TensorView, Val
from fusewright.sym import Symbol, as_int

Key = tuple[Any, ...]
#: The numbers of a call: the values of the inputs' size symbols, then the strides that the sizes do not
#: determine.
Numbers = tuple[int, ...]

_Split = Callable[[Key], tuple[Hashable, Numbers] | None]


class Rebinding:
    """The result of `Binder` for calls of a fusion, from their keys.

    Three cases are left to `Binder`: fusions with scalars that are sizes; sizes of 0 and 1, since a dimension
    of one element may have any stride; and inputs that do not fit, which it rejects. The program of the call
    checks storages, since a storage may change its size while everything else stays.
    """

    def __init__(self, fusion: Fusion, binder: Binder) -> None:
        self._binder = binder
        self._inputs = [_Input(i, value) for i, value in enumerate(fusion.inputs)]
        self._symbols = _symbols(fusion)
        self._split = None if binder.size_scalars.symbols else _compiled(self._inputs, self._symbols)

    def split(self, key: Key) -> tuple[Hashable, Numbers] | None:
        """The kind of the inputs, and their numbers; None if `Binder` must handle them.

        Calls of one kind differ only in their numbers, and each size has the same bit length in all of them.
        """
        if self._split is None:
            return None
        try:
            return self._split(key)
        except ValueError:  # of another rank
            return None

    def ranges(self, numbers: Numbers) -> dict[int, Range]:
        """By position, the range of each size in all calls of the same kind as the call with `numbers`."""
        found = {}
        for position, size in enumerate(numbers[: len(self._symbols)]):
            least = 1 << (size.bit_length() - 1)
            found[position] = least, 2 * least - 1
        return found

    def bound(self, first: Binding, numbers: Sequence[Any], fixed: Iterable[Symbol] = ()) -> Binding:
        """The binding of another call of the kind of `first`, as `Binder` would return it or raise.

        Args:
            numbers: the call's numbers; they may be recorded (`core.recorded`).
            fixed: sizes to be taken as constants from `first`, if they are equal there.
        """
        sizes = dict(zip(self._symbols, numbers))
        self._fix(sizes, first, fixed)
        left = iter(numbers[len(self._symbols) :])
        shapes, strides, spans = [], [], []
        for each in self._inputs:
            shape, own, span = each.placed(sizes, left)
            shapes.append(shape)
            strides.append(own)
            spans.append(span)
        self._binder.complete(sizes)
        self._fix(sizes, first, fixed)
        return Binding(
            sizes,
            {},
            tuple(shapes),
            tuple(strides),
            first.device,
            tuple(spans),
            first.alignment,
            self._binder.index_dtype(spans, sizes),
        )

    def _fix(self, sizes: dict[Symbol, Any], first: Binding, fixed: Iterable[Symbol]) -> None:
        for symbol in fixed:
            if symbol in sizes and sizes[symbol] == first.sizes[symbol]:
                sizes[symbol] = first.sizes[symbol]


def _symbols(fusion: Fusion) -> dict[Symbol, str]:
    """The size symbols of the inputs, each with the variable of the first dimension that has this size."""
    found: dict[Symbol, str] = {}
    for i, value in enumerate(fusion.inputs):
        for dim, axis in enumerate(value.shape if isinstance(value, TensorView) else ()):
            if isinstance(extent := axis.visible_extent, Symbol):
                found.setdefault(extent, f"n{i}_{dim}")
    return found


def _compiled(inputs: Sequence[_Input], symbols: Mapping[Symbol, str]) -> _Split:
    lines = [f"{_tuple(part for each in inputs for part in each.parts)} = key"]
    wrong = dict.fromkeys(condition for each in inputs for condition in each.wrong(symbols))
    if wrong:
        lines.append(f"if {' or '.join(wrong)}: return None")
    sizes = list(symbols.values())
    kind = [*(name for each in inputs for name in each.kind), *(f"{name}.bit_length()" for name in sizes)]
    numbers = [*sizes, *(each.strides[dim] for each in inputs for dim in each.open)]
    lines.append(f"return {_tuple(kind)}, {_tuple(numbers)}")
    body = "\n ".join(lines)
    names: dict[str, Any] = {}
    exec(compile(f"def split(key):\n {body}\n", "<fusewright binding>", "exec"), names)
    split: _Split = names["split"]
    return split


def _tuple(texts: Iterable[str]) -> str:
    return f"({''.join(f'{text}, ' for text in texts)})"


class _Input:
    """The key's data about one input.

    Attributes:
        parts: the variables of the parts of its key, as a target that unpacks the key.
        kind: the variables of those parts that all calls of a kind have in common.
        shape, strides: the variables of the dimensions' sizes and strides.
        open: the dimensions whose stride does not follow from sizes and other strides.
    """

    def __init__(self, position: int, value: Val) -> None:
        self._value = value
        self.parts = [f"k{position}_{i}" for i in range(len(key_parts("", value, frozenset())))]
        self.kind = self.parts
        self.shape: list[str] = []
        self.strides: list[str] = []
        #: (dimension, contiguity) in memory order, innermost first
        self._memory: list[tuple[int, bool | None]] = []
        self.open: list[int] = []
        if not isinstance(value, TensorView):
            return
        self._axes = value.shape
        dims = {axis: dim for dim, axis in enumerate(value.shape)}
        self.shape = [f"n{position}_{dim}" for dim in dims.values()]
        self.strides = [f"t{position}_{dim}" for dim in dims.values()]
        self.kind = [self.parts[0], *self.parts[3:]]
        self.parts = [self.parts[0], _tuple(self.shape), _tuple(self.strides), *self.parts[3:]]
        memory = [
            (dims[axis], flag) for axis, flag in zip(value.allocation, value.contiguity) if axis in dims
        ]
        self._memory = memory[::-1]
        followed = {dim for dim, flag in memory if flag and not value.shape[dim].is_broadcast}
        self.open = [dim for dim in dims.values() if dim not in followed]

    def wrong(self, symbols: Mapping[Symbol, str]) -> list[str]:
        """The conditions, as Python, under which `Binder` must handle the call.

        They hold for sizes that do not fit, for sizes below 2, and for strides that contradict the
        contiguity.
        """
        found = list[str]()
        if not isinstance(self._value, TensorView):
            return found
        for axis, name in zip(self._axes, self.shape):
            extent = axis.visible_extent
            same = symbols[extent] if isinstance(extent, Symbol) else str(as_int(extent))
            found += [f"{name} != {same}"] if name != same else []
            found.append(f"{name} < {1 if axis.is_broadcast else 2}")
        expected = "1"
        for dim, is_contiguous in self._memory:
            axis, size, stride = self._axes[dim], self.shape[dim], self.strides[dim]
            if axis.is_broadcast or is_contiguous is None:
                found += [stride] if axis.expanded is not None else []
                continue
            if is_contiguous:
                found.append(f"{stride} != {expected}")
            expected = f"{stride} * {size}"
        return found

    def placed(
        self, sizes: Mapping[Symbol, Any], strides: Iterable[Any]
    ) -> tuple[tuple[Any, ...], tuple[Any, ...], Any]:
        """(shape, strides, elements from the first to the last in memory); ((), (), 1) for a scalar.

        strides: yields the strides of the dimensions `open`; the call consumes these.
        """
        if not isinstance(self._value, TensorView):
            return (), (), 1
        shape = tuple([size_value(axis.visible_extent, sizes) for axis in self._axes])
        own = dict(zip(self.open, strides))
        expected, is_dense = 1, len(self._memory) == len(shape)
        for dim, is_contiguous in self._memory:
            if dim in own:
                is_dense = False
                if self._axes[dim].is_broadcast or is_contiguous is None:
                    continue
            expected = own.setdefault(dim, expected) * shape[dim]
        found = tuple([own[dim] for dim in range(len(shape))])
        if is_dense:
            return shape, found, expected
        return shape, found, 1 + sum((size - 1) * stride for size, stride in zip(shape, found))
