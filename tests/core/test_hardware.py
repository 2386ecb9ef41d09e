"""Described GPUs and what is derived from them."""

import pytest

from fusewright.core.errors import OptionError
from fusewright.core.hardware import DESCRIBED, described


@pytest.mark.parametrize(
    ("name", "arch"),
    [("h200", "sm_90a"), ("H100", "sm_90a"), ("a100", "sm_80"), ("l4", "sm_89"), ("b200", "sm_100a")],
)
def test_described_gpus_and_their_architectures(name: str, arch: str) -> None:
    assert described(name).arch == arch


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(OptionError, match=r"'v100'\. Valid names: h200, h100, a100, l4, b200"):
        described("v100")


def test_limits_are_consistent() -> None:
    for info in DESCRIBED.values():
        assert info.max_threads_per_block <= info.max_threads_per_sm
        assert info.shared_memory_per_block_optin + info.shared_memory_reserved == info.shared_memory_per_sm


@pytest.mark.parametrize("blocks, most", [(1, 132), (2, 66), (3, 39), (4, 30), (8, 15), (16, 7)])
def test_clusters_are_resident_that_a_gpu_has_held(blocks: int, most: int) -> None:
    """No more than the driver said of one H200, and most of these; with more blocks on each SM more."""
    h200 = described("h200")
    assert 0.85 * most <= h200.resident_clusters(blocks) <= most
    assert h200.resident_clusters(blocks, 2) >= 2 * h200.resident_clusters(blocks)
