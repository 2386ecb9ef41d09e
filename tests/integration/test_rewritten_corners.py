"""Programs of which a rewrite once took something for granted."""

from __future__ import annotations

import pytest
import torch

from fusewright import DataType, FusionDefinition


def test_a_reshape_that_names_a_size_by_an_equal_one_is_done_first(target: torch.device) -> None:
    """[a, b, n, n] as [a * b, n, n] says n once: sizes that only a call shows to be equal."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1, -1, -1], contiguity=True)
        merged = fd.ops.reshape(x, [fd.ops.mul(x.size(0), x.size(1)), x.size(2), x.size(2)])
        fd.add_output(fd.ops.var(merged, [0], 1))
    x = torch.arange(24.0).reshape(3, 2, 2, 2)
    [found] = fd.execute([x.to(target)])
    torch.testing.assert_close(found.cpu(), x.var((0, 1)))


def test_a_column_that_is_scattered_and_summed_is_written_once(target: torch.device) -> None:
    """Class 0 of rows, which a loss reads, and which is an output."""
    with FusionDefinition() as fd:
        like, x = (fd.define_tensor([-1, -1], contiguity=True) for _ in range(2))
        places = fd.ops.mod(fd.ops.iota(like.size(0), 0, 1, DataType.Int), like.size(0))
        rows = fd.ops.broadcast(places, [False, True])
        changed = fd.ops.scatter(x, rows, 2, 0)
        classes = fd.ops.mod(fd.ops.iota(like.size(0), 0, 1, DataType.Int), like.size(1))
        fd.add_output(fd.ops.cross_entropy(changed, classes, None, 0, "sum", 0.25))
        fd.add_output(changed)
        fd.add_output(fd.ops.set(rows))
    x = torch.arange(325.0, dtype=torch.float32).reshape(65, 5) / 99
    loss, changed, _ = fd.execute([x.to(target), x.to(target)])
    wanted = x.clone()
    wanted[:, 0] = 2
    exact = torch.nn.functional.cross_entropy(
        wanted.double(), torch.arange(65) % 5, ignore_index=0, reduction="sum", label_smoothing=0.25
    )
    torch.testing.assert_close(changed.cpu(), wanted)
    torch.testing.assert_close(loss.cpu().double(), exact, rtol=1e-5, atol=0)


def test_positions_of_a_row_that_was_several_dimensions_divide_by_a_product_of_sizes(
    target: torch.device,
) -> None:
    """The places that scatter_add names in a flat tensor: the host computed no such product for a segment."""
    with FusionDefinition() as fd:
        index = fd.define_tensor([-1, -1, -1], dtype=DataType.Int, contiguity=True)
        source = fd.define_tensor([-1, -1, -1], contiguity=True)
        outer = fd.ops.iota(index.size(0), 0, 1, DataType.Int)
        places = fd.ops.broadcast(outer, [False, True, True]) * index.size(2) + index
        count = index.size(0) * index.size(1) * index.size(2)
        row, added = fd.ops.reshape(places, [count]), fd.ops.reshape(source, [count])
        base = fd.ops.zeros([index.size(0) * index.size(2)], DataType.Float)
        fd.add_output(row)
        fd.add_output(fd.ops.index_put_accumulate(base, row, added))
    index, source = torch.arange(24).reshape(2, 3, 4) % 4, torch.arange(24.0).reshape(2, 3, 4)
    row, total = fd.execute([index.to(target), source.to(target)])
    wanted = (torch.arange(2)[:, None, None] * 4 + index).flatten()
    assert torch.equal(row.cpu(), wanted)
    torch.testing.assert_close(total.cpu(), torch.zeros(8).index_add(0, wanted, source.flatten()))


def test_tensors_without_elements_are_read_as_others(target: torch.device) -> None:
    """Of sizes that are known to be zero: a sum is zero, what is joined with nothing stays."""
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor(shape, contiguity=True) for shape in ([4, 0], [3, 5]))
        fd.add_output(fd.ops.sum(fd.ops.exp(x), [1]))
        nothing = fd.ops.slice(fd.ops.exp(y), [0, 0], [0, 5])
        fd.add_output(fd.ops.exp(fd.ops.cat([nothing, y], 0)))
        fd.add_output(fd.ops.slice(y / fd.ops.sum(y, [1], keepdim=True), [0, 0], [3, 0]) * 2.0)
    y = torch.rand(3, 5)
    total, joined, none = fd.execute([torch.empty(4, 0, device=target), y.to(target)])
    assert total.tolist() == [0.0] * 4 and none.shape == (3, 0)
    torch.testing.assert_close(joined.cpu(), y.exp())


@pytest.mark.parametrize("place", [0, -1, 2])
def test_one_place_of_what_is_normalized_reads_no_other(target: torch.device, place: int) -> None:
    """The last token of a layer norm, whatever the sizes; and a running sum along what is left."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1, -1], contiguity=True)
        w = fd.define_tensor([-1], contiguity=True)
        out, *_ = fd.ops.layer_norm(x, [x.size(2)], w)
        fd.add_output(fd.ops.select(out, place, 1))
        fd.add_output(fd.ops.cumsum(fd.ops.select(fd.ops.sum(x, [2]), place, 1), 0))
    for shape in ((5, 7, 33), (4, 3, 64), (1, 3, 5)):
        x, w = torch.randn(*shape), torch.randn(shape[2])
        found, running = fd.execute([x.to(target), w.to(target)])
        wanted = torch.nn.functional.layer_norm(x, shape[2:], w)[:, place]
        torch.testing.assert_close(found.cpu(), wanted, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(running.cpu(), x.sum(2)[:, place].cumsum(0), rtol=1e-4, atol=1e-4)


def test_positions_that_several_sizes_multiply_are_multiplied_by_one(target: torch.device) -> None:
    """A row of three dimensions of which one has a position: the host computed i1 * i2 for no segment."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1, -1], contiguity=True)
        along = fd.ops.broadcast(fd.ops.iota(8, 0, 1, DataType.Int), [True, True, False])
        added = fd.ops.add(x, along)
        fd.add_output(fd.ops.reshape(added, [5, x.size(1), -1]))
        fd.add_output(fd.ops.flip(x, [2, 1, 0]))
    x = torch.randn(5, 3, 8)
    reshaped, flipped = fd.execute([x.to(target)])
    torch.testing.assert_close(reshaped.cpu(), x + torch.arange(8))
    torch.testing.assert_close(flipped.cpu(), x.flip(0, 1, 2))
