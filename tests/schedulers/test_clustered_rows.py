"""Rows that blocks of a cluster hold: which, and by how many threads."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fusewright import DataType, schedulers
from fusewright.core.hardware import described
from fusewright.schedule import Schedule
from fusewright.schedulers import InnerPersistentScheduler
from fusewright.schedulers.persistent.clustered_rows import clustered, spread
from fusewright.schedulers.persistent.held_rows import Held
from fusewright.schedulers.persistent.rows_in_turns import copied_in_turns
from fusewright.schedulers.vector_limits import Vectors
from tests.schedulers.proposals import definition, facts_of, normalized


@pytest.mark.parametrize(
    "rows, length, expected",
    [
        (100, 32768, None),
        (2, 65536, None),
        (100, 65536, (4, 256, 8)),
        (100, 98304, (6, 256, 8)),
        (2, 131072, (8, 256, 8)),
        (100, 262144, (8, 512, 8)),
        (100, 524288, (16, 256, 16)),
        (100, 802816, (16, 512, 13)),
    ],
)
def test_long_rows_are_held_by_clusters(rows, length, expected) -> None:
    """Blocks of a cluster, threads of each, and vectors of each thread in shared memory."""
    found = clustered(rows, length // 8, 8, Held(2, 2), False, described("h200"))
    assert clustered(rows, length // 8, 8, Held(2, 2), False, described("a100")) is None
    if expected is None:
        assert found is None
        return
    assert found is not None and found.persistent_in_shared_memory
    found.validate(described("h200"))
    held = found.batches_per_block_inner_reduction
    assert (found.blocks_per_cluster, found.lparams.bdimx, held) == expected


def test_rows_of_sums_of_an_inputs_elements_need_no_cluster() -> None:
    """Each element that is held is made of eight of the input, which would take eight times the room."""
    x = torch.empty(8192, 4096, device="meta")
    [kernel] = definition(_hadamard, x).kernels_for([x], device="cuda")
    assert kernel.scheduler == "inner_persistent" and kernel.params.blocks_per_cluster == 1
    assert not kernel.params.project_persistent_buffers


def _hadamard(x: torch.Tensor) -> torch.Tensor:
    y = x
    for size in (1, 2, 4):
        pairs = y.view(x.shape[0], -1, 2, size)
        y = torch.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], 2).view(x.shape)
    return y / y.abs().amax(1, keepdim=True)


def test_registers_leave_room_for_the_blocks_that_shared_memory_has_room_for() -> None:
    """Of several inputs, for which the compiler takes more or fewer."""
    for held, registers in ((Held(2, 2, 2, 1), 255), (Held(4, 4, 2, 2), 32)):
        found = clustered(256, 100352 // 8, 8, held, False, described("h200"))
        assert found is not None and found.cparams.maxrregcount == registers


@pytest.mark.parametrize(
    "rows, length, in_pairs",
    [
        (4096, 32768, True),
        (4096, 24576, False),
        (4096, 16384, False),
        (2048, 65536, False),
        (300, 32768, False),
    ],
)
def test_rows_beside_two_weights_are_held_in_pairs(rows: int, length: int, in_pairs: bool) -> None:
    """Of rows that a cluster of two blocks holds two of; one weight has as many bytes as a row, not more."""
    for weights in (1, 2):
        fusion = normalized(DataType.BFloat16, weights)
        facts = facts_of(fusion, [(rows, length), *[(length,)] * weights])
        stable = replace(facts, stable=frozenset(facts.sizes))
        params = schedulers.propose(InnerPersistentScheduler(), fusion, stable, described("h200"))
        assert (params.rows_in_flight == 2) is (in_pairs and weights == 2), params.reason
        if params.rows_in_flight == 2:
            assert params.blocks_per_cluster == 2 and params.whole_blocks is (rows % 2 == 0)
            schedulers.apply(InnerPersistentScheduler(), Schedule(fusion), params, described("h200"))
        on_ampere = schedulers.propose(InnerPersistentScheduler(), fusion, stable, described("a100"))
        assert on_ampere.blocks_per_cluster == 1


@pytest.mark.parametrize(
    "rows, length, expected",
    [
        (33, 8192, None),
        (33, 16384, (8, 256, 1)),
        (12, 12288, (8, 192, 1)),
        (33, 32768, (8, 256, 2)),
        (300, 32768, (4, 256, 4)),
        (1024, 32768, None),
        (12, 262144, None),
        (1, 65536, (16, 256, 2)),
        (3, 12288, (8, 192, 1)),
        (1, 262144, (16, 256, 8)),
        (1, 524288, None),
        (33, 65536, (8, 256, 4)),
        (33, 131072, (16, 128, 8)),
        (64, 131072, (8, 256, 8)),
    ],
)
def test_few_rows_are_spread_over_clusters(rows, length, expected) -> None:
    found = spread(rows, length // 8, 8, Held(2, 2), described("h200"))
    assert spread(rows, length // 8, 8, Held(2, 2), described("a100")) is None
    if found is not None:
        found.validate(described("h200"))
    blocks = found and (found.blocks_per_cluster, found.lparams.bdimx)
    assert (found and (*blocks, found.batches_per_block_inner_reduction)) == expected


def test_vectors_that_rows_align_are_held_in_registers_while_these_suffice() -> None:
    for vectors, expected in ((6284, (4, 256, False)), (20000, (8, 256, False)), (28000, (8, 448, True))):
        found = clustered(4096, vectors, 8, Held(2, 2), True, described("h200"))
        assert found is not None, vectors
        how = (found.blocks_per_cluster, found.lparams.bdimx, found.persistent_in_shared_memory)
        assert how == expected, vectors


@pytest.mark.parametrize(
    "rows, length, how",
    [
        (1024, 50257, "turns"),
        (200, 50257, "clusters"),
        (33, 50257, "clusters"),
        (33, 4097, "by element"),
    ],
)
def test_long_odd_rows_beside_weights_are_held_by_clusters(rows: int, length: int, how: str) -> None:
    """Many take turns, so that what was chosen from weights serves all of a cluster; few are spread."""
    fusion = normalized(DataType.BFloat16, 2)
    facts = facts_of(fusion, [(rows, length), (length,), (length,)])
    stable = replace(facts, stable=frozenset(facts.sizes))
    params = schedulers.propose(InnerPersistentScheduler(), fusion, stable, described("h200"))
    assert (params.blocks_per_cluster > 1, bool(params.circular_stages)) == (
        how != "by element",
        how == "turns",
    ), params.reason
    assert bool(params.shift_rows and params.unaligned_inputs) is (how != "by element")
    clusters = params.persistent_blocks
    assert clusters <= described("h200").resident_clusters(params.blocks_per_cluster)
    schedulers.apply(InnerPersistentScheduler(), Schedule(fusion), params, described("h200"))
    without = schedulers.propose(InnerPersistentScheduler(), fusion, facts, described("h200"))
    assert without.blocks_per_cluster == 1  # of any length


@pytest.mark.parametrize(
    "length, width, expected",
    [
        (16385, 8, (1, 128, 704, 3, 3)),
        (50257, 8, (2, 64, 640, 5, 2)),
        (65537, 8, (3, 32, 704, 4, 3)),
        (50257, 4, (4, 28, 640, 5, 2)),
        (131073, 8, None),
    ],
)
def test_clusters_take_long_rows_in_turns(length: int, width: int, expected: tuple[int, ...] | None) -> None:
    """Blocks of a cluster, clusters, threads, vectors and stages: all that two weights leave room for."""
    size, h200 = 16 // width, described("h200")
    found = copied_in_turns(4096, length, Vectors(width, (1, 2), 1.0), Held(size, size, size), 2 * size, h200)
    if found is None or expected is None:
        assert found is expected
        return
    found.validate(h200)
    how = (found.blocks_per_cluster, found.persistent_blocks, found.lparams.bdimx)
    assert (*how, found.batches_per_block_inner_reduction, found.circular_stages) == expected
