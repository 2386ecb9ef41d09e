"""Curated fusions: how to define each, its inputs, and the same computation in torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from fusewright import DataType, FusionDefinition

Tensor = torch.Tensor
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """One fusion at one size.

    define: adds outputs to `fd`, given the handles of its inputs. shapes: of the inputs. reference: the
    outputs in torch, from float64 inputs. reduced: the terms of its longest sum. schedulers: those that must
    make its kernels, in order. dtypes: of the inputs; one stands for all. contiguous: whether inputs are
    declared so.
    """

    name: str
    define: Callable[..., None]
    shapes: tuple[Shape, ...]
    reference: Callable[..., Any]
    schedulers: tuple[str, ...] = ("pointwise",)
    reduced: int = 1
    dtypes: tuple[torch.dtype, ...] = (torch.float32,)
    contiguous: bool = True

    def __str__(self) -> str:
        return self.name

    def definition(self) -> FusionDefinition:
        with FusionDefinition() as fd:
            handles = []
            for shape, dtype in zip(self.shapes, self._dtypes()):
                sizes = [1 if size == 1 else -1 for size in shape]
                handles.append(fd.define_tensor(sizes, self.contiguous, DTYPES[dtype]))
            self.define(fd, *handles)
        return fd

    def inputs(self, device: torch.device, seed: int = 0) -> list[Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return [
            random_tensor(shape, dtype, generator).to(device)
            for shape, dtype in zip(self.shapes, self._dtypes())
        ]

    def expected(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        results = self.reference(*[widened(x.cpu()) for x in inputs])
        return list(results) if isinstance(results, (tuple, list)) else [results]

    def _dtypes(self) -> tuple[torch.dtype, ...]:
        return self.dtypes if len(self.dtypes) > 1 else self.dtypes * len(self.shapes)


DTYPES = {
    torch.float32: DataType.Float,
    torch.float64: DataType.Double,
    torch.float16: DataType.Half,
    torch.bfloat16: DataType.BFloat16,
    torch.int32: DataType.Int32,
    torch.int64: DataType.Int,
    torch.bool: DataType.Bool,
    torch.complex64: DataType.ComplexFloat,
    torch.complex128: DataType.ComplexDouble,
}


def random_tensor(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Standard normal values; integers from -9 to 9; bools."""
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.randint(-9, 10, shape, generator=generator).to(dtype)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    return torch.randn(shape, dtype=wide, generator=generator).to(dtype)


def widened(x: Tensor) -> Tensor:
    """A float or complex tensor in twice its precision; others as they are."""
    if x.is_complex():
        return x.to(torch.complex128)
    return x.double() if x.is_floating_point() else x


def up(fd: FusionDefinition, x: Any) -> Any:
    """In float, as kernels compute."""
    return fd.ops.cast(x, DataType.Float)


# ---- elementwise -------------------------------------------------------------------------------------------


def bias_gelu(fd: FusionDefinition, x: Any, bias: Any) -> None:
    h = x + bias
    inner = math.sqrt(2 / math.pi) * (h + 0.044715 * h * h * h)
    fd.add_output(fd.ops.cast(0.5 * h * (1.0 + fd.ops.tanh(inner)), x.dtype))


def swiglu(fd: FusionDefinition, gate: Any, x: Any) -> None:
    fd.add_output(fd.ops.cast(up(fd, gate) * fd.ops.sigmoid(gate) * x, x.dtype))


def select(fd: FusionDefinition, x: Any, y: Any) -> None:
    fd.add_output(fd.ops.where(x > y, x, fd.ops.clamp(y, -0.5, 0.5)))
    fd.add_output(x > y)


def outer_sum(fd: FusionDefinition, column: Any, row: Any) -> None:
    fd.add_output(column + row)


def channel_scale(fd: FusionDefinition, x: Any, scale: Any) -> None:
    fd.add_output(x * fd.ops.broadcast(scale, [True, False, True, True]))


def batched_bias(fd: FusionDefinition, x: Any, bias: Any) -> None:
    fd.add_output(fd.ops.relu(x + bias))


def transposed_sum(fd: FusionDefinition, x: Any, y: Any) -> None:
    fd.add_output(fd.ops.permute(x, [1, 0]) + y)


