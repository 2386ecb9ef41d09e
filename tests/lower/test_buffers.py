"""What is said of a tensor's storage after it has been addressed comes too late, and is refused."""

from __future__ import annotations

import pytest

from fusewright.core.enums import MemoryType
from fusewright.lower.buffers import Buffers
from fusewright.lower.domains import Domains
from fusewright.schedule import Schedule
from tests.lower.running import copy_fusion


def test_vectors_are_announced_before_a_tensor_is_addressed():
    schedule = Schedule(copy_fusion([8, 8]))
    source, out = schedule.tensors()
    buffers = Buffers(Domains(schedule.fusion.ordered_nodes(), {}))
    buffers.need_vectors(source, 4)
    buffers.need_vectors(source, 2)
    assert buffers.of(source).align == buffers.alignment[source] == 16
    buffers.strides(out)
    for tensor in (source, out):
        with pytest.raises(AssertionError, match=f"{tensor.name} was addressed before"):
            buffers.need_vectors(tensor, 4)


def test_a_tensor_is_found_to_be_private_before_it_is_addressed():
    schedule = Schedule(copy_fusion([8, 8], copies=2))
    middle = schedule.tensor(1)
    schedule.set_memory_type(middle, MemoryType.shared)
    buffers = Buffers(Domains(schedule.fusion.ordered_nodes(), {}))
    buffers.check_readers(middle, [], set(), is_output=False)
    assert buffers.of(middle).private
    with pytest.raises(AssertionError, match=f"{middle.name} was addressed before its readers"):
        buffers.check_readers(middle, [], set(), is_output=False)
