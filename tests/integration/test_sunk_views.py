"""Reshapes and slices of what follows from a reduction, or is stored as it is, too: stores by index."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from fusewright import DataType, FusionDefinition, Registry, SchedulerType, default_registry


def group_norm(ops, x, w, b):
    rows = ops.reshape(x, [2, 3, -1])
    var, mean = ops.var_mean(rows, [2], 0, True)
    y = ops.reshape((rows - mean) * ops.rsqrt(var + 1e-5), [2, 6, 5, 8])
    channels = [True, False, True, True]
    return [y * ops.broadcast(w, channels) + ops.broadcast(b, channels)]


def group_norm_by_channels(ops, x, w, b):
    """A factor and a term of each channel, as torch decomposes it: x keeps its shape beside statistics."""
    var, mean = ops.var_mean(ops.reshape(x, [2, 3, 2, 40]), [2, 3], 0, True)
    factor = ops.rsqrt(var + 1e-5) * ops.reshape(w, [1, 3, 2, 1])
    term = ops.reshape(b, [1, 3, 2, 1]) - mean * factor
    factor, term = (ops.broadcast(ops.reshape(t, [2, 6]), [False, False, True, True]) for t in (factor, term))
    return [ops.relu(x * factor + term)]


def instance_norm(ops, x, w, b):
    """As a batch norm of one image, which has a dimension of one point more."""
    image = ops.reshape(x, [1, 12, 5, 8])
    var, mean = ops.var_mean(image, [0, 2, 3], 0, True)
    return [ops.reshape((image - mean) * ops.rsqrt(var + 1e-5), [2, 6, 5, 8])]


def softmax_of_merged_rows(ops, x, w, b):
    rows = ops.reshape(x, [60, 8])
    e = ops.exp(rows - ops.max(rows, [1], keepdim=True))
    return [ops.reshape(e / ops.sum(e, [1], keepdim=True), [2, 6, 5, 8])]


def reshaped_total(ops, x, w, b):
    return [ops.reshape(ops.sum(x, [3]), [12, 5]) * 2.0]


def part_of_a_total(ops, x, w, b):
    return [ops.slice(ops.sum(x, [3]), [0, 1, 2], [2, 5, 4]) * 2.0]


def all_forms_of_one(ops, x, w, b):
    y = ops.exp(x)
    part = ops.slice(y, [0, 1, 0, 2], [2, 3, 5, 6])
    return [y, ops.reshape(y, [12, 40]), part * 2.0, ops.flip(y, [3])]


def loss_of_a_class(ops, x, w, b):
    rows = ops.reshape(x, [60, 8])
    total = ops.log(ops.sum(ops.exp(rows), [1], keepdim=True))
    which = ops.full([60, 1], 5, DataType.Int)
    return [ops.take_along_axis(rows - total, which, 1)]


CASES = {
    group_norm: lambda x, w, b: [F.group_norm(x, 3, w, b)],
    instance_norm: lambda x, w, b: [F.instance_norm(x)],
    softmax_of_merged_rows: lambda x, w, b: [x.softmax(-1)],
    reshaped_total: lambda x, w, b: [x.sum(3).reshape(12, 5) * 2.0],
    loss_of_a_class: lambda x, w, b: [x.reshape(60, 8).log_softmax(1)[:, 5:6]],
    part_of_a_total: lambda x, w, b: [x.sum(3)[:, 1:5, 2:4] * 2.0],
    all_forms_of_one: lambda x, w, b: [
        x.exp(),
        x.exp().reshape(12, 40),
        x.exp()[:, 1:3, :, 2:6] * 2.0,
        x.exp().flip(3),
    ],
}


@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("body", CASES, ids=lambda f: f.__name__)
def test_one_kernel_stores_every_shape(target, body, static: bool):
    inputs = [torch.randn(shape, device=target) for shape in [(2, 6, 5, 8), (6,), (6,)]]
    with FusionDefinition() as fd:
        for out in body(fd.ops, *(fd.from_pytorch(t, static_sizes=static) for t in inputs)):
            fd.add_output(out)
    outputs = fd.execute(inputs, profile=True)
    for out, expected in zip(outputs, CASES[body](*inputs), strict=True):
        torch.testing.assert_close(out, expected)
    assert fd.profile().segments == 1
    if body is instance_norm and static:
        assert "fw::store<4>" in fd.last_cuda_code()


@pytest.mark.parametrize("before", [False, True], ids=["of an input", "of what is computed"])
def test_statistics_of_groups_are_used_by_channels_in_one_kernel(target, before: bool):
    x, w, b = (torch.randn(shape, device=target) for shape in [(2, 6, 5, 8), (6,), (6,)])
    with FusionDefinition() as fd:
        given, *factors = (fd.from_pytorch(t, static_sizes=True) for t in (x, w, b))
        [out] = group_norm_by_channels(fd.ops, fd.ops.exp(given) if before else given, *factors)
        fd.add_output(out)
    [found] = fd.execute([x, w, b])
    torch.testing.assert_close(found, F.group_norm(x.exp() if before else x, 3, w, b).relu())
    assert len(fd.kernels_for([x, w, b])) == 1


def test_a_reshaped_input_is_read_again_rather_than_stored(target):
    """By the kernel after an outer sum, in a shape of its own, where no kernel holds the columns."""
    x = torch.randn(6, 5, 8, device=target, dtype=torch.bfloat16)
    others = [each for each in default_registry() if each.type is not SchedulerType.outer_persistent]
    with FusionDefinition(registry=Registry(others)) as fd:
        rows = fd.ops.cast(fd.ops.reshape(fd.from_pytorch(x), [24, -1]), DataType.Float)
        less = fd.ops.reshape(rows - fd.ops.sum(rows, [0]), [6, 40])
        fd.add_output(fd.ops.cast(less, DataType.BFloat16))
    (out,) = fd.execute([x], profile=True)
    wide = x.double().reshape(24, 10)
    torch.testing.assert_close(out.double(), (wide - wide.sum(0)).reshape(6, 40), rtol=1e-2, atol=1e-3)
    total, less = fd.profile().kernel_profiles
    assert total.output_bytes == 10 * 4
    assert less.input_bytes == x.numel() * 2 + 10 * 4
