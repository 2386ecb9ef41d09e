"""The partitions of one fusion, for each set of outputs that kernels compute and each input layout."""

from __future__ import annotations

from collections.abc import Hashable

from fusewright.core.once import OnceCache
from fusewright.ir import Fusion, TensorView
from fusewright.schedulers import Registry
from fusewright.segment import InputLayout, Partitions

# The most partitions that are kept for one fusion.
MAX_PARTITIONS = 64


class KeptPartitions:
    """Makes the partitions of one fusion on demand and keeps them."""

    def __init__(self, fusion: Fusion, registry: Registry) -> None:
        self._fusion = fusion
        self._registry = registry
        self._made: OnceCache[Hashable, Partitions] = OnceCache(MAX_PARTITIONS)

    def without(self, outputs: frozenset[TensorView], layouts: tuple[InputLayout, ...] = ()) -> Partitions:
        """The partitions of the fusion without these outputs, for these layouts of inputs."""

        def make() -> Partitions:
            kept = [o for o in self._fusion.outputs if o.tensor not in outputs]
            fusion = self._fusion.with_outputs(kept) if outputs else self._fusion
            return Partitions(fusion, self._registry, layouts)

        return self._made.get((outputs, layouts), make)
