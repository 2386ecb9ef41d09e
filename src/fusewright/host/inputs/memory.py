"""The memory layout of the tensors of a call."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import prod
from typing import Any

from fusewright.core.dtype import DataType
from fusewright.core.errors import ShapeError
from fusewright.core.hardware import HardwareInfo
from fusewright.host.inputs.binding import Binding
from fusewright.host.inputs.layout import Layout, Layouts
from fusewright.host.inputs.signature import ALIGNMENT_BYTES
from fusewright.ir import Fusion, TensorView, Val
from fusewright.schedulers import Facts
from fusewright.segment import InputLayout, Segment, input_layout, written_alike
from fusewright.sym import Symbol


class Memory:
    """The shape, strides and alignment of every tensor that kernels access in one call; sizes of segments.

    Args:
        layouts: the layouts of the fusion's tensors.
        given: the value of `input_layouts`, if it is known.

    Attributes:
        input_layouts: the layouts of the inputs whose strides show more than the definition states.
    """

    __slots__ = ("sizes", "input_layouts", "_layouts", "_orders", "_facts", "_homes", "_segments")

    def __init__(
        self,
        fusion: Fusion,
        binding: Binding,
        layouts: Layouts,
        given: tuple[InputLayout, ...] | None = None,
    ) -> None:
        self.sizes = binding.sizes
        self._layouts = layouts
        self._facts: dict[Val, tuple[tuple[int, ...], tuple[int, ...], int]] = {
            value: (binding.shapes[i], binding.strides[i], binding.alignment[i])
            for i, value in enumerate(fusion.inputs)
        }
        self.input_layouts = input_layouts(layouts, binding) if given is None else given
        self._orders = {t: found.order for found in self.input_layouts for t in written_alike(fusion, found)}
        self._homes: Mapping[Any, TensorView] = {}
        self._segments: dict[Segment, dict[Symbol, int]] = {}

    def sizes_of(self, segment: Segment) -> Mapping[Symbol, int]:
        """The values of a segment's own size symbols."""
        found = self._segments.get(segment)
        if found is None:
            found = self._segments[segment] = segment.own_sizes(self.sizes)
        return found

    def facts_of(self, segment: Segment, index_dtype: DataType, stable: frozenset[Symbol]) -> Facts:
        """The facts about a segment in this call. `stable`: the stable sizes of the whole fusion."""
        sizes = self.sizes_of(segment)
        known = [self.of(value) for value in segment.inputs]
        return Facts(
            sizes,
            segment.own_strides([strides for _, strides, _ in known], sizes),
            tuple([alignment for _, _, alignment in known]),
            index_dtype,
            segment.own_stable(stable) if stable else stable,
            segment.read_later,
        )

    def place(self, homes: Mapping[TensorView, TensorView]) -> None:
        """Gives each key of `homes` the layout of its value, the input that it is or may be written into."""
        self._homes = homes

    def is_laid_out_as(self, tensor: TensorView, home: TensorView) -> bool:
        """Whether `tensor` in separate memory would have the shape and strides of the input `home`.

        Strides of dimensions with one element may differ.
        """
        (shape, strides, _), (size, steps, _) = self._own(tensor), self._own(home)
        return shape == size and all(a == b or n == 1 for a, b, n in zip(strides, steps, shape))

    def of(self, value: Val) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """(shape, strides, alignment in bytes); the shape and strides of a scalar are empty."""
        value = self._homes.get(value, value)
        return self._facts.get(value) or self._own(value)

    def stride(self, value: Val, dim: int) -> int:
        """The stride that a kernel is passed. It is 0 for an empty tensor, which allows all vector widths."""
        shape, strides, _ = self.of(value)
        return 0 if 0 in shape else strides[dim]

    def bytes_of(self, values: Iterable[Val]) -> int:
        """The bytes of these tensors in memory.

        Each tensor counts once, an expanded dimension as one element.
        """
        total = 0
        for value in dict.fromkeys(values):
            if isinstance(value, TensorView):
                shape, strides, _ = self.of(value)
                stored = prod(size for size, stride in zip(shape, strides) if stride or not size)
                total += value.dtype.size * stored
        return total

    def _own(self, value: Val) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        found = self._facts.get(value)
        if found is None:
            shape: tuple[int, ...] = ()
            strides: tuple[int, ...] = ()
            if isinstance(value, TensorView):
                order = self._orders.get(value)
                layout = self._layouts.of(value) if order is None else Layout(value, order)
                shape, strides = layout.at(self.sizes)
            found = self._facts[value] = shape, strides, ALIGNMENT_BYTES
        return found


def check_room(outputs: Iterable[TensorView], memory: Memory, hardware: HardwareInfo) -> None:
    """Raises ShapeError if an output does not fit in the GPU's memory.

    Called when a kernel cannot be launched: then the size of the output may be the cause.
    """
    for tensor in outputs:
        needed = memory.bytes_of([tensor])
        if needed > hardware.memory_bytes:
            raise ShapeError(
                f"{tensor.name} does not fit in the memory of the GPU",
                expected=f"at most {hardware.memory_bytes:,} bytes, on {hardware.name}",
                given=f"{needed:,} bytes",
            )


def input_layouts(layouts: Layouts, binding: Binding) -> tuple[InputLayout, ...]:
    """The layouts of the inputs whose strides in a call show more than the definition states."""
    if not layouts.open_inputs:
        return ()
    found = [
        input_layout(i, tensor, binding.shapes[i], binding.strides[i]) for i, tensor in layouts.open_inputs
    ]
    return tuple([layout for layout in found if layout is not None])


def empty_outputs(
    fresh: Iterable[TensorView], memory: Memory, known: Collection[TensorView]
) -> tuple[TensorView, ...]:
    """The outputs among `fresh` that have no elements in a call, without those in `known`."""
    return tuple([t for t in fresh if 0 in memory.of(t)[0] and t not in known])
