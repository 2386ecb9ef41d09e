"""Statistics of a simulated launch, for tests and people."""

from __future__ import annotations

from dataclasses import dataclass, field

from fusewright.kernel.ir import Space


@dataclass
class Traffic:
    """Accesses to one memory space, summed over all threads; a vector access counts once."""

    loads: int = 0
    stores: int = 0
    bytes_loaded: int = 0
    bytes_stored: int = 0


@dataclass
class SimReport:
    """Totals of a launch.

    Attributes:
        traffic: of global and shared memory. The inner traffic of block and grid reductions is not counted.
        barriers: Barrier statements, summed over blocks.
        statements: statements executed by the simulator, each once for all lanes of a chunk of blocks.
    """

    blocks: int = 0
    traffic: dict[Space, Traffic] = field(
        default_factory=lambda: {Space.GLOBAL: Traffic(), Space.SHARED: Traffic()}
    )
    barriers: int = 0
    statements: int = 0

    @property
    def global_traffic(self) -> Traffic:
        return self.traffic[Space.GLOBAL]

    @property
    def shared_traffic(self) -> Traffic:
        return self.traffic[Space.SHARED]
