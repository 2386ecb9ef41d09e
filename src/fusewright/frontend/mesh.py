"""Meshes of devices, as nvFuser's schedules name them. A mesh has one device here, since a definition runs on
one GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fusewright.core.enums import ParallelType
from fusewright.core.errors import ArgumentTypeError, ScheduleError
from fusewright.ops import describe_argument

# What takes several GPUs says so in these words.
ONE_DEVICE = "a definition runs on one device, where its inputs are"


class DeviceMesh:
    """Device numbers in an array of any rank.

    Args:
        devices: a list of numbers, or an integer tensor.
    """

    def __init__(self, devices: Sequence[int] | torch.Tensor) -> None:
        is_tensor = isinstance(devices, torch.Tensor) and not devices.is_floating_point()
        if not is_tensor and not (
            isinstance(devices, (list, tuple)) and all(type(number) is int for number in devices)
        ):
            raise ArgumentTypeError(
                function="DeviceMesh",
                expected="devices: a list of ints, or a tensor of them",
                given=describe_argument(devices),
            )
        numbers = torch.as_tensor(devices)
        self.shape: tuple[int, ...] = tuple(numbers.shape)
        self.devices: tuple[int, ...] = tuple(numbers.flatten().tolist())
        if any(number < 0 for number in self.devices):
            raise ArgumentTypeError(
                function="DeviceMesh", expected="devices: numbers of 0 or more", given=str(list(self.devices))
            )

    @property
    def size(self) -> int:
        """How many devices there are."""
        return len(self.devices)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceMesh) and (self.shape, self.devices) == (other.shape, other.devices)

    def __hash__(self) -> int:
        return hash((self.shape, self.devices))

    def __repr__(self) -> str:
        return f"DeviceMesh({torch.tensor(self.devices).reshape(self.shape).tolist()})"


def check_mesh(mesh: Any) -> None:
    """ScheduleError for a mesh that does not consist of one device. ArgumentTypeError for other objects."""
    if not isinstance(mesh, DeviceMesh):
        raise ArgumentTypeError(
            function="set_device_mesh", expected="mesh: DeviceMesh", given=describe_argument(mesh)
        )
    if mesh.size != 1:
        raise ScheduleError(
            f"set_device_mesh: {ONE_DEVICE}", expected="a mesh of one device", given=f"{mesh.size}: {mesh!r}"
        )


def check_rotation(parallel_type: Any) -> None:
    """ArgumentTypeError unless `parallel_type` is a device axis, by whose index an axis may be rotated."""
    if not (isinstance(parallel_type, ParallelType) and parallel_type.is_mesh):
        raise ArgumentTypeError(
            function="swizzle1d",
            expected="parallel_type: mesh_x, mesh_y or mesh_z",
            given=str(parallel_type)
            if isinstance(parallel_type, ParallelType)
            else describe_argument(parallel_type),
        )
