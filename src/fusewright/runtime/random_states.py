"""The start of a call's random numbers: a seed and an offset, taken from torch's generator of the device.

So `torch.manual_seed` reproduces runs, and numbers that torch itself draws in between advance the offset.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fusewright.core.forks import renew_in_child
from fusewright.core.once import OnceCache

# Torch's Philox generators count in 32-bit numbers and go on in steps of whole blocks.
STEP = 4


class RandomStates(ABC):
    """The states of one device's generator. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        renew_in_child(self)

    def renew(self) -> None:
        """Makes the lock anew, in a child of `fork`."""
        self._lock = threading.Lock()

    def take(self) -> tuple[int, int]:
        """Seed and offset of the next random numbers, as 64-bit signed integers; the generator goes on."""
        with self._lock:
            seed, offset = self._take()
        return seed - 2**64 if seed >= 2**63 else seed, offset

    @contextmanager
    def again(self, since: Any) -> Iterator[None]:
        """Meanwhile the generator is as it was when `position` gave `since`; then, as it is now."""
        now = self.position()
        self.go_back(since)
        try:
            yield
        finally:
            self.go_back(now)

    @abstractmethod
    def _take(self) -> tuple[int, int]: ...

    @abstractmethod
    def position(self) -> Any:
        """What `go_back` needs to repeat what comes next."""

    @abstractmethod
    def go_back(self, position: Any) -> None: ...


class CudaRandomStates(RandomStates):
    """Of a CUDA device, whose generator is a Philox one: its own seed and offset."""

    def __init__(self, index: int) -> None:
        super().__init__()
        torch.cuda.init()  # before that there are no generators
        self._generator = torch.cuda.default_generators[index]

    def _take(self) -> tuple[int, int]:
        generator = self._generator
        offset = generator.get_offset()
        generator.set_offset(offset + STEP)
        return generator.initial_seed(), offset

    def position(self) -> torch.Tensor:
        return self._generator.get_state()

    def go_back(self, position: torch.Tensor) -> None:
        self._generator.set_state(position)


class CpuRandomStates(RandomStates):
    """The states of the CPU's generator, which has no offset.

    A newly seeded generator is treated like a CUDA generator with that seed. It advances by one draw, and
    while nobody else draws, the seed stays and the offset grows. Otherwise the next number drawn is the seed.
    """

    def __init__(self) -> None:
        super().__init__()
        self._generator = torch.default_generator
        self._seed = self._offset = 0
        self._left: torch.Tensor | None = None

    def _take(self) -> tuple[int, int]:
        state = self._generator.get_state()
        if self._left is not None and torch.equal(state, self._left):
            self._offset += STEP
        else:
            seed = self._generator.initial_seed()
            fresh = torch.equal(state, torch.Generator().manual_seed(seed).get_state())
            self._seed, self._offset = (seed if fresh else self._draw()), 0
        self._draw()
        self._left = self._generator.get_state()
        return self._seed, self._offset

    def _draw(self) -> int:
        drawn = torch.empty((), dtype=torch.int64, device="cpu").random_(generator=self._generator)
        return int(drawn.item())

    def position(self) -> tuple[torch.Tensor, int, int, torch.Tensor | None]:
        return self._generator.get_state(), self._seed, self._offset, self._left

    def go_back(self, position: tuple[torch.Tensor, int, int, torch.Tensor | None]) -> None:
        state, self._seed, self._offset, self._left = position
        self._generator.set_state(state)


_STATES: OnceCache[torch.device, RandomStates] = OnceCache()


def random_states(device: torch.device) -> RandomStates:
    """Those of a device, one object a process; a GPU that is not there has the CPU's, as calls refuse it."""
    if device.type == "cuda" and (device.index or 0) < torch.cuda.device_count():
        index = torch.cuda.current_device() if device.index is None else device.index
        return _STATES.get(torch.device("cuda", index), lambda: CudaRandomStates(index))
    return _STATES.get(torch.device("cpu"), CpuRandomStates)
