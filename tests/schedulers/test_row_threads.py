"""How many threads hold a short row, and how many of its vectors each has."""

from __future__ import annotations

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.core.hardware import described
from fusewright.core.options import Options
from fusewright.schedulers.persistent.row_threads import part_of_a_warp, threads_and_batches


def test_short_rows_take_parts_of_warps() -> None:
    """Lanes and their vectors: none in vain where that can be, two loads in flight at least."""
    assert [part_of_a_warp(vectors) for vectors in (1, 2, 3, 12, 16, 40, 64)] == [
        (1, 1),
        (1, 2),
        (1, 3),
        (4, 3),
        (8, 2),
        (16, 3),
        (32, 2),
    ]
    # A lane alone has a sector of wide vectors at most.
    assert [part_of_a_warp(vectors, 2, 2) for vectors in (1, 2, 3, 4)] == [(1, 1), (1, 2), (2, 2), (2, 2)]
    assert [part_of_a_warp(vectors, 4) for vectors in (3, 33, 64)] == [(1, 3), (8, 5), (16, 4)]
    assert part_of_a_warp(7, 4, 2) == (1, 7)  # of narrow ones as many as there are
    assert threads_and_batches(1 << 17, 64, 16, described("h200")) == (16, 4)


@pytest.mark.parametrize("is_constant, block", [(True, (2, 64, 1)), (False, (32, 4, 1))])
def test_short_rows_of_several_dimensions_are_held_by_blocks_of_legal_size(
    is_constant: bool, block: tuple[int, ...]
) -> None:
    """Parts of warps hold rows of a constant length, whole warps those of which nothing can be assumed."""
    shape = (100_000, 2, 3, 5)
    with FusionDefinition(options=Options(disable=(("constant_sizes", ()),))) as fd:
        x = fd.define_tensor(shape if is_constant else [-1] * 4, True)
        fd.add_output(x / fd.ops.sum(x, [1, 3], keepdim=True))
    [kernel] = fd.kernels_for([torch.empty(shape, device="meta")], device="cuda")
    assert kernel.scheduler == "inner_persistent"
    assert kernel.launch.block == block
