"""Functions of random reductions, at random sizes and in random memory layouts.

Each is a chain of steps: a reduction of what is there, along one dimension or several, and a use of its
result. The catalogue's functions reduce as models do. These reduce as nobody does, which is where schedules
of several results, of several dimensions and of short rows meet.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bench.ahead import Case
from bench.drawn import mixed
from bench.operation import Inputs, Operation, Shape, Tensors

#: Of rows that a thread, a warp, a block and the grid reduce, whole vectors and not.
SIZES = (
    1, 2, 3, 4, 5, 7, 8, 16, 19, 31, 32, 33, 48, 63, 64, 65, 96, 100, 127, 128, 200, 255, 256, 257, 400, 512,
    768, 1000, 1024, 1025, 2048, 3000, 4096, 4097, 8192, 16384, 50257, 65536, 100003, 131072,
)  # fmt: skip
RANKS = (1, 2, 2, 2, 3, 3, 4)
FEWEST_ELEMENTS, MOST_ELEMENTS = 64, 60_000_000
#: What the simulator runs in a moment.
FEW_ELEMENTS = 6_000
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
EPSILON = 1e-5

#: Reductions that keep their dimensions, whose result the next steps may use.
REDUCTIONS: dict[str, Callable[[Tensor, Sequence[int]], Tensor]] = {
    "sum": lambda x, dims: x.sum(dims, keepdim=True),
    "amax": lambda x, dims: x.amax(dims, keepdim=True),
    "moments": lambda x, dims: torch.add(*torch.var_mean(x, dims, keepdim=True, correction=0)),
    "squares": lambda x, dims: (x * x).mean(dims, keepdim=True) - x.mean(dims, keepdim=True) ** 2,
    "logsumexp": lambda x, dims: torch.logsumexp(x, dims, keepdim=True),
    "max": lambda x, dims: torch.add(*x.max(dims[-1], keepdim=True)),
}
#: What has as many elements as it is given.
ROWS: dict[str, Callable[[Tensor, Sequence[int]], Tensor]] = {
    "softmax": lambda x, dims: torch.softmax(x, dims[-1]),
    "cumsum": lambda x, dims: torch.cumsum(x, dims[-1]),
    "norm": lambda x, dims: (x - x.mean(dims, keepdim=True)) * torch.rsqrt(_variance(x, dims) + EPSILON),
}
#: Results that are no floats.
COUNTS: dict[str, Callable[[Tensor, Sequence[int]], Tensor]] = {
    "argmax": lambda x, dims: x.argmax(dims[-1]),
    "any": lambda x, dims: (x > 2).any(dims[-1]),
    "count": lambda x, dims: (x > 0).sum(dims),
}
#: Uses of a reduction's result: returned, without its dimension, or met with what was reduced.
RETURNED, SQUEEZED, CENTERED, SCALED, REDUCED_AGAIN = "returned", "squeezed", "centered", "scaled", "again"


def _variance(x: Tensor, dims: Sequence[int]) -> Tensor:
    return torch.var(x, dims, keepdim=True, correction=0)


@dataclass(frozen=True)
class _Step:
    """One reduction.

    Attributes:
        name: of `REDUCTIONS`, `ROWS` or `COUNTS`.
        use: what its result is used for, if it is one of `REDUCTIONS`.
    """

    name: str
    dims: tuple[int, ...]
    use: str

    def apply(self, x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """(What the next step reduces, an output.)"""
        if self.name in COUNTS:
            return x, COUNTS[self.name](x, self.dims)
        if self.name in ROWS:
            made = ROWS[self.name](x, self.dims)
            return (made if self.name == "norm" else x), made.to(dtype)
        found = REDUCTIONS[self.name](x, self.dims)
        if self.use == CENTERED:
            return x - found, (x - found).to(dtype)
        if self.use == SCALED:
            return x, (x / (found.abs() + 1)).to(dtype)
        if self.use == REDUCED_AGAIN:
            return x, (x * found).sum(self.dims[-1])
        return x, found if self.use == RETURNED else found.squeeze(self.dims[-1])


def reduction_cases(seed: int, count: int, most: int = MOST_ELEMENTS) -> list[Case]:
    """So many cases of at most `most` elements, the same ones for a seed."""
    return [_case(random.Random(f"{seed} {number}"), number, most) for number in range(count)]


def _case(draw: random.Random, number: int, most: int) -> Case:
    shape = _shape(draw, most)
    dtype = draw.choice(DTYPES)
    steps = [_step(draw, len(shape)) for _ in range(draw.choice((1, 1, 2, 2, 3)))]
    factor = tuple(size if draw.random() < 0.6 else 1 for size in shape) if draw.random() < 0.4 else None
    is_kinked, is_mixed, layout = draw.random() < 0.3, draw.random() < 0.5, draw.randrange(1000)
    is_turned = draw.random() < 0.2

    def function(x: Tensor, *others: Tensor) -> Tensors:
        value = x.float() if x.dtype is not torch.float64 else x
        for other in others:
            value = value * other
        if is_kinked:
            value = torch.where(value > 0.1, value, value * 0.01)
        # What is stored in another order than it is reduced in.
        outputs = [value.transpose(0, -1).contiguous().to(x.dtype)] if is_turned else []
        for step in steps:
            value, output = step.apply(value, x.dtype)
            outputs.append(output)
        return tuple(outputs)

    def inputs(shape: Shape, given: Inputs) -> Tensors:
        made = [given(*each, dtype=dtype) for each in (shape, factor) if each is not None]
        if not is_mixed:
            return tuple(made)
        return tuple(mixed(tensor, random.Random(f"{layout} {i}")) for i, tensor in enumerate(made))

    text = " ".join(f"{step.name}{step.dims}" for step in steps)
    return Operation(f"random {number}: {text}", None, function, inputs, (shape,)), shape


def _shape(draw: random.Random, most: int) -> Shape:
    while True:
        shape = tuple(draw.choice(SIZES) for _ in range(draw.choice(RANKS)))
        if FEWEST_ELEMENTS <= math.prod(shape) <= most:
            return shape


def _step(draw: random.Random, rank: int) -> _Step:
    dims = tuple(sorted(draw.sample(range(rank), draw.randint(1, rank))))
    if draw.random() < 0.6:
        dims = (draw.choice((rank - 1, rank - 1, 0, draw.randrange(rank))),)
    name = draw.choice((*REDUCTIONS, "moments", "sum", *ROWS, *COUNTS))
    return _Step(name, dims, draw.choice((RETURNED, SQUEEZED, CENTERED, SCALED, REDUCED_AGAIN)))
