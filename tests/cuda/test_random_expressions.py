"""Random expressions of every type: the text computes what the simulator does, on the host and on a GPU.

The kernels are the same in every run, by their numbers.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from fusewright.core.dtype import DataType
from fusewright.core.options import Options
from fusewright.cuda.nvrtc import NvrtcOptions
from fusewright.cuda.printer import print_kernel
from fusewright.runtime.hardware import hardware_of
from fusewright.runtime.rtc_kernel import RtcKernel
from fusewright.sim import simulate
from tests.cuda.expression_kernels import THREADS, inputs, random_kernel
from tests.cuda.host import needs_compiler, run
from tests.readback.kernels import check_kernel

WHOLE = (DataType.Int, DataType.Int32, DataType.Bool)
ALL = (*WHOLE, DataType.Float, DataType.Double)
ELEMENTS = 4 * THREADS - 13


def _draw_and_check(seed: int, dtypes: tuple[DataType, ...], index_dtype: DataType, statements: int):
    """A kernel, its text, which is checked by reading it back, its inputs and the simulator's outputs."""
    kernel, ins, outs = random_kernel(random.Random(seed), dtypes, index_dtype, statements)
    source = print_kernel(kernel)
    check_kernel(kernel, source)
    given = inputs(ins, ELEMENTS, torch.Generator().manual_seed(seed))
    expected = [torch.empty(ELEMENTS, dtype=out.buffer.dtype.torch) for out in outs]
    simulate(kernel, [*given, *expected, ELEMENTS])
    return kernel, source, given, expected


def _same(found: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    return (found == expected) | ((found != found) & (expected != expected))


def _check(source, found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for number, (a, b) in enumerate(zip(found, expected)):
        wrong = (~_same(a, b)).nonzero().flatten()
        if len(wrong):
            first = int(wrong[0])
            lines = [line for line in source.kernel.splitlines() if f" v{number} " in line]
            pytest.fail(
                f"v{number} is {a[first]} instead of {b[first]} at {first} ({len(wrong)} are wrong):\n"
                + "\n".join([*lines, "", source.kernel])
            )


@pytest.mark.parametrize("index_dtype", [DataType.Int, DataType.Int32])
@pytest.mark.parametrize("seed", range(10))
def test_random_expressions_read_back(seed: int, index_dtype: DataType) -> None:
    _draw_and_check(seed, ALL, index_dtype, 40)


@needs_compiler
@pytest.mark.parametrize("seed", range(2))
def test_random_expressions_on_the_host(seed: int, tmp_path: Path) -> None:
    """Of integers and truth values: the text of floats is PTX in part."""
    kernel, source, given, expected = _draw_and_check(seed, WHOLE, DataType.Int32, 120)
    found = [torch.empty_like(each) for each in expected]
    run(kernel, [*given, *found, ELEMENTS], tmp_path)
    _check(source, found, expected)


# Without a GPU one stands for all that are skipped: each takes time to be collected, on every worker.
@pytest.mark.gpu
@pytest.mark.parametrize("index_dtype", [DataType.Int, DataType.Int32])
@pytest.mark.parametrize("seed", range(100 if torch.cuda.is_available() else 1))
def test_random_expressions_on_a_gpu(seed: int, index_dtype: DataType) -> None:
    _, source, given, expected = _draw_and_check(seed, ALL, index_dtype, 40)
    arch = hardware_of(torch.device("cuda"), Options.from_environment()).arch
    # Contracted, a product and a sum are rounded once.
    compiled = RtcKernel(source.text, source.name, options=NvrtcOptions(arch, fma=False))
    found = [torch.empty_like(each, device="cuda") for each in expected]
    size = ELEMENTS, torch.int32 if index_dtype is DataType.Int32 else torch.int64
    compiled.launch(-(-ELEMENTS // THREADS), THREADS, [*(x.cuda() for x in given), *found, size])
    _check(source, [each.cpu() for each in found], expected)
