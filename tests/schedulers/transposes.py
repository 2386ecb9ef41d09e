"""Fusions that turn dimensions, and what tests of their kernels ask of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fusewright import DataType, FusionDefinition, SchedulerType
from fusewright.host.executor import FusionExecutor
from fusewright.runtime.compiled_kernel import CompiledKernel
from tests.integration.cases import widened
from tests.integration.tolerance import assert_close

Define = Callable[..., None]
BF16, F32, F64 = torch.bfloat16, torch.float32, torch.float64


def define(body: Define, inputs: Sequence[torch.Tensor]) -> FusionDefinition:
    """A definition for inputs of these shapes and layouts."""
    with FusionDefinition() as fd:
        body(fd, *[fd.from_pytorch(x) for x in inputs])
    return fd


def random(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, dtype=F64, generator=generator).to(dtype)


def check(
    body: Define, reference: Callable[..., Any], inputs: Sequence[torch.Tensor], scheduler: str = "transpose"
) -> None:
    """One kernel of this scheduler gives what `reference` gives in float64."""
    fd = define(body, inputs)
    results = fd.execute(list(inputs))
    expected = reference(*[widened(x.cpu()) for x in inputs])
    for actual, wide in zip(results, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert_close(actual, wide)
    assert kernel_names(fd, inputs) == [scheduler]


def kernel_names(fd: FusionDefinition, inputs: Sequence[torch.Tensor]) -> list[str]:
    return re.findall(r"fusewright_([a-z_]+)_[0-9a-f]+\(", fd.cuda_code_for(list(inputs)))


def compiled(body: Define, inputs: Sequence[torch.Tensor]) -> tuple[Any, CompiledKernel]:
    """The segment and the kernel of a fusion that is one kernel, not run."""
    executor = FusionExecutor(define(body, inputs)._finished().fusion)
    (kernel,) = executor.compile(list(inputs)).kernels
    (segment,) = executor.segments().segments
    assert segment.scheduler.type is SchedulerType.transpose
    return segment, kernel


# ---- fusions


def turned_sum(fd: FusionDefinition, x: Any, y: Any) -> None:
    fd.add_output(fd.ops.cast(fd.ops.permute(x, [1, 0]) + y, y.dtype))


def permuted(*dims: int) -> tuple[Define, Callable[..., torch.Tensor]]:
    def body(fd: FusionDefinition, x: Any) -> None:
        fd.add_output(fd.ops.cast(fd.ops.permute(x, list(dims)) * 2.0, x.dtype))

    return body, lambda x: x.permute(dims) * 2


def with_its_transpose(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sin(fd.ops.exp(fd.ops.permute(x, [1, 0]))) + x)


def cast_both_ways(fd: FusionDefinition, x: Any) -> None:
    narrow = fd.ops.cast(x * 0.5, DataType.BFloat16)
    fd.add_output(narrow)
    fd.add_output(fd.ops.cast(-fd.ops.permute(narrow, [1, 0]), DataType.BFloat16))


def several_of_each(fd: FusionDefinition, x: Any, y: Any, z: Any, w: Any) -> None:
    """Two inputs and an output in either layout."""
    turned = fd.ops.permute(x, [1, 0])
    fd.add_output(turned + y)
    fd.add_output(fd.ops.permute(turned * z, [1, 0]) - w)
    fd.add_output(y * 3.0)


def separate(fd: FusionDefinition, x: Any) -> None:
    """Two results that meet in nothing but the input."""
    fd.add_output(fd.ops.exp(fd.ops.permute(x, [1, 0])))
    fd.add_output(fd.ops.sin(x))


def biased(fd: FusionDefinition, x: Any, bias: Any, row: Any) -> None:
    wide = fd.ops.permute(x, [0, 3, 1, 2])
    fd.add_output(wide + fd.ops.broadcast(bias, [True, False, True, True]) * row)


def masked(fd: FusionDefinition, x: Any, mask: Any) -> None:
    fd.add_output(fd.ops.where(mask, fd.ops.permute(x, [1, 0]), 0.0))


def three_layouts(fd: FusionDefinition, x: Any, y: Any, z: Any) -> None:
    fd.add_output(fd.ops.permute(x, [0, 2, 1]) + fd.ops.permute(y, [2, 1, 0]) + z)


def keys(batch: int, length: int, heads: int, size: int) -> tuple[Define, Callable[..., torch.Tensor]]:
    """The transposed keys of a product [batch * length, queries and keys and values of all heads]."""

    def body(fd: FusionDefinition, x: Any) -> None:
        split = fd.ops.reshape(x, [batch, length, 3, heads, size])
        fd.add_output(fd.ops.set(fd.ops.permute(fd.ops.select(split, index=1, dim=2), [0, 2, 3, 1])))

    return body, lambda x: x.reshape(batch, length, 3, heads, size)[:, :, 1].permute(0, 2, 3, 1)


def framed(fd: FusionDefinition, x: Any) -> None:
    """A part of the columns, in a frame, turned."""
    cut = fd.ops.slice(x, [0, 4], [x.size(0), x.size(1)], [1, 1])
    fd.add_output(fd.ops.permute(fd.ops.pad(cut, [4, 0, 0, 1]), [1, 0]) * 2.0)


def rows_by_index(fd: FusionDefinition, x: Any, rows: Any) -> None:
    fd.add_output(fd.ops.permute(fd.ops.embedding_fwd(rows, x), [1, 0]) * 2.0)
