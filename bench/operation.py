"""What one row of the benchmark of operations is: a Fusewright definition next to the torch function."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from fusewright import DataType, FusionDefinition
from fusewright.torch_compile import decompositions, from_fx

Shape = tuple[int, ...]
Tensors = tuple[torch.Tensor, ...]
#: A tensor of a definition: the front end's handle, whose operators build nodes.
Handle = Any

EPSILON = 1e-5
KEEP = 0.9  # of dropout
# A sum of n values of size 1 computed in float32: rounding grows like sqrt(n), and the factor covers the
# functions (exp, tanh, rsqrt) on the way and partial sums taken one after another.
FLOAT_ERROR = 64 * 2.0**-24
# Relative error of an output: half a unit in the last place of bfloat16, and a little for results near a tie
# that float arithmetic moves to its other side; a few units of float32.
ROUNDING = {
    torch.bfloat16: 1.01 * 2.0**-8,
    torch.float16: 1.01 * 2.0**-11,
    torch.float8_e4m3fn: 1.01 * 2.0**-4,
    torch.float8_e5m2: 1.01 * 2.0**-3,
    torch.float32: 2.0**-20,
    torch.float64: 2.0**-44,
}
# Beside torch's own result: how many times its largest error is allowed, and which share of results that are
# no floats may differ, since a value rounds the other way.
BESIDE_TORCH = 2.0
FEW_DIFFER = 1e-3
# The share of floats that may be neighbours of what torch's function rounds them to: products with a
# reciprocal are off by 3 * 2^-24 of the quotient (docs/accuracy.md), and so near to the middle of two float8
# are 3 in 10,000 ratios of bfloat16 to the largest of a row.
FEW_ROUND_OTHERWISE = 4e-3
# Half the distance of the least numbers of a type, where that matters beside FLOAT_ERROR.
LEAST = {torch.float8_e4m3fn: 1.01 * 2.0**-10, torch.float8_e5m2: 1.01 * 2.0**-17, torch.float16: 2.0**-25}


# The type of a definition's results by that of its inputs.
STORED = {torch.bfloat16: DataType.BFloat16, torch.float16: DataType.Half, torch.float32: DataType.Float}
# What masks put in place of a value: far below all inputs, finite in half.
MASKED = -30000.0


class RowDefinition(FusionDefinition):
    """A definition whose results are stored as a given type."""

    def __init__(self, stored: DataType) -> None:
        super().__init__()
        self.stored = stored


class Inputs:
    """Makes the inputs of an operation, the same ones each time; of `dtype` unless it asks for another."""

    def __init__(self, device: torch.device, seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> None:
        self.device = device
        self.dtype = dtype
        self._generator = torch.Generator(device).manual_seed(seed)

    def __call__(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Normally distributed values."""
        return torch.randn(*shape, device=self.device, dtype=dtype or self.dtype, generator=self._generator)

    def mask(self, *shape: int) -> torch.Tensor:
        """Bools, True with probability `KEEP`."""
        return torch.rand(*shape, device=self.device, generator=self._generator) < KEEP

    def indices(self, size: int, *shape: int) -> torch.Tensor:
        """Indices into a dimension of this size, of type int64."""
        return torch.randint(size, shape, device=self.device, generator=self._generator)

    def distinct(self, size: int, count: int) -> torch.Tensor:
        """So many different indices into a dimension of this size, of type int64."""
        return torch.randperm(size, device=self.device, generator=self._generator)[:count]