def expanded(fd: FusionDefinition, x: Any, y: Any) -> None:
    wide = fd.ops.broadcast_in_dim(x, fd.ops.shape(y), [1])
    fd.add_output(fd.ops.exp(wide))
    fd.add_output(wide - y)


def ramp(fd: FusionDefinition, x: Any) -> None:
    steps = fd.ops.iota(fd.ops.size(x, 1), 0, 2, DataType.Int)
    fd.add_output(x + fd.ops.full([fd.ops.size(x, 0), fd.ops.size(x, 1)], 0.5, DataType.Float) + steps)


def integers(fd: FusionDefinition, x: Any, y: Any) -> None:
    fd.add_output((x * 3 + y) % 7)
    fd.add_output(fd.ops.bitwise_xor(x, y) << 1)
    fd.add_output(fd.ops.truediv(x, 4))


def logic(fd: FusionDefinition, x: Any, y: Any) -> None:
    fd.add_output(fd.ops.logical_and(x, fd.ops.logical_not(y)) | (x ^ y))


def complex_product(fd: FusionDefinition, x: Any, y: Any) -> None:
    fd.add_output(x * y + 1.5)
    fd.add_output(fd.ops.abs(x))
    fd.add_output(fd.ops.real(x) - fd.ops.imag(y))


# ---- reductions --------------------------------------------------------------------------------------------


def reduction(*dims: int, keepdim: bool = False) -> Callable[..., None]:
    def define(fd: FusionDefinition, x: Any) -> None:
        total = fd.ops.sum(up(fd, x), list(dims), keepdim)
        fd.add_output(total * 0.5)

    return define


def row_bias(fd: FusionDefinition, x: Any, bias: Any) -> None:
    """An input that has the rows alone, and is used with their sums."""
    fd.add_output(fd.ops.sum(x, [1]) + bias)


def all_reductions(fd: FusionDefinition, x: Any) -> None:
    for op in (fd.ops.sum, fd.ops.max, fd.ops.min, fd.ops.mean):
        fd.add_output(op(x, [1]))


def column_sums_and_scale(fd: FusionDefinition, x: Any) -> None:
    """What the backward pass of a bias does: the gradient goes on, and its columns are summed."""
    wide = up(fd, x)
    fd.add_output(fd.ops.cast(wide * 2.0, x.dtype))
    fd.add_output(fd.ops.sum(wide, [0]))


def moments(*dims: int) -> Callable[..., None]:
    def define(fd: FusionDefinition, x: Any) -> None:
        variance, mean = fd.ops.var_mean(x, list(dims), 1)
        fd.add_output(variance)
        fd.add_output(mean)

    return define


def complex_sum(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sum(x, [1]))


def discrete_reductions(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sum(x, [1]))
    fd.add_output(fd.ops.max(x, [1]))


# ---- normalizations ----------------------------------------------------------------------------------------


def softmax(fd: FusionDefinition, x: Any) -> None:
    wide = up(fd, x)
    e = fd.ops.exp(wide - fd.ops.max(wide, [-1], keepdim=True))
    fd.add_output(fd.ops.cast(e / fd.ops.sum(e, [-1], keepdim=True), x.dtype))


def softmax_of_columns(fd: FusionDefinition, x: Any) -> None:
    wide = up(fd, x)
    e = fd.ops.exp(wide - fd.ops.max(wide, [1], keepdim=True))
    fd.add_output(fd.ops.cast(e / fd.ops.sum(e, [1], keepdim=True), x.dtype))


def _normalized(fd: FusionDefinition, wide: Any) -> Any:
    variance, mean = fd.ops.var_mean(wide, [-1], 0, keepdim=True)
    return (wide - mean) * fd.ops.rsqrt(variance + 1e-5)


def layer_norm(fd: FusionDefinition, x: Any, weight: Any, bias: Any) -> None:
    wide = up(fd, x)
    variance, mean = fd.ops.var_mean(wide, [-1], 0, keepdim=True)
    scale = fd.ops.rsqrt(variance + 1e-5)
    fd.add_output(fd.ops.cast((wide - mean) * scale * weight + bias, x.dtype))
    fd.add_output(mean)
    fd.add_output(scale)


