"""Moved elements: sizes of 0, copies of one element, tensors that meet themselves, types that change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fusewright import DataType, FusionDefinition

Define = Callable[[FusionDefinition], None]


def _tensor(fd: FusionDefinition, rank: int, dtype: DataType = DataType.Float, **options: Any) -> Any:
    return fd.define_tensor([-1] * rank, **{"contiguity": True, **options}, dtype=dtype)


def _index_and_source(fd: FusionDefinition) -> None:
    """A tensor that is moved and read at the places which it names itself."""
    x = _tensor(fd, 1, DataType.Int)
    fd.add_output(fd.ops.gather(fd.ops.roll(x, [100], [0]), x, 0))
    fd.add_output(fd.ops.repeat_interleave(fd.ops.gather(fd.ops.sigmoid(x), x, 0), 2, 0))


def _shown_matrix(fd: FusionDefinition) -> None:
    fd.add_output(fd.ops.triu(_tensor(fd, 3, contiguity=[True, None, True]), 0))


def _shown_and_not(fd: FusionDefinition) -> None:
    x, y = _tensor(fd, 2, contiguity=[True, None]), _tensor(fd, 2)
    fd.add_output(fd.ops.cat([x, y, x], -2))


def _one_and_several(fd: FusionDefinition) -> None:
    x, y = fd.define_tensor([1, -1], contiguity=True), _tensor(fd, 2)
    fd.add_output(fd.ops.cat([x, y, x], 1))


def _shown_index(fd: FusionDefinition) -> None:
    x = _tensor(fd, 3)
    index = _tensor(fd, 3, DataType.Int32, contiguity=[True, True, None])
    fd.add_output(fd.ops.gather(x, index, 1))
    fd.add_output(fd.ops.take_along_axis(x, index, 1))
    fd.add_output(fd.ops.take_along_axis(fd.ops.sum(x, [2], keepdim=True), index, 1))


def _shown_regrouped(fd: FusionDefinition) -> None:
    """Copies of one element are read in two shapes."""
    x, y = _tensor(fd, 1), _tensor(fd, 1, contiguity=[None])
    rows = fd.ops.reshape(fd.ops.cast(y, DataType.BFloat16), [-1, 2])
    less = fd.ops.sub(rows, fd.ops.max(rows, [0], keepdim=True))
    fd.add_output(fd.ops.reshape(less, [x.size(0)]))


def _positions_moved(fd: FusionDefinition) -> None:
    """What is padded are indices that a reduction found, kept for another kernel."""
    x = _tensor(fd, 1)
    fd.add_output(fd.ops.pad(fd.ops.maximum(fd.ops.argmax(x, 0), x), [1, 2]))


def _cropped(fd: FusionDefinition) -> None:
    """A row is as long as a difference of sizes says, which is not negative."""
    x = _tensor(fd, 2)
    fd.add_output(fd.ops.pad(x, [0, -2, 1, 2], 0.1))
    parts = fd.ops.slice(x, [0, 1], [4, 17])
    fd.add_output(fd.ops.prod(fd.ops.reshape(parts, [2, 3, -1]), [1]))


def _result_padded(fd: FusionDefinition) -> None:
    whole = fd.ops.sum(_tensor(fd, 2), [0, 1], keepdim=True)
    fd.add_output(fd.ops.pad(whole, [0, -1, 0, 2]))
    fd.add_output(whole)


def _pads_alone(fd: FusionDefinition) -> None:
    """Nothing is left between the pads of one dimension, which says nothing of the others."""
    x = fd.define_tensor([3, -1], contiguity=[None, True])
    fd.add_output(fd.ops.pad(fd.ops.neg(x), [0, 2, 3, -3], 0.5))


def _pairwise_of_a_view(fd: FusionDefinition) -> None:
    """A reshaped output meets itself in more dimensions than it was stored in."""
    x, y = _tensor(fd, 1), fd.define_tensor([1, -1], contiguity=True)
    moved = fd.ops.neg(y)
    row = fd.ops.reshape(moved, [x.size(0)])
    fd.add_output(fd.ops.logical_and(row, fd.ops.broadcast(row, [False, True])))
    fd.add_output(moved)


def _stored_in_more_dimensions(fd: FusionDefinition) -> None:
    """What is read inside a reduction and after it, where a slice empties a dimension of size 1."""
    x, row = _tensor(fd, 3), fd.define_tensor([1, -1, 1], contiguity=True, dtype=DataType.Half)
    low = fd.ops.minimum(row, x)
    less = fd.ops.add(fd.ops.sum(low, [0], keepdim=True), row)
    fd.add_output(low)
    fd.add_output(less)
    fd.add_output(fd.ops.slice(less, [5, 1, 1], [12, 69, 17]))


def _turned_again(fd: FusionDefinition) -> None:
    x = fd.define_tensor([1, -1], contiguity=True)
    turned = fd.ops.flip(fd.ops.sub(x, fd.ops.min(x, [0, 1], keepdim=True)), [1, 0])
    wide = fd.ops.broadcast(turned, [True, False, False])
    fd.add_output(wide)
    fd.add_output(fd.ops.mul(turned, wide))


def _nothing(fd: FusionDefinition) -> None:
    x = _tensor(fd, 2)
    fd.add_output(fd.ops.roll(x, [100, 3], [0, 1]))
    none = fd.ops.slice(x, [0, 2], [3, 2])
    fd.add_output(fd.ops.repeat(fd.ops.roll(none, [3], [1]), [2, 2]))
    fd.add_output(fd.ops.reshape(none, [5, 0, 3, 0]))
    # A row of some elements, but none of them.
    fd.add_output(fd.ops.flatten(fd.ops.slice(x, [5, 5], [x.size(0), 6], [1, 3])))
    for part in fd.ops.chunk(none, 2, 1):
        fd.add_output(part)
    # The size that the index of the flat one divides by turns out to be 0 afterwards; and a pad of it.
    flat = fd.ops.flatten(x)
    fd.add_output(flat)
    fd.add_output(fd.ops.pad(flat, [1, 1], 2.0))
    fd.add_output(fd.ops.broadcast_in_dim(x, [2, 3, 0], [1, 2]))


Tensors = list[torch.Tensor]

#: the definition, its inputs, and what torch gives for them (None: what the evaluator gives)
ROWS: dict[str, tuple[Define, Tensors, Callable[..., Tensors] | None]] = {
    "index_and_source": (
        _index_and_source,
        [torch.tensor([2, 0, 1])],
        lambda x: [x.roll(100)[x], x.sigmoid()[x].repeat_interleave(2)],
    ),
    "shown_matrix": (_shown_matrix, [torch.randn(2, 1, 3).expand(2, 3, 3)], lambda x: [x.triu()]),
    "shown_and_not": (
        _shown_and_not,
        [torch.randn(3, 1).expand(3, 4), torch.randn(2, 4)],
        lambda x, y: [torch.cat([x, y, x])],
    ),
    "one_and_several": (
        _one_and_several,
        [torch.randn(1, 3), torch.randn(1, 2)],
        lambda x, y: [torch.cat([x, y, x], 1)],
    ),
    "shown_index": (
        _shown_index,
        [torch.randn(2, 3, 4), torch.tensor([[[2], [0]], [[1], [1]]]).int().expand(2, 2, 4)],
        lambda x, i: [
            x.gather(1, i.long()),
            x.gather(1, i.long()),
            x.sum(2, keepdim=True).expand_as(x).gather(1, i.long()),
        ],
    ),
    "shown_regrouped": (_shown_regrouped, [torch.randn(4), torch.randn(1).expand(4)], None),
    "positions_moved": (_positions_moved, [torch.randn(5)], None),
    "cropped": (_cropped, [torch.randn(6, 4)], None),
    "result_padded": (_result_padded, [torch.randn(3, 4)], None),
    "pads_alone": (
        _pads_alone,
        [torch.randn(2).expand(3, 2)],
        lambda x: [F.pad(-x, (0, 2, 3, -3), value=0.5)],
    ),
    "pairwise_of_a_view": (_pairwise_of_a_view, [torch.randn(3), torch.randn(1, 3)], None),
    "stored_in_more_dimensions": (
        _stored_in_more_dimensions,
        [torch.randn(4, 3, 5), torch.randn(1, 3, 1).half()],
        None,
    ),
    "turned_again": (_turned_again, [torch.randn(1, 4)], None),
    "nothing": (
        _nothing,
        [torch.randn(3, 0)],
        lambda x: [
            x,
            torch.empty(6, 0),
            torch.empty(5, 0, 3, 0),
            torch.empty(0),
            x[:, 2:],
            x[:, 2:],
            torch.empty(0),
            torch.full((2,), 2.0),
            torch.empty(2, 3, 0),
        ],
    ),
}


def _moved(tensor: torch.Tensor, target: str) -> torch.Tensor:
    """On the target with the strides that it has, which a copy of an expanded tensor would not."""
    elements = tensor.untyped_storage().nbytes() // tensor.element_size()
    memory = tensor.as_strided((elements,), (1,), 0).to(target)
    return memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


@pytest.mark.parametrize("name", ROWS)
def test_moves_at_their_corners(target: str, name: str) -> None:
    define, given, reference = ROWS[name]
    inputs = [_moved(t, target) for t in given]
    with FusionDefinition() as fd:
        define(fd)
    fd.validate(inputs, None if reference is None else reference(*inputs))


def test_moves_of_a_scalar_in_host_memory_find_their_pads(target: str) -> None:
    """It is in a register of every thread, where no predicate guards a load; one of them is converted."""
    scalars = [torch.tensor(2.0), torch.tensor(1.5).half()]
    indices, x = torch.tensor([0, 1, -1], device=target), torch.randn(3, device=target)
    with FusionDefinition() as fd:
        i, y = _tensor(fd, 1, DataType.Int), _tensor(fd, 1)
        for each in map(fd.from_pytorch, scalars):
            line = fd.ops.reshape(each, [1])
            fd.add_output(fd.ops.cast(fd.ops.pad(line, [1, 2]), DataType.Float) * 3.0)
            fd.add_output(fd.ops.index_select(line, i, 0) + y)
    expected = []
    for value in (2.0, 1.5):
        expected += [torch.tensor([0.0, 3 * value, 0.0, 0.0]), torch.tensor([value, 0.0, 0.0]) + x.cpu()]
    for found, wanted in zip(fd.execute([indices, x, *scalars]), expected):
        torch.testing.assert_close(found.cpu(), wanted)


def test_quotients_below_zero_keep_their_remainders() -> None:
    """A reversed index is divided twice: the first quotient is named, and is below 0."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1, -1], contiguity=True, dtype=DataType.Float, stride_order=[1, 0, 2])
        fd.add_output(fd.ops.triu(x, 0))
        turned = fd.ops.reshape(x, [x.size(2), x.size(0), x.size(1)])
        fd.add_output(fd.ops.flip(turned, [0, 2, 1]))
    for rows, columns in ((1, 2), (2, 1), (6, 5)):
        fd.validate([torch.randn(1, rows, columns).permute(1, 2, 0)])
