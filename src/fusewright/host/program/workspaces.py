"""Scratch memory that is zeroed once, such as semaphores.

Each launch leaves it in the state that the next launch needs.
"""

from __future__ import annotations

import torch


class ZeroedWorkspace:
    """One zeroed buffer for each stream. Launches on one stream follow one another, so they can share it.

    The simulator runs launches immediately in the calling thread; there, a thread's number takes the place of
    a stream.
    """

    def __init__(self, count: int, dtype: torch.dtype, device: torch.device) -> None:
        self._count = count
        self._dtype = dtype
        self._device = device
        self._buffers: dict[int, torch.Tensor] = {}

    def __call__(self, stream: int) -> torch.Tensor:
        buffer = self._buffers.get(stream)
        if buffer is None:
            buffer = torch.zeros(self._count, dtype=self._dtype, device=self._device)
            # Memory that is allocated while a CUDA graph is captured belongs to the graph.
            if self._device.type != "cuda" or not torch.cuda.is_current_stream_capturing():
                self._buffers[stream] = buffer
        return buffer
