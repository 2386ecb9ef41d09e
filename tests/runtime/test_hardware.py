"""Which description a device gets."""

import dataclasses

import pytest
import torch

from fusewright.core.errors import OptionError, UnsupportedDeviceError
from fusewright.core.hardware import described
from fusewright.core.options import Options
from fusewright.cuda import driver
from fusewright.runtime.hardware import _bandwidth, from_device, hardware_of


def test_a_cpu_stands_for_the_gpu_that_the_options_name() -> None:
    assert hardware_of(torch.device("cpu"), Options()) == described("h200")
    assert hardware_of(torch.device("cpu"), Options(sim_device="l4")).arch == "sm_89"
    with pytest.raises(OptionError, match="Valid names: h200"):
        hardware_of(torch.device("cpu"), Options(sim_device="h300"))


def test_other_devices_are_refused() -> None:
    with pytest.raises(UnsupportedDeviceError, match="meta"):
        hardware_of(torch.device("meta"), Options())


def test_a_device_is_read_through_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    h100 = described("h100")
    values = {"COMPUTE_CAPABILITY_MAJOR": 9, "COMPUTE_CAPABILITY_MINOR": 0, "MULTIPROCESSOR_COUNT": 132}
    monkeypatch.setattr(driver, "device_name", lambda device: "NVIDIA H100 80GB HBM3")
    monkeypatch.setattr(driver, "device_memory", lambda device: h100.memory_bytes)
    monkeypatch.setattr(driver, "device_attribute", lambda device, name: values.get(name, 1000))
    info = from_device.__wrapped__(0)
    assert (info.arch, info.sm_count, info.memory_bandwidth_gbs) == ("sm_90a", 132, 3352.0)
    assert info.clock_mhz == 1 and info.warp_size == 1000


def test_bandwidth_of_an_undescribed_gpu_comes_from_clock_and_bus() -> None:
    # An RTX 4090: GDDR6X at 10501 MHz on 384 bits; its data sheet says 1008 GB/s.
    assert _bandwidth("NVIDIA GeForce RTX 4090", 10_501_000, 384) == pytest.approx(1008, rel=1e-3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_gpu_that_is_there_agrees_with_torch() -> None:
    info = hardware_of(torch.device("cuda"), Options())
    facts = torch.cuda.get_device_properties(torch.cuda.current_device())
    assert info.sm_count == facts.multi_processor_count
    assert info.compute_capability == (facts.major, facts.minor)
    for known in (described(name) for name in ("h200", "h100", "a100", "l4", "b200")):
        if known.name == info.name:
            measured = {field: getattr(info, field) for field in ("clock_mhz", "memory_bytes", "l2_bytes")}
            assert dataclasses.replace(known, **measured) == info
