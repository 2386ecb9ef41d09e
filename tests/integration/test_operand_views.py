"""Operands of library calls that are views of what is in memory: no kernel copies them."""

import pytest
import torch

from fusewright import FusionDefinition


def run(fd, *inputs):
    made = fd.validate(list(inputs))
    return made, fd._finished().executor.last_program.kernels


@pytest.mark.parametrize("size", [32, -1])
def test_a_permuted_weight_is_read_as_it_lies(target, size):
    with FusionDefinition() as fd:
        x, w = fd.define_tensor([size, 16], True), fd.define_tensor([24, 16], True)
        fd.add_output(fd.ops.matmul(x, fd.ops.permute(w, [1, 0])))
    _, kernels = run(fd, torch.randn(32, 16, device=target), torch.randn(24, 16, device=target))
    assert not kernels


@pytest.mark.parametrize("rows", [16, -1])
def test_parts_of_a_product_are_read_in_it(target, rows):
    """Slices, reshapes and squeezes of a call's result, whose strides follow at any sizes."""
    with FusionDefinition() as fd:
        x, w = fd.define_tensor([rows, 32], True), fd.define_tensor([32, 32], True)
        packed = fd.ops.permute(fd.ops.reshape(fd.ops.matmul(x, w), [rows, 2, 16]), [1, 0, 2])
        parts = [fd.ops.select(packed, i, 0) for i in range(2)]
        fd.add_output(fd.ops.matmul(parts[0], fd.ops.permute(parts[1], [1, 0])))
    for count in (16,) if rows == 16 else (16, 5, 1, 0):
        _, kernels = run(fd, torch.randn(count, 32, device=target), torch.randn(32, 32, device=target))
        assert not kernels


def half(o, p):
    return o.select(o.reshape(p, [-1, 2, 16]), 1, 1)


@pytest.mark.parametrize(
    ("merged", "copied"),
    [
        (lambda o, p: o.reshape(o.permute(o.reshape(p, [-1, 4, 8]), [1, 0, 2]), [4, -1]), True),
        (lambda o, p: o.reshape(half(o, p), [-1]), True),
        (lambda o, p: o.reshape(o.reshape(p, [-1, 4, 8]), [-1, 32]), False),
        (lambda o, p: o.permute(o.reshape(half(o, p), [-1, 2, 8]), [1, 0, 2]), False),
    ],
    ids=["permuted", "sliced", "in order", "divided"],
)
def test_dimensions_merge_only_in_the_order_of_memory(target, merged, copied):
    with FusionDefinition() as fd:
        x, w = fd.define_tensor([-1, 32], True), fd.define_tensor([32, 32], True)
        shown = merged(fd.ops, fd.ops.matmul(x, w))
        other = fd.define_tensor([-1] * (2 if shown.ndim != 3 else 3), True)
        fd.add_output(fd.ops.matmul(shown, other))
    inputs = [torch.randn(4, 32, device=target), torch.randn(32, 32, device=target)]
    inner = {1: 64, 2: 32, 3: 8}[shown.ndim]
    inputs.append(torch.randn(*([2] if shown.ndim == 3 else []), inner, 5, device=target))
    _, kernels = run(fd, *inputs)
    assert bool(kernels) is copied


def test_what_is_computed_is_seen_through_its_views():
    with FusionDefinition() as fd:
        x, w = fd.define_tensor([4, 4, 8], True), fd.define_tensor([8, 8], True)
        rows = fd.ops.reshape(fd.ops.exp(x), [16, 8])
        fd.add_output(fd.ops.matmul(rows, w))
        fd.add_output(rows)
    _, kernels = run(fd, torch.randn(4, 4, 8), torch.randn(8, 8))
    assert len(kernels) == 1


@pytest.mark.parametrize("order", ["dense", "strided"])
def test_strides_of_an_input_count(order):
    """A merged dimension of a tensor that may have any strides has none: a kernel copies it."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([4, 4, 8], order == "dense")
        w = fd.define_tensor([8, 8], True)
        fd.add_output(fd.ops.matmul(fd.ops.reshape(x, [16, 8]), w))
    given = torch.randn(4, 6, 8)[:, :4] if order == "strided" else torch.randn(4, 4, 8)
    _, kernels = run(fd, given, torch.randn(8, 8))
    assert len(kernels) == (order == "strided")


def test_an_input_that_is_written_in_place_is_read_before():
    with FusionDefinition() as fd:
        x = fd.define_tensor([8, 8], True)
        y = fd.ops.matmul(fd.ops.permute(x, [1, 0]), x)
        fd.add_output(x * 2.0, alias_input=x)
        fd.add_output(y)
    given = torch.randn(8, 8)
    kept = given.clone()
    (made,) = fd.execute([given])
    torch.testing.assert_close(made, kept.T @ kept)
    torch.testing.assert_close(given, 2 * kept)


@pytest.mark.parametrize(
    "shape, look, kernels",
    [
        ([4, 8], lambda ops, x: ops.flip(x, 1), 1),  # torch has no negative strides
        ([4, 8], lambda ops, x: ops.broadcast_in_dim(x, [2, 4, 8], [1, 2]), 0),
        ([0, 8], lambda ops, x: ops.reshape(x, [2, 0, 8]), 0),  # of no elements
        ([8, 0], lambda ops, x: ops.permute(x, [1, 0]), 0),
        # torch would copy dimensions that it cannot merge into one batch, as a kernel does
        ([2, 3, 4, 8], lambda ops, x: ops.permute(x, [1, 0, 2, 3]), 1),
    ],
)
def test_only_what_strides_lead_to_is_a_view(shape, look, kernels):
    with FusionDefinition() as fd:
        x, y = fd.define_tensor(shape, True), fd.define_tensor([8, 4], True)
        fd.add_output(fd.ops.matmul(look(fd.ops, x), y))
    _, made = run(fd, torch.randn(shape), torch.randn(8, 4))
    assert len(made) == kernels
