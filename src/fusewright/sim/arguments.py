"""Global memory: the kernel's arguments as buffers, with facts about their contents."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fusewright.core.errors import SimulationError, UnwrittenOutputError
from fusewright.core.once import cached_property
from fusewright.kernel.ir import Buffer, Kernel, ScalarParam, TensorParam, WorkspaceParam, multiplier
from fusewright.sim.launch import Argument
from fusewright.sim.memory import LinearMemory, Members, Region, poison
from fusewright.sim.usage import Usage
from fusewright.sym import Expr, Symbol, evaluate

# Vector accesses are of at most this many bytes; element 0's distance from a multiple is kept.
_ALIGNMENT_UNIT = 128

# The tag (see memory.Region) of global memory that holds a value.
_WRITTEN = 1


@dataclass(frozen=True)
class Arguments:
    """The arguments of a launch: buffers, values of a user's scalars (1, 1), values of size symbols.

    Attributes:
        outputs: the tensors that the kernel must write, with facts about their memory.
        regions: the regions of all buffers whose accesses are logged.
    """

    buffers: Mapping[Buffer, LinearMemory]
    scalars: Mapping[ScalarParam, Tensor]
    sizes: Mapping[Symbol, int]
    outputs: Sequence[_Output]
    regions: Sequence[Region]

    def forget_accesses(self) -> None:
        """Orders all previous accesses to global memory before later ones."""
        for region in self.regions:
            if region.log is not None:
                region.log.clear_all()

    def check_written(self, kernel: Kernel) -> None:
        """An UnwrittenOutputError if an element of an output was never stored to, in whichever buffer."""
        for output in self.outputs:
            missing = output.missing()
            if not bool(missing.any()):
                continue
            element = tuple(missing.nonzero()[0].tolist())
            raise UnwrittenOutputError(
                kernel=kernel.name,
                tensor=output.argument.param.buffer.name,
                element=element,
                index=sum(map(operator.mul, element, output.argument.tensor.stride())),
                missing=int(missing.sum()),
                elements=missing.numel(),
            )

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
    def is_output(self) -> bool:
        return isinstance(self.param, TensorParam) and self.param.is_output

    @property
    def is_undefined(self) -> bool:
        """Whether its elements have no value before the kernel writes them."""
        return not self.param.zeroed if isinstance(self.param, WorkspaceParam) else self.param.is_output

    @cached_property
    def members(self) -> Members | None:
        """Which elements of `flat` are the tensor's own; None if all are."""
        if isinstance(self.param, WorkspaceParam) or _fills(self.tensor, self.flat.numel()):
            return None
        own = torch.zeros(max(self.flat.numel(), _span(self.tensor)), dtype=torch.bool)
        own.as_strided(self.tensor.shape, self.tensor.stride()).fill_(True)
        return Members(own[: self.flat.numel()], tuple(self.tensor.shape), self.tensor.stride())


@dataclass(frozen=True)
class _Output:
    """A tensor that the kernel is to write; granule `first` of `region` is where it starts."""

    argument: _Argument
    region: Region
    first: int

    def missing(self) -> Tensor:
        """Which elements no store has reached, bool, of the tensor's shape. Elements that are not within the
        buffer's size no store can reach.
        """
        tensor, count = self.argument.tensor, self.argument.flat.numel()
        assert self.region.tags is not None
        granules = self.argument.flat.element_size() // self.region.granule_bytes
        tags = self.region.tags[self.first : self.first + count * granules]
        unwritten = torch.ones(max(count, _span(tensor)), dtype=torch.bool)
        unwritten[:count] = (tags.view(count, granules) != _WRITTEN).any(dim=1)
        return unwritten.as_strided(tensor.shape, tensor.stride())


def _span(tensor: Tensor) -> int:
    """Elements from the tensor's first to its last; 0 if it has none."""
    if not tensor.numel():
        return 0
    return 1 + sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride()))


