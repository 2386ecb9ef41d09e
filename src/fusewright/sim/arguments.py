"""Global memory: the kernel's arguments as buffers, with what is known of their contents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fusewright.core.errors import SimulationError
from fusewright.kernel.ir import Buffer, Kernel, ScalarParam, TensorParam, WorkspaceParam
from fusewright.sim.launch import Argument
from fusewright.sim.memory import LinearMemory, Region, poison
from fusewright.sim.usage import Usage
from fusewright.sym import Symbol, evaluate

# Vector accesses are of at most this many bytes; element 0's distance from a multiple is kept.
_ALIGNMENT_UNIT = 128

# The tag (see memory.Region) of global memory that holds a value.
_WRITTEN = 1


@dataclass(frozen=True)
class Arguments:
    """The arguments of a launch: buffers, values of user's scalars (1, 1), values of size symbols."""

    buffers: Mapping[Buffer, LinearMemory]
    scalars: Mapping[ScalarParam, Tensor]
    sizes: Mapping[Symbol, int]

    def check_zero(self, buffer: Buffer, when: str) -> None:
        """A SimulationError unless a zeroed workspace is all zero."""
        if bool((self.buffers[buffer].elements() != 0).any()):
            raise SimulationError(f"workspace `{buffer.name}` is not zero {when}")


@dataclass(frozen=True)
class _Argument:
    """A tensor argument and the bytes [start, end) that the kernel may address through it."""

    param: TensorParam | WorkspaceParam
    tensor: Tensor
    flat: Tensor

    @property
    def start(self) -> int:
        return self.flat.data_ptr()

    @property
    def end(self) -> int:
        return self.start + self.flat.numel() * self.flat.element_size()

    @property
    def is_undefined(self) -> bool:
        """Whether its elements have no value before the kernel writes them."""
        return not self.param.zeroed if isinstance(self.param, WorkspaceParam) else self.param.is_output


def bind_arguments(
    kernel: Kernel,
    args: Sequence[Argument],
    sizes: Mapping[Symbol, int],
    usage: Usage,
    *,
    races: bool,
    uninitialized: bool,
) -> Arguments:
    """Check the arguments against the parameters and poison the memory that the kernel is to write.

    An output or workspace is filled with NaN unless another argument overlaps it (an output that aliases an
    input). Raises SimulationError for an argument that does not fit its parameter.
    """
    tensors: list[_Argument] = []
    scalars: dict[ScalarParam, Tensor] = {}
    for param, arg in zip(kernel.params, args):
        if isinstance(param, ScalarParam):
            if param.symbol is None:
                scalars[param] = _scalar(param, arg)
        else:
            tensors.append(_tensor(param, arg, sizes))
    buffers: dict[Buffer, LinearMemory] = {}
    for group in _overlapping(tensors):
        region = _region(group, usage, races=races, uninitialized=uninitialized)
        for each in group:
            first = (each.start - group[0].start) // region.granule_bytes if region is not None else 0
            buffer = each.param.buffer
            buffers[buffer] = LinearMemory(
                buffer.name,
                buffer.dtype,
                each.flat,
                each.flat.numel(),
                region=region,
                tag=_WRITTEN,
                first=first,
                unaligned=each.start % _ALIGNMENT_UNIT,
            )
        if len(group) == 1 and group[0].is_undefined:
            _undefine(group[0], region)
    return Arguments(buffers, scalars, sizes)


def _scalar(param: ScalarParam, arg: Argument) -> Tensor:
    value = arg.item() if isinstance(arg, Tensor) else arg
    return torch.full((1, 1), value, dtype=param.dtype.torch)


def _tensor(param: TensorParam | WorkspaceParam, arg: Argument, sizes: Mapping[Symbol, int]) -> _Argument:
    buffer = param.buffer
    if not isinstance(arg, Tensor) or arg.device.type != "cpu" or arg.dtype != buffer.dtype.torch:
        given = f"{arg.dtype} on {arg.device}" if isinstance(arg, Tensor) else repr(arg)
        raise SimulationError(
            f"argument `{buffer.name}` must be a CPU tensor of {buffer.dtype.torch}, not {given}"
        )
    in_storage = arg.untyped_storage().nbytes() // arg.element_size() - arg.storage_offset()
    count = max(0, min(evaluate(buffer.size, sizes), in_storage))
    if isinstance(param, TensorParam) and not arg.numel():
        count = 0  # on a GPU its pointer is null, whatever the tensor was expanded from
    return _Argument(param, arg, arg.detach().as_strided((count,), (1,)))


def _overlapping(arguments: Sequence[_Argument]) -> list[list[_Argument]]:
    """Groups of arguments whose bytes overlap, each by ascending address."""
    groups: list[list[_Argument]] = []
    end = -1
    for each in sorted(arguments, key=lambda argument: (argument.start, argument.end)):
        if groups and each.start < end and each.start < each.end:
            groups[-1].append(each)
        else:
            groups.append([each])
        end = max(end, each.end)
    return groups


def _region(group: list[_Argument], usage: Usage, *, races: bool, uninitialized: bool) -> Region | None:
    """What to keep of accesses to a group; None if the kernel only reads it."""
    members = [each.param.buffer for each in group]
    undefined = len(group) == 1 and group[0].is_undefined
    if not any(buffer in usage.written for buffer in members) and not undefined:
        return None
    start, end = group[0].start, max(each.end for each in group)
    granule = math.gcd(*(each.flat.element_size() for each in group), *(each.start - start for each in group))
    region = Region(
        (end - start) // granule,
        granule,
        races=races,
        tags=undefined and uninitialized,
        reads=any(buffer in usage.read for buffer in members),
    )
    return region


def _undefine(argument: _Argument, region: Region | None) -> None:
    """Poison the tensor's own elements; what lies between them belongs to somebody else."""
    tensor, flat = argument.tensor, argument.flat
    if isinstance(argument.param, WorkspaceParam):
        tensor = flat
    with torch.no_grad():
        tensor.fill_(poison(argument.param.buffer.dtype))
    if region is None or region.tags is None:
        return
    span = 1 + sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride()))
    if tensor.numel() and span <= flat.numel():
        # Alone in its region, so a granule is an element.
        region.tags.fill_(_WRITTEN)
        region.tags.as_strided(tensor.shape, tensor.stride()).fill_(0)
