"""The facts about a call that the partition uses."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import torch

from fusewright.core.hardware import HardwareInfo
from fusewright.core.options import Options
from fusewright.host.inputs.binding import Binding
from fusewright.host.inputs.memory import Memory
from fusewright.host.program.plan import in_place_candidates
from fusewright.host.program.views import Views
from fusewright.ir import Fusion, TensorView
from fusewright.runtime.hardware import hardware_of, present
from fusewright.schedulers import Facts
from fusewright.segment import Call, Exclusions, Segment
from fusewright.sym import Symbol


@dataclass(frozen=True, slots=True)
class Question:
    """The partition's input for one call.

    Attributes:
        call: the facts about the call that planners read.
        required: exclusions that every partition must obey.
        memory: the layouts of the call's tensors.
        views: the outputs that are views of inputs.
        empty: the outputs without elements.
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
    """The schedulers' description of a device; the simulated GPU's if the device is not a present GPU."""
    return hardware_of(present(device), options)


def call_of(
    fusion: Fusion,
    binding: Binding,
    memory: Memory,
    stable: frozenset[Symbol],
    hardware: HardwareInfo,
    horizontal: bool,
) -> Call:
    """The call that `binding` and `memory` describe. `stable`: sizes that had one value in all calls."""

    def facts(segment: Segment) -> Facts:
        return memory.facts_of(segment, binding.index_dtype, stable)

    def start(segments: Sequence[Segment]) -> None:
        place_candidates(fusion, segments, memory)

    return Call(_size_class(binding.sizes, stable, hardware), start, facts, hardware, horizontal)


def place_candidates(fusion: Fusion, segments: Sequence[Segment], memory: Memory) -> None:
    """Gives outputs in `memory` the layout of the input that these segments may write them into.

    Only the compiled kernel shows whether it can write in place. Its params are chosen before, so they must
    be right for either place.
    """
    if any(output.alias is not None for output in fusion.outputs):
        steps = [(segment.inputs, segment.outputs) for segment in segments]
        memory.place(in_place_candidates(fusion, steps, memory))


def _size_class(
    sizes: Mapping[Symbol, int], stable: frozenset[Symbol], hardware: HardwareInfo
) -> tuple[Hashable, ...]:
    """A key for the calls that share a partition: each size has the same bit length in all of them.

    So sizes differ by less than a factor of two, and the sizes 0 and 1 have keys of their own.
    """
    return hardware, tuple([size.bit_length() for size in sizes.values()]), bool(stable)
