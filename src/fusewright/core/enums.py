"""The enumerations of the public interface.

They print like nvFuser's bound C++ enums: `str(ParallelType.block_x)` is `ParallelType.block_x`, `.value` is
an integer, and each class has a dict `__entries` from name to (member, doc).
"""

from __future__ import annotations

import enum
from typing import TypeVar

_E = TypeVar("_E", bound=type[enum.Enum])


class KeyEnum(enum.Enum):
    """An enumeration whose members are keys of frequently used dicts: hashing does not call Python code."""

    __hash__ = object.__hash__


def with_entries(cls: _E) -> _E:
    """Add the `__entries` dict that scripts read. (The name is not mangled: this is no class body.)"""
    setattr(cls, "__entries", {name: (member, None) for name, member in cls.__members__.items()})
    return cls


@with_entries
class ParallelType(KeyEnum):
    """How the iterations of an axis are executed.

    Attributes:
        ir_name: its form in printed IR, the second word of an axis.
    """

    mesh_x = "deviceIdx.x"
    mesh_y = "deviceIdx.y"
    mesh_z = "deviceIdx.z"
    grid_x = "blockIdx.x"
    grid_y = "blockIdx.y"
    grid_z = "blockIdx.z"
    block_x = "threadIdx.x"
    block_y = "threadIdx.y"
    block_z = "threadIdx.z"
    mma = "MMA"
    serial = "S"
    tma = "B"
    unroll = "UR"
    unswitch = "US"
    vectorize = "V"
    stream = "streamIdx"
    cluster_x = "clusterRank.x"

    ir_name: str
    is_block: bool
    is_grid: bool
    is_mesh: bool
    is_thread: bool

    def __new__(cls, ir_name: str) -> ParallelType:
        member = object.__new__(cls)
        member._value_ = len(cls.__members__)
        member.ir_name = ir_name
        # The threads of a block share the axis, the blocks of a grid (or of each cluster in it), either.
        # Plain attributes, since the lowering asks millions of times.
        member.is_block = ir_name.startswith("threadIdx")
        member.is_grid = ir_name.startswith(("blockIdx", "clusterRank"))
        member.is_mesh = ir_name.startswith("deviceIdx")
        member.is_thread = member.is_block or member.is_grid
        return member


@with_entries
class MemoryType(KeyEnum):
    """Where a tensor lives. The member `global`, a Python keyword, is also spelled `global_`."""

    local = 0
    shared = 1
    vars()["global"] = 2
    tensor = 3
    symmetric = 4
    global_ = 2

    @property
    def ir_letter(self) -> str:
        """The middle part of a tensor's printed name, as in `T0_g_float`."""
        return ("l", "s", "g", "t", "sym")[self.value]


@with_entries
class LoadStoreOpType(enum.Enum):
    """The instruction that moves a tensor: plain, ldmatrix, cp.async, or a bulk copy by the TMA unit."""

    set = 0
    load_matrix = 1
    cp_async = 2
    tma = 3


@with_entries
class CacheOp(KeyEnum):
    """The cache hint of a load: none, all levels (.ca), streaming (.cs), level two only (.cg), or evict_last,
    which keeps lines in the L2 cache longest.
    """

    unspecified = 0
    all_levels = 1
    streaming = 2
    vars()["global"] = 3
    global_ = 3
    evict_last = 4


@with_entries
class SchedulerType(enum.Enum):
    none = 0
    no_op = 1
    pointwise = 2
    matmul = 3
    reduction = 4
    inner_persistent = 5
    inner_outer_persistent = 6
    outer_persistent = 7
    transpose = 8
    expr_eval = 9
    resize = 10
    scan = 11
    inner_outer = 12


@with_entries
class CommunicatorBackend(enum.Enum):
    nccl = 0
    ucc = 1
    cuda = 2


@with_entries
class IdMappingMode(enum.Enum):
    """The relation by which an axis map identifies axes."""

    exact = 0
    almost_exact = 1
    broadcast = 2
    permissive = 3
    loop = 4


@with_entries
class MatmulTileRasterizationOrder(enum.Enum):
    column_major = 0
    row_major = 1


@with_entries
class MatmulTilingStrategy(enum.Enum):
    one_tile_per_cta = 0
    distribute_tiles_across_sms = 1
    distribute_stages_across_sms = 2


@with_entries
class MatmulBufferingLoopLevel(enum.Enum):
    cta_tiles = 0
    warp_tiles = 1


@with_entries
class MatmulCircularBufferingStrategy(enum.Enum):
    pipelined = 0
    warp_specialized = 1


@with_entries
class MmaMacroArch(enum.Enum):
    """The generation of matrix instruction."""

    no_mma = 0
    volta = 1
    turing = 2
    ampere = 3
    hopper = 4
    blackwell_1cta = 5
    blackwell_2cta = 6
