"""The inputs of a call as users pass them, and where a call runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import torch

from fusewright.core.errors import ArgumentTypeError, DeviceError, shown_number
from fusewright.frontend.recorded.records import number_of
from fusewright.ops import describe_argument
from fusewright.runtime.hardware import default_device

# Numbers of devices; torch keeps them in a byte, and would take 300 for 44.
_INDICES = range(256)

Inputs = Sequence[Any]
Device = int | str | torch.device


def is_strides(given: Sequence[Any]) -> bool:
    """Whether the first of `given`, if there is one, is a non-empty sequence of integers (no bools)."""
    return (
        bool(given)
        and isinstance(given[0], (list, tuple))
        and bool(given[0])
        and all(type(item) is int or isinstance(item, np.integer) for item in given[0])
    )


def is_empty(given: object) -> bool:
    """Whether it is a sequence of nothing."""
    return isinstance(given, (list, tuple)) and not given


def flattened(inputs: Inputs) -> list[Any]:
    """The inputs, lists and tuples among them replaced by their elements, scalars of numpy by numbers."""
    flat: list[Any] = []
    for value in inputs if isinstance(inputs, (list, tuple)) else listed(inputs):
        if isinstance(value, (list, tuple)):
            flat += value
        else:
            flat.append(value)
    return [number_of(value) if isinstance(value, np.generic) else value for value in flat]


def listed(inputs: Iterable[Any], function: str = "execute") -> list[Any]:
    """The inputs of a call as a list. ArgumentTypeError if they are not an ordered collection of inputs."""
    unfit = isinstance(inputs, (torch.Tensor, str, bytes, Mapping, Set))
    if unfit or not isinstance(inputs, Iterable):
        raise ArgumentTypeError(
            function=function, expected="a list of inputs", given=describe_argument(inputs)
        )
    return list(inputs)


def device_named(device: Device) -> torch.device:
    """The named device. DeviceError if the name is not a device."""
    try:
        index = device
        if isinstance(device, str):
            torch.device(device)  # its words for what names no device
            _, _, digits = device.partition(":")
            index = int(digits) if digits else 0
        if isinstance(index, int) and index not in _INDICES:
            raise TypeError
        return torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    except (RuntimeError, TypeError):
        raise DeviceError(
            what="a call",
            expected='a device such as "cuda:0" or 0',
            given=shown_number(device) if isinstance(device, int) else repr(device),
        ) from None


def place_of(inputs: Inputs, device: torch.device | None) -> torch.device:
    """Where a call runs: on its tensors' device, or on `device` if there are none or only meta tensors."""
    devices = [x.device for x in inputs if isinstance(x, torch.Tensor) and x.device.type != "meta"]
    on_gpu = [place for place in devices if place.type != "cpu"]
    return next(iter((*on_gpu, *devices)), device or default_device())
