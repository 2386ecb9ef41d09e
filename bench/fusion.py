"""A row of the catalogue of fusions: a function of torch, its inputs and sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bench.operation import Inputs, Operation, Shape, Tensors

#: Sizes of most rows: a tensor of 134 MB, one of 34 MB, both of bfloat16.
LARGE, MEDIUM = (16384, 4096), (8192, 2048)
#: The simulator's sizes keep what large ones leave when divided by it, so that odd ones stay odd.
PERIODS = {1: 64, 2: 32, 3: 16}
LEAST_PERIOD = 8

MakesInputs = Callable[[Shape, Inputs], Tensors]


def fusion(
    name: str, function: Callable[..., Any], inputs: MakesInputs, *shapes: Shape, small: Shape | None = None
) -> Operation:
    """A row that is defined by a function of torch alone; `small` follows from the first shape."""
    return Operation(name, None, function, inputs, shapes, (small or small_shape(shapes[0]),))


def small_shape(shape: Shape) -> Shape:
    """A shape for the simulator with the divisors and the oddness of this one."""
    period = PERIODS.get(len(shape), LEAST_PERIOD)
    return tuple(size if size <= period else period + size % period for size in shape)


# ---- inputs ------------------------------------------------------------------------------------------------


def alike(count: int) -> MakesInputs:
    """So many tensors of the shape."""
    return lambda shape, r: tuple(r(*shape) for _ in range(count))


def rows_and_vectors(rows: int, vectors: int) -> MakesInputs:
    """So many tensors of the shape, then vectors along its last dimension."""
    return lambda shape, r: (*(r(*shape) for _ in range(rows)), *(r(shape[-1]) for _ in range(vectors)))


def channels(count: int) -> MakesInputs:
    """A tensor of the shape, then vectors along its second dimension."""
    return lambda shape, r: (r(*shape), *(r(shape[1]) for _ in range(count)))


def masked(shape: Shape, r: Inputs) -> Tensors:
    """A tensor of the shape and truth values."""
    return r(*shape), r.mask(*shape)


def float8(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.float8_e4m3fn)
