"""The problems that searches are judged by: sizes that no heuristic was made with, of 8 to 190 MB each.

Seeds and rules may be made with what was measured of the listed ones. Those that are drawn are held out:
nothing is made with them before they are measured.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import exp, log, prod
from pathlib import Path

import torch

from bench.operation import EPSILON, Handle, Inputs, Operation, Shape, Tensors, as_float, rounded
from bench.operations import selected
from fusewright import FusionDefinition
from fusewright.frontend.tuned.problems import problems_of
from fusewright.tune.problem import Problem

FLOAT, BFLOAT16 = torch.float32, torch.bfloat16
# Of a problem that is a part of a definition: less is not what takes the time.
LEAST_BYTES = 4_000_000


def _softmax_columns(fd: FusionDefinition, x: Handle) -> list[Handle]:
    x = as_float(fd, x)
    e = fd.ops.exp(x - fd.ops.max(x, dims=[0], keepdim=True))
    return rounded(fd, e / fd.ops.sum(e, dims=[0], keepdim=True))


def _norm_columns(fd: FusionDefinition, x: Handle) -> list[Handle]:
    x = as_float(fd, x)
    variance, mean = fd.ops.var_mean(x, dims=[0], correction=0, keepdim=True)
    return rounded(fd, (x - mean) * fd.ops.rsqrt(variance + EPSILON))


def _sum_middle(fd: FusionDefinition, x: Handle) -> list[Handle]:
    return rounded(fd, fd.ops.sum(as_float(fd, x), dims=[1]))


def _relu_transposed(fd: FusionDefinition, x: Handle) -> list[Handle]:
    return [fd.ops.relu(fd.ops.permute(x, [1, 0]))]


def _permuted(order: Sequence[int]) -> Callable[[FusionDefinition, Handle], list[Handle]]:
    return lambda fd, x: [fd.ops.set(fd.ops.permute(x, dims=list(order)))]


def _add_relu(fd: FusionDefinition, x: Handle, y: Handle) -> list[Handle]:
    return rounded(fd, fd.ops.relu(x + y))


def _add(fd: FusionDefinition, x: Handle, y: Handle) -> list[Handle]:
    return rounded(fd, x + y)


def _rows_columns(fd: FusionDefinition, x: Handle, y: Handle, z: Handle) -> list[Handle]:
    return rounded(fd, x * y + z)


def _cube(fd: FusionDefinition, x: Handle) -> list[Handle]:
    return rounded(fd, x * x * x + 1.0)


def _own(
    name: str, define: Callable[..., list[Handle]], inputs: Callable[[Shape, Inputs], Tensors]
) -> Operation:
    return Operation(name, define, lambda *tensors: tensors, inputs, ())


def _one(shape: Shape, make: Inputs) -> Tensors:
    return (make(*shape),)


#: Beside those of the benchmark of operations.
OWN = (
    _own("softmax_columns", _softmax_columns, _one),
    _own("norm_columns", _norm_columns, _one),
    _own("sum_middle", _sum_middle, _one),
    _own("relu_transposed", _relu_transposed, _one),
    _own("permute_021", _permuted((0, 2, 1)), _one),
    _own("permute_210", _permuted((2, 1, 0)), _one),
    _own("add_relu", _add_relu, lambda s, r: (r(*s), r(*s))),
    _own("rows_columns", _rows_columns, lambda s, r: (r(*s), r(s[0], 1), r(1, s[1]))),
    _own("middle_broadcast", _add, lambda s, r: (r(*s), r(s[0], 1, s[2]))),
    _own("cube", _cube, _one),
)

#: By the name of an operation, sizes; and those of float inputs.
SIZES: tuple[tuple[str, tuple[Shape, ...], tuple[Shape, ...]], ...] = (
    (
        "softmax",
        (
            (8192, 1280),
            (3000, 5120),
            (40000, 384),
            (2000, 12288),
            (700, 40000),
            (100000, 200),
            (5000, 3333),
            (300, 3072),
        ),
        ((4000, 2560), (1500, 12000)),
    ),
    ("log_softmax", ((1000, 32000),), ()),
    ("masked_softmax", ((4000, 3072),), ()),
    ("softmax_bwd", ((6000, 2304), (1500, 10240)), ()),
    ("rmsnorm", ((6144, 3072), (1500, 14336), (25000, 640)), ((3000, 5120),)),
    ("layernorm", ((10000, 768), (4096, 6144), (1200, 20480), (20000, 1600)), ()),
    ("add_rmsnorm", ((3000, 5120), (12000, 1536)), ()),
    ("dropout_add_ln", ((5000, 2560),), ()),
    ("layernorm_bwd", ((6000, 2304), (12000, 768), (1500, 8192)), ()),
    ("rmsnorm_bwd", ((5000, 3072), (2500, 6144)), ()),
    ("gelu_bwd_bias", ((6000, 5120), (20000, 1152)), ()),
    ("row_col_sums", ((6000, 3072), (2000, 12000)), ()),
    ("sum_inner", ((12000, 2560), (500, 50000), (60000, 320), (6000, 6000), (100, 300000)), ((3000, 7168),)),
    ("sum_outer", ((20000, 1536), (60000, 192), (3000, 12288), (200000, 96), (700, 60000)), ((10000, 2000),)),
    ("sum_middle", ((64, 500, 1200), (16, 3000, 640), (300, 100, 1024)), ()),
    ("sum_all", ((9000, 3000),), ()),
    ("softmax_columns", ((1200, 10000), (300, 50000)), ()),
    ("norm_columns", ((600, 24000),), ()),
    ("relu_transposed", ((5000, 6144), (20000, 1024), (3000, 3000)), ((4000, 5120),)),
    ("transpose_add", ((5000, 3072),), ()),
    ("permute_021", ((64, 800, 512), (2000, 96, 96)), ()),
    ("permute_210", ((96, 100, 2048),), ()),
    ("permute_102", ((300, 700, 128), (1000, 48, 512)), ()),
    ("add_relu", ((3000, 7168), (2500, 2500)), ((4000, 3000),)),
    ("add_mul", ((4000, 4000),), ()),
    ("gelu_bias", ((6000, 5120), (30000, 1152)), ()),
    ("silu_mul", ((5000, 3584),), ()),
    ("bcast_inner", ((7000, 6000),), ()),
    ("scale_bias_relu", ((11000, 3072),), ()),
    ("rows_columns", ((9000, 4608), (60000, 520)), ()),
    ("middle_broadcast", ((64, 200, 2304), (900, 17, 2048)), ()),
    ("cube", ((5001, 3333),), ((6000, 2800),)),
)


#: Of problems that are drawn: by the name of an operation, the limits of all dimensions but the first.
RANGES: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = (
    ("softmax", ((192, 32768),)),
    ("log_softmax", ((1000, 50000),)),
    ("masked_softmax", ((128, 8192),)),
    ("softmax_bwd", ((256, 16384),)),
    ("rmsnorm", ((256, 16384),)),
    ("layernorm", ((256, 24576),)),
    ("add_rmsnorm", ((512, 12288),)),
    ("dropout_add_ln", ((512, 8192),)),
    ("layernorm_bwd", ((384, 10240),)),
    ("rmsnorm_bwd", ((512, 8192),)),
    ("gelu_bwd_bias", ((512, 8192),)),
    ("row_col_sums", ((512, 12288),)),
    ("sum_inner", ((128, 300_000),)),
    ("sum_outer", ((64, 60_000),)),
    ("sum_middle", ((50, 3000), (64, 4096))),
    ("sum_all", ((1000, 10_000),)),
    ("softmax_columns", ((4000, 60_000),)),
    ("norm_columns", ((4000, 60_000),)),
    ("relu_transposed", ((512, 12288),)),
    ("transpose_add", ((512, 12288),)),
    ("permute_021", ((64, 2048), (64, 2048))),
    ("permute_210", ((64, 512), (256, 4096))),
    ("permute_102", ((32, 1024), (32, 1024))),
    ("add_relu", ((512, 12288),)),
    ("add_mul", ((512, 12288),)),
    ("gelu_bias", ((512, 12288),)),
    ("silu_mul", ((512, 12288),)),
    ("bcast_inner", ((512, 12288),)),
    ("scale_bias_relu", ((512, 12288),)),
    ("rows_columns", ((512, 8192),)),
    ("middle_broadcast", ((8, 512), (256, 4096))),
    ("cube", ((512, 12288),)),
)
# Of the largest tensor of a problem that is drawn, bytes at least and at most.
LEAST_DRAWN, MOST_DRAWN = 8_000_000, 64_000_000
# Of its last dimension, a number that divides it, and of its elements, the type: one of these.
DIVISORS, DTYPES = (64, 64, 8, 1), (BFLOAT16, BFLOAT16, BFLOAT16, FLOAT)
DRAWN_EACH, SEED = 2, 20261122
# Of problems that are near each other: operations, sizes of each, and how many times as large the rows, or
# the last dimension, of one may be as those of another. One in so many has another divisor than the first.
NEAR_OPERATIONS, NEAR_SIZES, APART, OTHER_DIVISOR = 13, 5, 1.5, 4

Case = tuple[str, Shape, torch.dtype]


def listed() -> Iterator[Case]:
    """Operations with the shapes and types above."""
    for name, usual, of_float in SIZES:
        yield from ((name, shape, BFLOAT16) for shape in usual)
        yield from ((name, shape, FLOAT) for shape in of_float)


def drawn(seed: int = SEED) -> Iterator[Case]:
    """Operations with shapes and types by chance, the same each time for a seed."""
    source = random.Random(seed)
    for name, ranges in RANGES:
        for _ in range(DRAWN_EACH):
            dtype = source.choice(DTYPES)
            elements = _between(source, LEAST_DRAWN, MOST_DRAWN) / dtype.itemsize
            *middle, last = [round(_between(source, *limits)) for limits in ranges]
            sizes = (*middle, _multiple(last, source.choice(DIVISORS)))
            yield name, (max(2, round(elements / prod(sizes))), *sizes), dtype


def drawn_near(seed: int = SEED) -> Iterator[Case]:
    """Of some operations by chance, several sizes as a workload has them: the largest dimension but the last
    one varies, and of half of the operations the last one, too.

    Of each operation every other one, from the first, is to be tuned; the others are held out.
    """
    source = random.Random(seed)
    for name, ranges in sorted(source.sample(RANGES, NEAR_OPERATIONS)):
        dtype, varies = source.choice(DTYPES), source.choice((0.0, 1.0))
        elements = _between(source, LEAST_DRAWN, MOST_DRAWN) / dtype.itemsize
        *middle, last = [round(_between(source, *limits)) for limits in ranges]
        sizes, usual = [elements / prod((*middle, last)), *middle, last], source.choice(DIVISORS)
        batch = sizes.index(max(sizes[:-1]))
        found: dict[Shape, None] = {}
        while len(found) < NEAR_SIZES:
            more, longer = (APART ** source.uniform(-0.5, 0.5) for _ in range(2))
            divisor = source.choice(DIVISORS) if varies and source.randrange(OTHER_DIVISOR) == 0 else usual
            own = [max(2, round(size * (more if i == batch else 1.0))) for i, size in enumerate(sizes)]
            shape = (*own[:-1], _multiple(last * longer**varies, divisor))
            found[shape] = None
        yield from ((name, shape, dtype) for shape in found)


def held_out(cases: Iterable[Case]) -> list[Case]:
    """Of each operation every other one, from the second."""
    by_name: dict[str, list[Case]] = {}
    for case in cases:
        by_name.setdefault(case[0], []).append(case)
    return [case for own in by_name.values() for case in own[1::2]]


def cases(seed: int | None, near: bool = False) -> Iterator[Case]:
    """Those that are listed, or with a seed those that are drawn."""
    return listed() if seed is None else drawn_near(seed) if near else drawn(seed)


def _multiple(size: float, divisor: int) -> int:
    return max(divisor, int(size) // divisor * divisor)


def _between(source: random.Random, low: float, high: float) -> float:
    """A number whose logarithm is equally likely to lie anywhere."""
    return exp(source.uniform(log(low), log(high)))


def title(name: str, shape: Shape, dtype: torch.dtype) -> str:
    return f"{name} {'x'.join(map(str, shape))}{' float' if dtype is FLOAT else ''}"


def problems(cases: Iterable[Case], folder: Path, device: torch.device) -> Iterator[Problem]:
    """Of each case those that take the time. Where there is no GPU they are small."""
    for case in cases:
        yield from problems_of_case(*case, folder, device)


def problems_of_case(
    name: str, shape: Shape, dtype: torch.dtype, folder: Path, device: torch.device
) -> list[Problem]:
    """The problems of one operation: of several kernels those that take the time."""
    operation, label = _operation(name), title(name, shape, dtype)
    if device.type != "cuda":
        shape = tuple(max(2, size // 64) for size in shape)
    inputs = operation.inputs(shape, Inputs(device, dtype=dtype))
    found = problems_of(operation.definition(inputs, dtype), inputs, device, label, folder)
    return [problem for problem in found if problem.bytes > LEAST_BYTES] or found[:1]


def _operation(name: str) -> Operation:
    own = [operation for operation in OWN if operation.name == name]
    return (own or [each for each in selected([name]) if each.name == name])[0]
