"""Values of a fusion: tensors with their domains, and scalars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fusewright.core.dtype import DataType
from fusewright.core.enums import MemoryType, ParallelType
from fusewright.ir.axis import IterDomain, IterKind
from fusewright.sym import Expr

if TYPE_CHECKING:
    from fusewright.ir.node import Node

Number = bool | int | float | complex


@dataclass(frozen=True, slots=True)
class Storage:
    """The order of elements in shared memory, if it differs from that of the loops.

    Attributes:
        axes: outermost first; separate transforms make them from the tensor's logical axes.
        padding: unused elements after each point of the outermost axis.
    """

    axes: tuple[IterDomain, ...]
    padding: int


@dataclass(frozen=True, slots=True)
class CircularBuffer:
    """How bulk copies fill a tensor in shared memory ahead of its readers.

    Attributes:
        stages: the number of stages that it has room for. A stage is everything inside the loops left of
            `position`, which count the stages.
        prefetch: the number of stages that are filled ahead of the one that is read.
        parallel: the axis of the block along which a separate warp fills them; None: a thread of the block
            does.
        registers: per thread of the warps that fill, and of those that compute; None: unchanged.
    """

    stages: int
    prefetch: int
    position: int
    parallel: ParallelType | None = None
    registers: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class HeldPart:
    """A tensor in shared memory that holds only the first `steps` iterations of the loop at `position`."""

    position: int
    steps: int


class TensorView:
    """A tensor, its loops and its storage.

    Attributes:
        prefetched: whether it is loaded an iteration ahead of the loop that it is inlined into.
        root: the axes that its definition produces, if a transform (rfactor) made others logical; else None.
        logical: its dimensions, reduced ones included.
        maybe_root: the axes that its definition produces.
        shape: the logical axes that consumers see, without the reduced ones.
        label: its name; None: its number is the name (`ir.naming`).
        loop: the axes that its computation loops over, made from logical by transforms.
        allocation: the order of logical axes in memory, outermost first (of a tensor in global memory).
        contiguity: one entry per allocation axis that is not a reduction: True if its stride is the product
            of the extents inside it, None for a broadcast.
        storage: the order of its elements in shared memory; None: that of the loops.
        circular: how it is filled ahead of its readers; None: it is filled at the position of its loops.
        part: the iterations for which it is computed and held; None: all.
        inline_at: the number of outer loops that it shares with its consumers (nvFuser's compute-at
            position).
        everywhere: for a reduction across blocks, whether the blocks wait for each other and all get the
            result; else only the last block has it.
        is_cpu: whether it is a rank-0 tensor in host memory.
        unaligned: whether its vectors, loaded from global memory, may start at any element.
    """

    __slots__ = (
        "number",
        "label",
        "dtype",
        "memory",
        "prefetched",
        "root",
        "logical",
        "maybe_root",
        "shape",
        "loop",
        "allocation",
        "contiguity",
        "storage",
        "circular",
        "part",
        "inline_at",
        "everywhere",
        "is_cpu",
        "unaligned",
        "definition",
        "uses",
    )

    def __init__(
        self,
        number: int,
        dtype: DataType,
        logical: Sequence[IterDomain],
        *,
        root: Sequence[IterDomain] | None = None,
        memory: MemoryType = MemoryType.local,
        allocation: Sequence[IterDomain] | None = None,
        contiguity: Sequence[bool | None] | None = None,
        is_cpu: bool = False,
        label: str | None = None,
    ) -> None:
        self.number = number
        self.label = label
        self.dtype = dtype
        self.memory = memory
        self.prefetched = False
        self.redefine(logical, root)
        self.loop: list[IterDomain] = list(logical)
        self.allocation = tuple(allocation) if allocation is not None else self.logical
        self.contiguity = (
            tuple(contiguity)
            if contiguity is not None
            else tuple(None if a.is_broadcast else True for a in self.allocation if not a.is_reduction)
        )
        self.storage: Storage | None = None
        self.circular: CircularBuffer | None = None
        self.part: HeldPart | None = None
        self.inline_at = 0
        self.everywhere = False
        self.is_cpu = is_cpu
        self.unaligned = False
        self.definition: Node | None = None
        self.uses: list[Node] = []

    def redefine(self, logical: Sequence[IterDomain], root: Sequence[IterDomain] | None = None) -> None:
        """Gives it other dimensions, and other axes that its definition produces; None: these dimensions."""
        self.logical = tuple(logical)
        self.root = tuple(root) if root is not None else None
        self.maybe_root = self.logical if self.root is None else self.root
        self.shape = tuple([axis for axis in self.logical if axis.kind is not IterKind.REDUCTION])

    # ---- queries

    @property
    def name(self) -> str:
        return self.label or f"T{self.number}"

    @property
    def is_placed(self) -> bool:
        """Whether a store puts its elements in other places than it iterates over (`node.Stored`)."""
        return self.definition is not None and self.definition.traits.placed

    @property
    def iterated(self) -> tuple[IterDomain, ...]:
        """The dimensions that it is computed along: of a tensor that is stored by index, its source's."""
        return self.maybe_root if self.is_placed else self.shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def extents(self) -> tuple[Expr, ...]:
        """Visible sizes, one a dimension."""
        return tuple(axis.visible_extent for axis in self.shape)

    @property
    def is_reduction(self) -> bool:
        """Whether computing it reduces an axis."""
        return IterKind.REDUCTION in [axis.kind for axis in self.maybe_root]

    @property
    def reduced(self) -> int:
        """How many elements each of its elements is reduced from (`Node.reduced`); 0 of an input."""
        return 0 if self.definition is None else self.definition.reduced or 0

    @property
    def memory_axes(self) -> list[IterDomain]:
        """The dimensions that `contiguity` speaks of, outermost in memory first."""
        return [axis for axis in self.allocation if not axis.is_reduction]

    @property
    def memory_dims(self) -> list[int]:
        """The positions of the dimensions, outermost in memory first."""
        place = {axis: dim for dim, axis in enumerate(self.shape)}
        return [place[axis] for axis in self.memory_axes]

    @property
    def is_row_major(self) -> bool:
        """Whether its dimensions are in memory in order; there may be gaps."""
        return self.allocation == self.logical or self.memory_axes == list(self.shape)

    @property
    def is_expanded(self) -> bool:
        """Whether it shows copies of elements along a dimension."""
        return any(axis.expanded is not None for axis in self.shape)

    def lie_as(self, other: TensorView) -> None:
        """Lies in memory as `other`, which has as many dimensions."""
        position = {axis: i for i, axis in enumerate(other.shape)}
        self.allocation = tuple([self.shape[position[axis]] for axis in other.memory_axes])

    @property
    def siblings(self) -> list[TensorView]:
        """The outputs of the node that computes this tensor, itself among them: Welford has three."""
        return [self] if self.definition is None else self.definition.tensor_outputs

    @property
    def consumers(self) -> list[TensorView]:
        """Tensors computed directly from this one, in order, each once."""
        if len(self.uses) == 1:
            return self.uses[0].tensor_outputs
        return list(dict.fromkeys(out for node in self.uses for out in node.tensor_outputs))

    @property
    def producers(self) -> list[TensorView]:
        """Tensors that this one is computed from, in operand order, each once."""
        if self.definition is None:
            return []
        return list(dict.fromkeys(v for v in self.definition.inputs if isinstance(v, TensorView)))

    def __str__(self) -> str:
        axes = ", ".join(map(str, self.loop))
        inline = f" ca_pos( {self.inline_at} )" if self.inline_at else ""
        inside = max((p.inline_at for p in self.producers), default=0)
        inline += f" produce_pos( {inside} )" if inside else ""
        return f"{self.name}_{self.memory.ir_letter}_{self.dtype.ir_name}[{axes}]{inline}"

    __repr__ = __str__


class Scalar:
    """A number that the host knows before a launch: an input, a constant, a size, or computed from scalars.

    `extent` is set if the scalar can be a size: it is a constant, the size of a dimension, or the symbol of
    its value. Kernels receive scalars by value and never compute them.
    """

    __slots__ = ("name", "dtype", "value", "extent", "definition", "uses")

    def __init__(
        self, name: str, dtype: DataType, value: Number | None = None, extent: Expr | None = None
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.value = value
        self.extent = extent
        self.definition: Node | None = None
        self.uses: list[Node] = []

    @property
    def is_constant(self) -> bool:
        return self.value is not None

    def __str__(self) -> str:
        if self.value is not None:
            return str(self.value)
        is_size = self.extent is not None and self.definition is None
        return str(self.extent) if is_size else self.name

    __repr__ = __str__


Val = TensorView | Scalar
