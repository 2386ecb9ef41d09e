"""The partitions of one fusion, for each set of outputs that kernels compute and each input layout."""

from __future__ import annotations

from collections.abc import Hashable

from fusewright.core.once import OnceCache
from fusewright.ir import Fusion, TensorView
from fusewright.schedulers import Registry
from fusewright.segment import InputLayout, Partitions

# As many are kept of a fusion.
MAX_PARTITIONS = 64


class KeptPartitions:
    """Made on demand, each once."""

    def __init__(self, fusion: Fusion, registry: Registry) -> None:
        self._fusion = fusion
        self._registry = registry
        self._made: OnceCache[Hashable, Partitions] = OnceCache(MAX_PARTITIONS)

    def without(self, outputs: frozenset[TensorView], layouts: tuple[InputLayout, ...] = ()) -> Partitions:
        """Of what is left for kernels when these outputs are computed otherwise, for inputs that lie so."""

        def make() -> Partitions:
            kept = [o for o in self._fusion.outputs if o.tensor not in outputs]
            fusion = self._fusion.with_outputs(kept) if outputs else self._fusion
            return Partitions(fusion, self._registry, layouts)

        return self._made.get((outputs, layouts), make)
