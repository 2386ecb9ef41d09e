"""Cases of the catalogue at sizes, types and memory layouts that are drawn at random.

The catalogue's own sizes are those that schedules were made with. What other sizes take is what these
cases are for: odd and small ones, other types, inputs that begin at misaligned addresses or lie in another
order of dimensions.
"""

from __future__ import annotations

import itertools
import logging
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from bench.ahead import Case
from bench.operation import Inputs, Operation, Shape

#: Sizes up to this one are mostly structure (heads, channels of a color, sides of a window) and mostly stay.
STRUCTURE = 16
STAYS, STRUCTURE_STAYS = 0.35, 0.8
FACTORS = (0.08, 0.25, 0.37, 0.5, 1.0, 1.0, 1.5, 2.0)
OFFSETS = (-1, 1, 3, -3)
#: Every other changed size is a multiple of this one, which vectors of 16-bit elements divide.
VECTOR = 8
#: The largest product of a case's sizes: a tensor of 240 MB in bfloat16.
MOST_ELEMENTS = 120_000_000
#: Half of the cases are of bfloat16, three of five lie as a user's tensors mostly do.
DTYPES = (torch.bfloat16, torch.bfloat16, torch.float16, torch.float32)
PLAIN, TRANSPOSED, MISALIGNED = "plain", "transposed", "misaligned"
LAYOUTS = (PLAIN, PLAIN, PLAIN, TRANSPOSED, MISALIGNED)
#: Each input lies in its own way, which the number behind the name draws.
MIXED = "mixed"
ALL_LAYOUTS = (PLAIN, TRANSPOSED, MISALIGNED, MIXED, MIXED)
#: Elements between the rows of a mixed input that is a part of a larger tensor.
GAPS = (1, 3, 8, 16)


def drawn_cases(
    seed: int, count: int, operations: Sequence[Operation], layouts: Sequence[str] = LAYOUTS
) -> list[Case]:
    """So many cases, the same ones for a seed; each operation once before any comes again.

    An operation's name says its case's type and layout. Shapes that torch refuses are drawn again.
    """
    return list(itertools.islice(_cases(random.Random(seed), operations, layouts), count))


def _cases(draw: random.Random, operations: Sequence[Operation], layouts: Sequence[str]) -> Iterator[Case]:
    order = list(operations)
    draw.shuffle(order)
    for operation in itertools.cycle(order):
        shape = _varied(draw, draw.choice(operation.shapes))
        dtype, layout = draw.choice(DTYPES), draw.choice(layouts)
        if layout == MIXED:
            layout = f"{MIXED}{draw.randrange(1000)}"
        if math.prod(shape) > MOST_ELEMENTS:
            continue
        case = laid_out(operation, dtype, layout)
        if _is_valid(case, shape):
            yield case, shape


def _varied(draw: random.Random, shape: Shape) -> Shape:
    return tuple(_varied_size(draw, size) for size in shape)


def _varied_size(draw: random.Random, size: int) -> int:
    if (size <= STRUCTURE and draw.random() < STRUCTURE_STAYS) or draw.random() < STAYS:
        return size
    scaled = max(1, int(size * draw.choice(FACTORS)))
    if draw.random() < 0.5:
        return max(1, scaled + draw.choice(OFFSETS))
    return max(scaled // VECTOR * VECTOR, min(scaled, VECTOR))


def laid_out(operation: Operation, dtype: torch.dtype, layout: str) -> Operation:
    """The operation on inputs of this type where it names none, in this layout."""

    def inputs(shape: Shape, given: Inputs) -> tuple[torch.Tensor, ...]:
        made = operation.inputs(shape, Inputs(given.device, dtype=dtype))
        if layout.startswith(MIXED):
            draws = (random.Random(f"{layout} {position}") for position in range(len(made)))
            return tuple(map(mixed, made, draws))
        return tuple(_moved(tensor, layout) for tensor in made)

    name = f"{operation.name} {str(dtype).removeprefix('torch.')} {layout}"
    return replace(operation, name=name, inputs=inputs)


def _moved(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """The same values, with the last two dimensions swapped in memory, or at a misaligned address."""
    if layout == TRANSPOSED and tensor.dim() >= 2:
        return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout == MISALIGNED and tensor.numel() > 1:
        moved = tensor.new_empty(tensor.numel() + 1)[1:].view(tensor.shape)
        return moved.copy_(tensor)
    return tensor


def mixed(tensor: torch.Tensor, draw: random.Random) -> torch.Tensor:
    """The same values, with dimensions in any order, in a larger tensor, or at a misaligned address."""
    order = list(range(tensor.dim()))
    if draw.random() < 0.5:
        draw.shuffle(order)
    sizes = [tensor.shape[dim] for dim in order]
    gap = draw.choice(GAPS) if sizes and draw.random() < 0.3 else 0
    start = int(draw.random() < 0.3)
    widened = [*sizes[:-1], sizes[-1] + gap] if sizes else []
    memory = tensor.new_empty(math.prod(widened) + start)[start:].view(widened)
    part = memory[..., : sizes[-1]] if sizes else memory
    return part.permute([order.index(dim) for dim in range(tensor.dim())]).copy_(tensor)


def _is_valid(operation: Operation, shape: Shape) -> bool:
    """Whether torch takes the operation at these sizes, by fake tensors."""
    log = logging.getLogger("torch._subclasses.fake_tensor")  # prints a trace for each refusal
    was_disabled, log.disabled = log.disabled, True
    try:
        with FakeTensorMode():
            operation.reference(*operation.inputs(shape, Inputs(torch.device("cpu"))))
    except (RuntimeError, ValueError, IndexError, AssertionError):
        return False  # a few of torch's fake kernels assert what they accept
    finally:
        log.disabled = was_disabled
    return True
