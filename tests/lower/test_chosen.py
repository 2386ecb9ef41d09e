"""What an index chooses for a whole row is loaded once, ahead of the loops over the row."""

from __future__ import annotations

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.kernel import ir as k


def ranks(rows: int, length: int) -> FusionDefinition:
    """How many scores of a row are greater than the target's, and the target's."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[rows, length], contiguity=[True, True], dtype=DataType.Float)
        bias = fd.define_tensor(shape=[length], contiguity=[True], dtype=DataType.Float)
        target = fd.define_tensor(shape=[rows], contiguity=[True], dtype=DataType.Int)
        scores = x - bias
        chosen = fd.ops.gather(scores, fd.ops.broadcast(target, [False, True]), dim=1)
        fd.add_output(fd.ops.sum(fd.ops.cast(fd.ops.gt(scores, chosen), DataType.Int), [1]))
        fd.add_output(chosen)
    return fd


@pytest.mark.parametrize("length", [33, 1000, 2051])
def test_a_row_is_compared_with_one_of_its_elements(target: torch.device, length: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-50, 50, (7, length), generator=generator).float().to(target)
    bias = torch.randint(-50, 50, (length,), generator=generator).float().to(target)
    chosen = torch.randint(0, length, (7,), generator=generator).to(target)
    inputs = [x, bias, chosen]
    fd = ranks(7, length)
    count, of_target = fd.execute(inputs)
    scores = x - bias
    assert torch.equal(of_target, scores.gather(1, chosen[:, None]))
    assert torch.equal(count, (scores > of_target).sum(1))
    for described in fd.kernels_for(inputs):
        assert described.kernel is not None
        loops = [stmt for stmt in k.walk(described.kernel.kernel.body) if isinstance(stmt, k.For)]
        assert not any(isinstance(stmt, k.LetValue) for loop in loops for stmt in k.walk(loop.body))
