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
        assert info.max_cluster_size == (8 if info.arch.endswith("a") else 1)


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks"),
    [
        (256, 32, 0, 8),  # threads: 2048 / 256
        (256, 33, 0, 6),  # registers: 33 * 32 rounds up to 1280 a warp, 8 warps a block
        (32, 16, 0, 32),  # blocks
        (128, 32, 100 * 1024, 2),  # shared memory: 101 KiB a block with the reserved one
        (1024, 64, 0, 1),
        (1024, 65, 0, 0),  # not one block has its registers
        (32, 32, 228 * 1024, 0),  # more than a block may ask for
        (1025, 16, 0, 0),
    ],
)
def test_blocks_per_sm_of_an_h200(threads: int, registers: int, shared: int, blocks: int) -> None:
    assert described("h200").blocks_per_sm(threads, registers, shared) == blocks
