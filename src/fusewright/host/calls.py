"""What the partition is told of a call."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from fusewright.core.hardware import HardwareInfo
from fusewright.core.options import Options
from fusewright.host.binding import Binding
from fusewright.host.layout import size_value
from fusewright.host.memory import Memory
from fusewright.host.plan import in_place_candidates
from fusewright.host.views import Views
from fusewright.ir import Fusion, TensorView
from fusewright.runtime.hardware import hardware_of, present
from fusewright.schedulers import Facts
from fusewright.segment import Call, Exclusions, Segment
from fusewright.sym import Symbol

__all__ = ["Question", "call_of", "hardware_for"]


@dataclass(frozen=True, slots=True)
class Question:
    """What the partition is asked for one call.

    Attributes:
        call: its sizes. required: what no partition may do. memory: where its tensors lie.
        views: the outputs that are views of inputs. empty: those without elements.
    """

    call: Call
    required: Exclusions
    memory: Memory
    views: Views
    empty: tuple[TensorView, ...]

    @property
    def uncomputed(self) -> frozenset[TensorView]:
        """The outputs that no segment computes."""
        return frozenset((*self.views, *self.empty))


def hardware_for(device: torch.device, options: Options) -> HardwareInfo:
    """What schedulers read for tensors on a device; where that is no GPU here, the one that is simulated."""
    return hardware_of(present(device), options)


def call_of(
    fusion: Fusion,
    binding: Binding,
    memory: Memory,
    stable: frozenset[Symbol],
    hardware: HardwareInfo,
    horizontal: bool,
    may_record: bool = False,
) -> Call:
    """The call that `binding` and `memory` describe.

    Args:
        stable: sizes that have had one value in all calls.
        may_record: whether it may be decided as others were, by a recording.
    """
    writes = any(output.alias is not None for output in fusion.outputs)

    def facts(segment: Segment) -> Facts:
        return memory.facts_of(segment, binding.index_dtype, stable)

    def start(segments: Sequence[Segment]) -> None:
        # Whether a kernel writes in place is known once it is compiled, which takes the params of all:
        # they have to be right for either place.
        if writes:
            steps = [(segment.inputs, segment.outputs) for segment in segments]
            memory.place(in_place_candidates(fusion, steps, memory))

    values: Sequence[int] = ()
    recorded: Callable[[Sequence[int]], Call] | None = None
    if may_record:
        values = [*binding.sizes.values(), *(stride for own in binding.strides for stride in own)]

        def recorded(numbers: Sequence[int]) -> Call:
            other = _with_numbers(fusion, binding, numbers, stable)
            return call_of(fusion, other, memory.with_binding(fusion, other), stable, hardware, horizontal)

    kind = binding.index_dtype, binding.alignment, stable
    size_class = _size_class(binding.sizes, stable, hardware)
    return Call(size_class, start, facts, hardware, horizontal, values, kind, recorded)


def _with_numbers(
    fusion: Fusion, binding: Binding, numbers: Sequence[int], stable: frozenset[Symbol]
) -> Binding:
    """A binding of the same kind of inputs with other sizes, then strides.

    What is known of all calls of the kind stays: sizes that are stable, and strides of 0 and 1, which say how
    an input lies.
    """
    left = iter(numbers)
    sizes = {symbol: next(left) for symbol in binding.sizes}
    sizes.update({symbol: binding.sizes[symbol] for symbol in stable})
    shapes = [
        tuple([size_value(axis.visible_extent, sizes) for axis in value.shape])
        if isinstance(value, TensorView)
        else ()
        for value in fusion.inputs
    ]
    strides = [
        tuple([own if own <= 1 and number == own else number for own, number in zip(each, left)])
        for each in binding.strides
    ]
    return replace(binding, sizes=sizes, shapes=tuple(shapes), strides=tuple(strides))


def _size_class(
    sizes: Mapping[Symbol, int], stable: frozenset[Symbol], hardware: HardwareInfo
) -> tuple[Hashable, ...]:
    """What calls have in common that one partition serves: sizes up to a factor of two; and 0 and 1."""
    return hardware, tuple([size.bit_length() for size in sizes.values()]), bool(stable)