def torch_layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    return [F.layer_norm(x, x.shape[-1:], weight, bias), mean, torch.rsqrt(variance + 1e-5)]


def rms_norm(fd: FusionDefinition, x: Any, weight: Any) -> None:
    wide = up(fd, x)
    scale = fd.ops.rsqrt(fd.ops.mean(wide * wide, [-1], keepdim=True) + 1e-6)
    fd.add_output(fd.ops.cast(wide * scale * weight, x.dtype))


def torch_rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


def residual_layer_norm_gelu(fd: FusionDefinition, x: Any, residual: Any, weight: Any, bias: Any) -> None:
    h = _normalized(fd, x + residual) * weight + bias
    inner = math.sqrt(2 / math.pi) * (h + 0.044715 * h * h * h)
    fd.add_output(fd.ops.cast(0.5 * h * (1.0 + fd.ops.tanh(inner)), x.dtype))


def torch_residual_layer_norm_gelu(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    h = F.layer_norm(x + residual, x.shape[-1:], weight, bias)
    return F.gelu(h, approximate="tanh")


def layer_norm_backward(fd: FusionDefinition, dy: Any, x: Any, weight: Any) -> None:
    """The gradients of the input: two reductions of each row, both used with the row again."""
    g, wide = up(fd, dy) * weight, up(fd, x)
    variance, mean = fd.ops.var_mean(wide, [-1], 0, keepdim=True)
    scale = fd.ops.rsqrt(variance + 1e-5)
    xhat = (wide - mean) * scale
    a = fd.ops.mean(g, [-1], keepdim=True)
    b = fd.ops.mean(g * xhat, [-1], keepdim=True)
    fd.add_output(fd.ops.cast((g - a - xhat * b) * scale, dy.dtype))


def torch_layer_norm_backward(dy: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    F.layer_norm(leaf, x.shape[-1:], weight).backward(dy)
    assert leaf.grad is not None
    return leaf.grad


# ---- scans -------------------------------------------------------------------------------------------------


def scan_and_residual(fd: FusionDefinition, x: Any) -> None:
    """What is scanned is read again after it."""
    wide = up(fd, x)
    fd.add_output(fd.ops.cast(fd.ops.cumsum(wide * 2.0, -1) - wide, x.dtype))


def column_scans(fd: FusionDefinition, x: Any) -> None:
    """Two scans of one dimension, one of the other's results."""
    low = fd.ops.cummin(x, 0)
    fd.add_output(low)
    fd.add_output(fd.ops.cumsum(low + x, 0))


def sums_both_ways(fd: FusionDefinition, x: Any) -> None:
    """Of different work on one input, along rows, along columns, and along both."""
    x = up(fd, x)
    fd.add_output(fd.ops.sum(x, [-1]) * 2.0)
    fd.add_output(fd.ops.mean(x * x, [0]))
    fd.add_output(fd.ops.max(x, [0, 1]))


def activation_gradient(fd: FusionDefinition, dy: Any, x: Any, scale: Any, bias: Any) -> None:
    """The gradient of an activation, its sum for a bias, and how large it is for each token."""
    dx = up(fd, dy) * fd.ops.sigmoid(up(fd, x) * scale)
    fd.add_output(fd.ops.cast(dx, dy.dtype))
    fd.add_output(fd.ops.max(fd.ops.abs(dx), [2]))
    fd.add_output(bias - 0.1 * fd.ops.sum(dx, [0, 1]))


def moments_both_ways(fd: FusionDefinition, x: Any) -> None:
    for dim in (0, 1):
        for result in fd.ops.var_mean(x, [dim]):
            fd.add_output(result)


def rows_and_columns(fd: FusionDefinition, x: Any) -> None:
    """Normalized both ways, which no kernel of ours does at once."""
    e = fd.ops.exp(x)
    fd.add_output(e / fd.ops.sum(e, [1], keepdim=True) + e / fd.ops.sum(e, [0], keepdim=True))


def softmax_gradient(fd: FusionDefinition, dy: Any, y: Any) -> None:
    """The gradients of a softmax and of a bias that was added before it."""
    product = dy * y
    dx = product - y * fd.ops.sum(product, [1], keepdim=True)
    fd.add_output(dx)
    fd.add_output(fd.ops.sum(dx, [0]))


def _softmax_gradient(dy: Tensor, y: Tensor) -> list[Tensor]:
    dx = dy * y - y * (dy * y).sum(1, keepdim=True)
    return [dx, dx.sum(0)]


# ---- the cases ---------------------------------------------------------------------------------------------

BF16, HALF, DOUBLE = (torch.bfloat16,), (torch.float16,), (torch.float64,)
INNER, PERSISTENT, BUNDLE = ("reduction",), ("inner_persistent",), ("horizontal",)


def _gelu(x: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(x + bias, approximate="tanh")


def _ramp(x: Tensor) -> Tensor:
    return x + 0.5 + 2 * torch.arange(x.shape[1])


def _select(x: Tensor, y: Tensor) -> list[Tensor]:
    return [torch.where(x > y, x, y.clamp(-0.5, 0.5)), x > y]


def _integers(x: Tensor, y: Tensor) -> list[Tensor]:
    return [torch.fmod(x * 3 + y, 7), (x ^ y) << 1, x.double() / 4]


def _complex_product(x: Tensor, y: Tensor) -> list[Tensor]:
    return [x * y + 1.5, x.abs(), x.real - y.imag]


def _extremes(x: Tensor) -> list[Tensor]:
    return [x.sum(1), x.amax(1), x.amin(1), x.mean(1)]


def _sums_both_ways(x: Tensor) -> list[Tensor]:
    return [x.sum(-1) * 2, (x * x).mean(0), x.amax((0, 1))]


def _activation_gradient(dy: Tensor, x: Tensor, scale: Tensor, bias: Tensor) -> list[Tensor]:
    dx = dy * (x * scale).sigmoid()
    return [dx, dx.abs().amax(2), bias - 0.1 * dx.sum((0, 1))]


def torch_rows_and_columns(x: Tensor) -> Tensor:
    e = x.exp()
    return e / e.sum(1, keepdim=True) + e / e.sum(0, keepdim=True)


POINTWISE = [
    Case("bias_gelu", bias_gelu, ((37, 130), (130,)), _gelu),
    Case("bias_gelu_bf16", bias_gelu, ((64, 256), (256,)), _gelu, dtypes=BF16),
    Case("swiglu_half", swiglu, ((5, 1000), (5, 1000)), lambda g, x: F.silu(g) * x, dtypes=HALF),
    Case("swiglu_strided", swiglu, ((9, 33), (9, 33)), lambda g, x: F.silu(g) * x, contiguous=False),
    Case(
        "mixed_types", swiglu, ((8, 64), (8, 64)), lambda g, x: F.silu(g) * x, dtypes=(*HALF, torch.float32)
    ),
    Case("select", select, ((1023,), (1023,)), _select),
    Case("outer_sum", outer_sum, ((300, 1), (1, 500)), lambda a, b: a + b),
    Case("channel_scale", channel_scale, ((2, 5, 8, 16), (5,)), lambda x, s: x * s[:, None, None]),
    Case("batched_bias", batched_bias, ((3, 4, 7), (7,)), lambda x, b: F.relu(x + b)),
    Case(
        "transposed_sum",
        transposed_sum,
        ((60, 50), (50, 60)),
        lambda x, y: x.t() + y,
        schedulers=("transpose",),
    ),
    Case("expanded", expanded, ((64,), (33, 64)), lambda x, y: [x.expand(33, 64).exp(), x - y], BUNDLE),
    Case("ramp", ramp, ((6, 40),), _ramp),
    Case("integers", integers, ((100,), (100,)), _integers, dtypes=(torch.int64,)),
    Case("integers_32", integers, ((100,), (100,)), _integers, dtypes=(torch.int32,)),
    Case("logic", logic, ((77,), (77,)), lambda x, y: (x & ~y) | (x ^ y), dtypes=(torch.bool,)),
    Case("complex64", complex_product, ((70,), (70,)), _complex_product, dtypes=(torch.complex64,)),
    Case("complex128", complex_product, ((70,), (70,)), _complex_product, dtypes=(torch.complex128,)),
]
REDUCTIONS = [
    Case("inner", reduction(1), ((37, 1000),), lambda x: x.sum(1) / 2, INNER, 1000),
    Case("inner_bf16", reduction(1), ((37, 1024),), lambda x: x.sum(1) / 2, INNER, 1024, BF16),
    Case("inner_short", reduction(1), ((3000, 7),), lambda x: x.sum(1) / 2, INNER, 7),
    Case("inner_several_blocks", reduction(1), ((2, 200001),), lambda x: x.sum(1) / 2, INNER, 200001),
    Case("outer", reduction(0), ((1000, 96),), lambda x: x.sum(0) / 2, INNER, 1000),
    Case("outer_several_blocks", reduction(0), ((20000, 8),), lambda x: x.sum(0) / 2, INNER, 20000),
    Case("outer_narrow", reduction(0), ((3001, 3),), lambda x: x.sum(0) / 2, INNER, 3001),
    Case("middle", reduction(1), ((6, 50, 40),), lambda x: x.sum(1) / 2, INNER, 50),
    Case("first_and_last", reduction(0, 2), ((6, 5, 40),), lambda x: x.sum((0, 2)) / 2, INNER, 240),
    Case("all", reduction(0, 1), ((300, 700),), lambda x: x.sum() / 2, INNER, 210000),
    Case("all_of_one", reduction(0), ((300001,),), lambda x: x.sum() / 2, INNER, 300001),
    Case("kept", reduction(1, keepdim=True), ((9, 65),), lambda x: x.sum(1, keepdim=True) / 2, INNER, 65),
    Case("strided", reduction(1), ((9, 65),), lambda x: x.sum(1) / 2, INNER, 65, contiguous=False),
    Case("row_bias", row_bias, ((100, 30), (100,)), lambda x, b: x.sum(1) + b, INNER, 30),
    Case("double", reduction(1), ((4, 333),), lambda x: x.sum(1) / 2, INNER, 333, DOUBLE),
    Case("several_of_one_input", all_reductions, ((33, 500),), _extremes, INNER, 500),
    Case(
        "column_sums_and_scale",
        column_sums_and_scale,
        ((500, 64),),
        lambda x: [2 * x, x.sum(0)],
        INNER,
        500,
        BF16,
    ),
    Case("moments_inner", moments(1), ((33, 501),), lambda x: torch.var_mean(x, 1), INNER, 501),
    Case("moments_outer", moments(0), ((501, 33),), lambda x: torch.var_mean(x, 0), INNER, 501),
    Case(
        "moments_of_channels",
        moments(0, 2, 3),
        ((6, 5, 8, 8),),
        lambda x: torch.var_mean(x, (0, 2, 3)),
        INNER,
        384,
    ),
    Case(
        "moments_several_blocks",
        moments(0, 1),
        ((300, 400),),
        lambda x: torch.var_mean(x, (0, 1)),
        INNER,
        120000,
    ),
    Case("complex", complex_sum, ((5, 300),), lambda x: x.sum(1), INNER, 300, (torch.complex64,)),
    Case(
        "integer", discrete_reductions, ((5, 300),), lambda x: [x.sum(1), x.amax(1)], INNER, 1, (torch.int32,)
    ),
    Case("bool", discrete_reductions, ((5, 300),), lambda x: [x.sum(1), x.amax(1)], INNER, 1, (torch.bool,)),
]
NORMALIZATIONS = [
    *(
        Case(
            f"softmax_{rows}x{length}",
            softmax,
            ((rows, length),),
            lambda x: x.softmax(-1),
            PERSISTENT,
            length,
        )
        for rows, length in ((70, 33), (5, 1000), (40, 1024), (3, 4097))
    ),
    Case(
        "softmax_of_columns",
        softmax_of_columns,
        ((3, 37, 24),),
        lambda x: x.softmax(1),
        ("outer_persistent",),
        37,
        BF16,
    ),
    Case("softmax_of_one", softmax, ((3, 1),), lambda x: x.softmax(-1)),
    Case("softmax_bf16", softmax, ((20, 768),), lambda x: x.softmax(-1), PERSISTENT, 768, BF16),
    Case("softmax_cube", softmax, ((3, 7, 50),), lambda x: x.softmax(-1), PERSISTENT, 50, HALF),
    Case("softmax_in_shared_memory", softmax, ((2, 40000),), lambda x: x.softmax(-1), PERSISTENT, 40000),
    Case(
        "softmax_of_few_long_rows",
        softmax,
        ((2, 100003),),
        lambda x: x.softmax(-1),
        ("reduction", "reduction", "pointwise"),
        100003,
    ),
    Case("layer_norm", layer_norm, ((33, 768), (768,), (768,)), torch_layer_norm, PERSISTENT, 768),
    Case(
        "layer_norm_bf16", layer_norm, ((8, 1025), (1025,), (1025,)), torch_layer_norm, PERSISTENT, 1025, BF16
    ),
    Case(
        "layer_norm_of_few_long_rows",
        layer_norm,
        ((2, 66000), (66000,), (66000,)),
        torch_layer_norm,
        PERSISTENT,
        66000,
    ),
    Case("rms_norm", rms_norm, ((9, 2048), (2048,)), torch_rms_norm, PERSISTENT, 2048, HALF),
    Case("rms_norm_odd", rms_norm, ((9, 333), (333,)), torch_rms_norm, PERSISTENT, 333),
    Case(
        "residual_layer_norm_gelu",
        residual_layer_norm_gelu,
        ((16, 768), (16, 768), (768,), (768,)),
        torch_residual_layer_norm_gelu,
        PERSISTENT,
        768,
        BF16,
    ),
    Case(
        "layer_norm_backward",
        layer_norm_backward,
        ((10, 512), (10, 512), (512,)),
        torch_layer_norm_backward,
        PERSISTENT,
        512,
    ),
]


def _column_scans(x: Tensor) -> list[Tensor]:
    low = x.cummin(0).values
    return [low, (low + x).cumsum(0)]


SCAN = ("scan",)
SCANS = [
    Case("scan_rows", scan_and_residual, ((37, 2104),), lambda x: (2 * x).cumsum(1) - x, SCAN, 2104, BF16),
    Case("scan_short_rows", scan_and_residual, ((90, 13),), lambda x: (2 * x).cumsum(1) - x, SCAN, 13),
    Case("scan_few_rows", scan_and_residual, ((3, 9001),), lambda x: (2 * x).cumsum(1) - x, SCAN, 9001),
    Case("scan_columns", column_scans, ((701, 34),), _column_scans, SCAN, 701),
    Case("scan_many_columns", column_scans, ((9, 50, 700),), _column_scans, SCAN, 9),
]
BOTH = ("inner_outer",)
HELD = ("inner_outer_persistent",)
BOTH_WAYS = [
    Case("both_ways", sums_both_ways, ((301, 67),), _sums_both_ways, BOTH, 301),
    Case("both_ways_several_warps_a_row", sums_both_ways, ((70, 6008),), _sums_both_ways, BOTH, 6008, BF16),
    Case("both_ways_few_columns", sums_both_ways, ((3001, 3),), _sums_both_ways, BOTH, 3001),
    Case("both_ways_strided", sums_both_ways, ((50, 70),), _sums_both_ways, BOTH, 70, contiguous=False),
    Case(
        "activation_gradient",
        activation_gradient,
        ((3, 50, 88), (3, 50, 88), (88,), (88,)),
        _activation_gradient,
        BOTH,
        150,
        (torch.bfloat16, torch.bfloat16, torch.float32, torch.float32),
    ),
    Case(
        "moments_both_ways",
        moments_both_ways,
        ((65, 130),),
        lambda x: [*torch.var_mean(x, 0), *torch.var_mean(x, 1)],
        BOTH,
        130,
    ),
    Case("softmax_gradient", softmax_gradient, ((801, 1000),) * 2, _softmax_gradient, HELD, 1000),
    Case(
        "softmax_gradient_of_odd_rows",
        softmax_gradient,
        ((130, 261),) * 2,
        _softmax_gradient,
        HELD,
        261,
        HALF,
    ),
]
CASES = [*POINTWISE, *REDUCTIONS, *NORMALIZATIONS, *SCANS, *BOTH_WAYS]
