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
