"""Launches of whole fusions, recorded so that altered kernels can be run on what the right one was given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch

from fusewright import FusionDefinition
from fusewright.kernel.ir import Kernel, TensorParam
from fusewright.runtime import targets
from fusewright.sim import SimOptions, SimReport, simulate

Define = Callable[[FusionDefinition, list[Any]], None]


@dataclass(frozen=True)
class Launch:
    """One call of the simulator: the arguments as they were before it, and its shape."""

    kernel: Kernel
    arguments: Sequence[Any]
    shape: dict[str, Any]

    def run(self, kernel: Kernel, options: SimOptions | None = None) -> list[torch.Tensor]:
        """Run `kernel` on copies of the arguments. Returns all bytes that it was given, padding included,
        after the launch; scratch memory only if it must be left zero.
        """
        arguments = copies(self.arguments)
        simulate(kernel, arguments, **self.shape, options=options or SimOptions())
        return [
            torch.empty(0, dtype=torch.uint8).set_(argument.untyped_storage())
            for param, argument in zip(kernel.params, arguments)
            if isinstance(param, TensorParam) or getattr(param, "zeroed", False)
        ]


def copies(arguments: Sequence[Any]) -> list[Any]:
    """Copies of the tensors that lie in memory as the originals do: padded, overlapping, at odd offsets."""
    storages: dict[int, torch.UntypedStorage] = {}

    def copy(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        old = value.untyped_storage()
        if old.data_ptr() not in storages:
            storages[old.data_ptr()] = old.clone()
        storage = storages[old.data_ptr()]
        with torch.no_grad():
            return torch.empty(0, dtype=value.dtype).set_(
                storage, value.storage_offset(), value.shape, value.stride()
            )

    return [copy(value) for value in arguments]


def launches_of(
    define: Define, *calls: Sequence[Any]
) -> tuple[list[list[Launch]], list[Sequence[torch.Tensor]]]:
    """For each call of a fusion, given its inputs: the launches, and the outputs.

    Calls whose sizes lead to the same decisions launch the same kernel object.
    """
    launches: list[list[Launch]] = []
    outputs: list[Sequence[torch.Tensor]] = []

    def record(kernel: Kernel, arguments: Sequence[Any], **shape: Any) -> SimReport:
        launches[-1].append(Launch(kernel, copies(arguments), shape))
        return simulate(kernel, arguments, **shape)

    with FusionDefinition() as fd:
        define(fd, [_declared(fd, x) for x in calls[0]])
    with mock.patch.object(targets, "simulate", record):
        for inputs in calls:
            launches.append([])
            outputs.append(fd.execute(list(inputs)))
    return launches, outputs


def _declared(fd: FusionDefinition, x: torch.Tensor) -> Any:
    """An input of any sizes (but 1), with rows that follow one another or do not as those of `x`."""
    shape = [1 if size == 1 else -1 for size in x.shape]
    contiguity = [
        None if size == 1 else x.is_contiguous() or d == x.dim() - 1 for d, size in enumerate(x.shape)
    ]
    return fd.define_tensor(shape=shape, contiguity=contiguity, dtype=x.dtype)
