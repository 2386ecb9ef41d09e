"""One element of each row of what follows from a reduction: only that element is computed."""

from __future__ import annotations

import pytest
import torch

from fusewright import FusionDefinition


def log_softmax(ops, x):
    less = x - ops.max(x, [-1], keepdim=True)
    return less - ops.log(ops.sum(ops.exp(less), [-1], keepdim=True))


def at_targets(ops, x, target):
    return [ops.neg(ops.take_along_axis(log_softmax(ops, x), target, -1))]


def at_one_place(ops, x, target):
    return [ops.select(log_softmax(ops, x), 2, 2) * 2.0]


def both(ops, x, target):
    y = log_softmax(ops, x)
    return [y, ops.take_along_axis(y, target, -1)]


def across_rows(ops, x, target):
    return [ops.select(log_softmax(ops, x), 2, 1)]


def rotated(ops, x, target):
    """As rotary embeddings turn normalized rows."""
    y = log_softmax(ops, x)
    first, second = ops.slice(y, [0, 0, 0], [3, 5, 16]), ops.slice(y, [0, 0, 16], [3, 5, 33])
    return [y + ops.cat([ops.neg(second), first], -1)]


def taken(y: torch.Tensor, index: torch.Tensor, dim: int) -> torch.Tensor:
    """0 where the index is out of range."""
    inside = (index >= 0) & (index < y.shape[dim])
    return torch.take_along_dim(y, index.where(inside, 0), dim).where(inside, 0)


CASES = {
    at_targets: (1, lambda y, t: [-taken(y, t, -1)]),
    at_one_place: (1, lambda y, t: [y[..., 2] * 2.0]),
    both: (1, lambda y, t: [y, taken(y, t, -1)]),
    rotated: (1, lambda y, t: [y + torch.cat([-y[..., 16:], y[..., :16]], -1)]),
    across_rows: (1, lambda y, t: [y[:, 2]]),
}


@pytest.mark.parametrize("body", CASES, ids=lambda f: f.__name__)
def test_only_what_is_read_is_computed(target: torch.device, body) -> None:
    kernels, expected = CASES[body]
    x = torch.randn(3, 5, 33, device=target)
    index = torch.randint(-2, 35, (3, 5, 1), device=target)
    with FusionDefinition() as fd:
        for out in body(fd.ops, fd.from_pytorch(x), fd.from_pytorch(index)):
            fd.add_output(out)
    outputs = fd.execute([x, index], profile=True)
    for out, right in zip(outputs, expected(x.log_softmax(-1), index), strict=True):
        torch.testing.assert_close(out, right)
    assert fd.profile().segments == kernels
