"""Outputs that are views of inputs lie in the inputs' memory, as torch's do, and no kernel runs for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import FusionDefinition

#: name -> (the operation on x of sizes (4, 1, 8, 6), torch's, whether it is a view of a contiguous x)
ROWS: dict[str, tuple[Callable[..., Any], Callable[[torch.Tensor], torch.Tensor], bool]] = {
    "permute": (lambda o, x: o.permute(x, [2, 0, 3, 1]), lambda x: x.permute(2, 0, 3, 1), True),
    "broadcast": (
        lambda o, x: o.broadcast(x, [True, False, False, True, False, False]),
        lambda x: x[None, :, :, None],
        True,
    ),
    "squeeze": (lambda o, x: o.squeeze(x, [1]), lambda x: x.squeeze(1), True),
    "expand": (lambda o, x: o.expand(x, [4, 5, -1, -1]), lambda x: x.expand(4, 5, 8, 6), True),
    "chain": (
        lambda o, x: o.expand(
            o.permute(o.slice(x, [0, 0, 2, 0], [4, 1, 6, 6]), [1, 0, 3, 2]), [7, -1, -1, -1]
        ),
        lambda x: x[:, :, 2:6].permute(1, 0, 3, 2).expand(7, 4, 6, 4),
        True,
    ),
    "merge": (lambda o, x: o.reshape(x, [4, -1]), lambda x: x.reshape(4, -1), True),
    "split": (lambda o, x: o.reshape(x, [2, 2, 8, 3, 2]), lambda x: x.reshape(2, 2, 8, 3, 2), True),
    "merge of permuted": (
        lambda o, x: o.reshape(o.permute(x, [2, 0, 3, 1]), [32, 6]),
        lambda x: x.permute(2, 0, 3, 1).reshape(32, 6),
        False,
    ),
    "slice": (
        lambda o, x: o.slice(x, [1, 0, 2, 1], [3, 1, 7, 5], [1, 1, 2, 3]),
        lambda x: x[1:3, :, 2:7:2, 1:5:3],
        True,
    ),
    "crop": (lambda o, x: o.pad(x, [-1, -1]), lambda x: x[..., 1:5], True),
    "pad": (lambda o, x: o.pad(x, [1, -1]), lambda x: torch.nn.functional.pad(x, [1, -1]), False),
    "select": (lambda o, x: o.select(x, 2, 0), lambda x: x[2], True),
    "flip": (lambda o, x: o.flip(x, [0]), lambda x: x.flip(0), False),
    "copy": (
        lambda o, x: o.set(o.permute(x, [2, 0, 3, 1])),
        lambda x: x.permute(2, 0, 3, 1).contiguous(),
        False,
    ),
}


def _shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


@pytest.mark.parametrize("name", ROWS)
def test_a_view_lies_where_torchs_does(name: str, target: torch.device) -> None:
    build, reference, is_view = ROWS[name]
    whole = torch.randn(5, 1, 8, 6, device=target)
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 1, -1, -1], contiguity=True)
        fd.add_output(build(fd.ops, x))
        fd.add_output(build(fd.ops, x) * 2.0)  # which a kernel computes
    for given in (whole[1:], whole[:4].requires_grad_()):
        view, doubled = fd.execute([given])
        expected = reference(given.detach())
        assert torch.equal(view, expected) and torch.equal(doubled, 2 * expected)
        assert not view.requires_grad
        assert _shares(view, given) == is_view
        if is_view:
            assert view.data_ptr() == expected.data_ptr()
            large = [i for i, size in enumerate(view.shape) if size > 1]
            assert [view.stride(i) for i in large] == [expected.stride(i) for i in large]
    assert len(fd._leaf.executor.last_program.kernels) in ((1,) if is_view else (1, 2))


def test_whether_a_reshape_is_a_view_depends_on_the_strides_of_a_call(target: torch.device) -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.reshape(fd.define_tensor([-1, -1]), [-1]))
    x = torch.randn(6, 8, device=target)
    for given, is_view in ((x, True), (x[:, :4], False), (x.t(), False), (x[::2, :1], True), (x[:0], False)):
        (out,) = fd.execute([given])
        assert torch.equal(out, given.reshape(-1))
        assert _shares(out, given) == (is_view and given.numel() > 0)


def test_what_is_overwritten_or_ordered_is_no_view(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1, -1], contiguity=True), fd.define_tensor([-1, -1], contiguity=True)
        fd.add_output(fd.ops.permute(x, [1, 0]))
        fd.add_output(x * 2.0, alias_input=x)
        fd.add_output(fd.ops.permute(y, [1, 0]), stride_order=[1, 0])
        fd.add_output(y)
        fd.add_output(y)
        fd.add_output(fd.ops.permute(y, [1, 0]))
    a, b = torch.randn(3, 4, device=target), torch.randn(3, 4, device=target)
    old = a.clone()
    turned, ordered, first, second, view = fd.execute([a, b])
    assert torch.equal(turned, old.t()) and torch.equal(a, 2 * old) and not _shares(turned, a)
    assert torch.equal(ordered, b.t()) and ordered.stride() == (3, 1) and not _shares(ordered, b)
    assert first is second is b
    assert view.data_ptr() == b.data_ptr() and view.stride() == (1, 4)


def test_an_operator_of_torch_returns_no_view(target: torch.device) -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.permute(fd.define_tensor([-1, -1]), [1, 0]))
    x = torch.randn(3, 4, device=target)
    (out,) = torch.compile(lambda t: fd.execute([t]), backend="aot_eager")(x)
    assert torch.equal(out, x.t()) and not _shares(out, x)
    assert _shares(fd.execute([x])[0], x)


def test_a_view_that_a_kernel_hands_on_lies_in_that_kernels_memory(target: torch.device) -> None:
    """Its strides in the input are not those of what the kernel writes."""
    with FusionDefinition() as fd:
        like = fd.define_tensor([-1, -1], True)
        x = fd.define_tensor([-1, 2], True)
        column = fd.ops.slice(x, [0, 0], [like.size(0), 1])
        whole, none = fd.ops.split(column, [1, 0], 1)
        same = fd.ops.cat([none, whole], 1)
        row = fd.ops.select(same, 0, 1)
        for out in (same, fd.ops.softmax(row, 0), fd.ops.cat([column, whole, same], -1), column):
            fd.add_output(out)
        fd.add_output(fd.ops.cat([row, row, row], -1))
    t = torch.randn(2, 2, device=target)
    same, normalized, wide, column, long = fd.execute([torch.empty_like(t), t])
    expected = t[:, :1]
    assert torch.equal(same, expected) and torch.equal(column, expected)
    assert torch.equal(wide, expected.expand(2, 3)) and torch.equal(long, expected.flatten().repeat(3))
    torch.testing.assert_close(normalized, expected.flatten().softmax(0))
