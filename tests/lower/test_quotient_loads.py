"""What each row has one of, beside vectors that go through several rows."""

from __future__ import annotations

import re

import pytest
import torch

from fusewright import DataType, FusionDefinition


def scaled(rows: int, columns: int, target: torch.device) -> tuple[FusionDefinition, list[torch.Tensor]]:
    """Rows of which each has a factor."""
    given = [torch.randn(rows, columns, device=target).bfloat16(), torch.randn(rows, 1, device=target)]
    with FusionDefinition() as fd:
        x, factor = (fd.from_pytorch(each, static_sizes=True) for each in given)
        fd.add_output(fd.ops.cast(fd.ops.cast(x, dtype=DataType.Float) * factor, dtype=DataType.BFloat16))
    return fd, given


@pytest.mark.parametrize(("rows", "columns"), [(512, 2049), (1600, 33), (6400, 9)])
def test_a_vector_loads_the_factors_of_two_rows(rows: int, columns: int, target: torch.device) -> None:
    fd, (x, factor) = scaled(rows, columns, target)
    [made] = fd.execute([x, factor])
    torch.testing.assert_close(made, (x.float() * factor).bfloat16(), rtol=0, atol=0)
    [kernel] = fd.kernels_for([x, factor])
    assert kernel.params.vectorization_factor == 8
    assert len(re.findall(r"_(?:first|last)\d+(?:\[\w+\])? = T\d", kernel.cuda_text)) == 2


@pytest.mark.parametrize(("rows", "columns"), [(6400, 5), (2048, 1024)], ids=["short rows", "whole vectors"])
def test_other_rows_load_each_factor(rows: int, columns: int, target: torch.device) -> None:
    fd, given = scaled(rows, columns, target)
    [kernel] = fd.kernels_for(given)
    assert "_first" not in kernel.cuda_text