def _fills(tensor: Tensor, count: int) -> bool:
    """Whether the tensor's elements take all of the first `count` places from its first on."""
    filled = 1 if tensor.numel() else 0
    for stride, extent in sorted(zip(tensor.stride(), tensor.shape)):
        if extent > 1 and stride:
            if stride > filled:
                return False
            filled += stride * (extent - 1)
    return filled >= count


def bind_arguments(
    kernel: Kernel,
    args: Sequence[Argument],
    sizes: Mapping[Symbol, int],
    usage: Usage,
    *,
    races: bool,
    uninitialized: bool,
    outputs: bool,
) -> Arguments:
    """Check the arguments against the parameters and poison the memory that the kernel is to write.

    An output or workspace is filled with NaN unless another argument overlaps it (an output that aliases an
    input). Raises SimulationError for an argument that does not fit its parameter.
    """
    tensors: list[_Argument] = []
    scalars: dict[ScalarParam, Tensor] = {}
    for param, arg in zip(kernel.params, args):
        if isinstance(param, ScalarParam):
            if param.divisor is not None:
                _check_multiplier(param, param.divisor, arg, sizes)
            if param.symbol is None:
                scalars[param] = _scalar(param, arg)
        else:
            tensors.append(_tensor(param, arg, sizes))
    buffers: dict[Buffer, LinearMemory] = {}
    to_write: list[_Output] = []
    regions: list[Region] = []
    for group in _overlapping(tensors):
        undefined = len(group) == 1 and group[0].is_undefined
        keeps_tags = (undefined and uninitialized) or (outputs and any(each.is_output for each in group))
        region = _region(group, usage, races=races, tags=keeps_tags)
        regions += [] if region is None else [region]
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
                defined=not (undefined and uninitialized),
                members=each.members,
            )
            if outputs and each.is_output:
                assert region is not None
                to_write.append(_Output(each, region, first))
        if undefined:
            _undefine(group[0])
    return Arguments(buffers, scalars, sizes, to_write, regions)


def _check_multiplier(param: ScalarParam, divisor: Expr, arg: Argument, sizes: Mapping[Symbol, int]) -> None:
    wanted = evaluate(multiplier(divisor), sizes)
    if arg != wanted:
        by = evaluate(divisor, sizes)
        raise SimulationError(f"argument `{param.name}`, for quotients by {by}, must be {wanted}, not {arg}")


def _scalar(param: ScalarParam, arg: Argument) -> Tensor:
    value = arg.item() if isinstance(arg, Tensor) else arg
    return torch.full((1, 1), value, dtype=param.dtype.values)


def _tensor(param: TensorParam | WorkspaceParam, arg: Argument, sizes: Mapping[Symbol, int]) -> _Argument:
    buffer = param.buffer
    if not isinstance(arg, Tensor) or arg.device.type != "cpu" or arg.dtype != buffer.dtype.torch:
        given = f"{arg.dtype} on {arg.device}" if isinstance(arg, Tensor) else repr(arg)
        raise SimulationError(
            f"argument `{buffer.name}` must be a CPU tensor of {buffer.dtype.torch}, not {given}"
        )
    arg = arg.view(buffer.dtype.values)
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


def _region(group: list[_Argument], usage: Usage, *, races: bool, tags: bool) -> Region | None:
    """What to keep of accesses to a group; None if nothing has to be."""
    members = [each.param.buffer for each in group]
    if not tags and not any(buffer in usage.written for buffer in members):
        return None
    start, end = group[0].start, max(each.end for each in group)
    granule = math.gcd(*(each.flat.element_size() for each in group), *(each.start - start for each in group))
    return Region(
        (end - start) // granule,
        granule,
        races=races,
        tags=tags,
        reads=any(buffer in usage.read for buffer in members),
    )


def _undefine(argument: _Argument) -> None:
    """Poison the tensor's own elements; what lies between them belongs to somebody else."""
    with torch.no_grad():
        own = argument.flat if isinstance(argument.param, WorkspaceParam) else argument.tensor
        own.fill_(poison(argument.param.buffer.dtype))