@dataclass(frozen=True)
class Operation:
    """One row of the benchmark.

    define: builds the computation from one handle an input and returns the outputs; None where the definition
    is what `from_fx` makes of `reference`.
    reference: the function that a torch user writes; given doubles, it computes in doubles.
    inputs: the tensors for a shape. shapes: what is measured. small: what the simulator runs in a moment,
    with rows that vectors divide and rows that they do not. summed: how many values an output adds up
    without dividing by their number, which sets the absolute error. moved: the least bytes that have to be
    read and written, where they are not those of all inputs and outputs. static_sizes: the definition states
    the sizes of its inputs.
    """

    name: str
    define: Callable[..., Sequence[Handle]] | None
    reference: Callable[..., Any]
    inputs: Callable[[Shape, Inputs], Tensors]
    shapes: tuple[Shape, ...]
    small: tuple[Shape, ...] = ((6, 64), (5, 99))
    summed: Callable[[Shape], int] = lambda shape: 1
    moved: Callable[[Tensors, Tensors], int] = lambda inputs, outputs: total_bytes((*inputs, *outputs))
    static_sizes: bool = False

    def definition(self, inputs: Tensors, dtype: torch.dtype = torch.bfloat16) -> FusionDefinition:
        """The operation for inputs of this rank, type and memory order; any size unless `static_sizes`.

        Results are of `dtype` where they are no statistics. Without `define`: for inputs of these sizes, and
        results are of torch's types.
        """
        if self.define is None:
            return traced(self.reference, inputs)
        with RowDefinition(STORED[dtype]) as fd:
            handles = (fd.from_pytorch(tensor, static_sizes=self.static_sizes) for tensor in inputs)
            for output in self.define(fd, *handles):
                fd.add_output(output)
        return fd

    def least_bytes(self, inputs: Tensors, outputs: Tensors) -> int:
        """What any implementation must read and write at least."""
        return self.moved(inputs, outputs)

    def check(
        self, shape: Shape, inputs: Tensors, outputs: Sequence[torch.Tensor], in_turn: int = 1
    ) -> float:
        """Compare with torch in double precision; the largest error, as a fraction of what is allowed.

        Without `define`, results may be as far off as torch's own, which rounds at each step, too. `in_turn`:
        so many values a thread may add one after another, as few threads for a long row do.

        Raises:
            AssertionError: an output is wrong.
        """
        if self.define is None:
            return self._check_beside_torch(inputs, outputs)
        expected = as_tuple(self.reference(*(t.double() if t.is_floating_point() else t for t in inputs)))
        assert len(outputs) == len(expected), f"{len(outputs)} outputs, expected {len(expected)}"
        worst = 0.0
        for output, reference in zip(outputs, expected):
            assert output.shape == reference.shape, f"shape {output.shape}, expected {reference.shape}"
            rtol = ROUNDING[output.dtype]
            summed = max(self.summed(shape), in_turn)
            atol = FLOAT_ERROR * math.sqrt(summed) + LEAST.get(output.dtype, 0.0)
            torch.testing.assert_close(output.double(), reference, rtol=rtol, atol=atol)
            used = (output.double() - reference).abs() / (atol + rtol * reference.abs())
            worst = max(worst, used.max().item())
        return worst

    def _check_beside_torch(self, inputs: Tensors, outputs: Sequence[torch.Tensor]) -> float:
        expected, made = (
            as_tuple(self.reference(*given))
            for given in ([t.double() if t.is_floating_point() else t for t in inputs], inputs)
        )
        if len(made) > len(outputs):  # a definition leaves views of its results to the caller
            first = _without_views(made)
            expected, made = (tuple(each[i] for i in first) for each in (expected, made))
        types = [(t.shape, t.dtype) for t in outputs]
        assert types == [(t.shape, t.dtype) for t in made], f"{types}, torch returns others"
        worst = 0.0
        for output, exact, torchs in zip(outputs, expected, made):
            if not output.numel():
                continue
            if output.is_floating_point():
                is_rounded, exact = exact.dtype != torch.double, exact.double()
                own = (torchs.double() - exact).abs().nan_to_num(0.0).max().item()
                largest = exact.abs().max().item()
                atol = FLOAT_ERROR * max(1.0, largest) + LEAST.get(output.dtype, 0.0)
                allowed = (ROUNDING[output.dtype] * exact.abs()).add_(atol + BESIDE_TORCH * own)
                errors = (output.double() - exact).abs_().div_(allowed).nan_to_num(math.inf)
                errors.masked_fill_(output == exact.to(output.dtype), 0.0)  # beyond the largest of the type
                used = _worst(errors, is_rounded)
            else:
                differ, own = (t.ne(exact).double().mean().item() for t in (output, torchs))
                used = differ / (BESIDE_TORCH * own + FEW_DIFFER)
            assert used <= 1, f"not close to torch's result: {used:.3g} of the allowed error"
            worst = max(worst, used)
        return worst


def _without_views(results: Sequence[torch.Tensor]) -> list[int]:
    """The places of results that are no views of earlier ones; what is empty is none."""
    memories = [each.untyped_storage().data_ptr() if each.numel() else None for each in results]
    return [
        place for place, memory in enumerate(memories) if memory is None or memory not in memories[:place]
    ]


def _worst(errors: torch.Tensor, is_rounded: bool) -> float:
    """The largest of errors, as fractions of what is allowed: about half of the distance of two numbers.

    A few may be as large as that distance, if they are differences from what is rounded itself.
    """
    far = errors > 1
    if is_rounded and far.double().mean() <= FEW_ROUND_OTHERWISE:
        errors = torch.where(far, errors / 2, errors)
    return errors.max().item()


def traced(function: Callable[..., Any], inputs: Tensors) -> FusionDefinition:
    """What `from_fx` makes of a function of torch, for inputs of these sizes and types.

    Raises:
        ValueError: it is more than one definition, as torch computes something between them.
    """

    def call(*arguments: torch.Tensor) -> Any:  # make_fx wants an argument for each parameter
        return function(*arguments)

    converted = from_fx(make_fx(call, decompositions(), tracing_mode="fake")(*inputs))
    report = converted.report()
    if report.definitions != 1 or not all(evaluated.within for evaluated in report.evaluated):
        raise ValueError(f"not one definition: {report}")
    return converted.definitions[0]


def total_bytes(tensors: Sequence[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def as_tuple(outputs: torch.Tensor | Sequence[torch.Tensor]) -> Tensors:
    return (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)


# ---- what several operations use ---------------------------------------------------------------------------


def as_float(fd: FusionDefinition, tensor: Handle) -> Handle:
    return fd.ops.cast(tensor, dtype=DataType.Float)


def rounded(fd: FusionDefinition, *tensors: Handle) -> list[Handle]:
    """As the type that results have (`RowDefinition.stored`; bfloat16 in any other definition)."""
    stored = fd.stored if isinstance(fd, RowDefinition) else DataType.BFloat16
    return [fd.ops.cast(tensor, dtype=stored) for tensor in tensors]


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """Float, or double for the reference."""
    return tensor if tensor.dtype is torch.float64 else tensor.float()


def row(fd: FusionDefinition, reduce: Callable[..., Handle], tensor: Handle) -> Handle:
    return reduce(tensor, dims=[-1], keepdim=True)


def per_column(fd: FusionDefinition, vector: Handle) -> Handle:
    """[C] as [1, C]."""
    return fd.ops.broadcast(vector, is_broadcast_dim=[True, False])


def softmax(fd: FusionDefinition, x: Handle) -> list[Handle]:
    x = as_float(fd, x)
    e = fd.ops.exp(x - row(fd, fd.ops.max, x))
    return rounded(fd, e / row(fd, fd.ops.sum, e))


def torch_softmax(x: torch.Tensor) -> torch.Tensor:
    return F.softmax(x, -1)
