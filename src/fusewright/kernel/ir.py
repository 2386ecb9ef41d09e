"""The nodes of the kernel IR.

A kernel is a tree of statements executed by every thread of a grid. Integers that address memory,
bound loops or guard statements are `sym.Expr`; values that the user computes are operands of
`Compute`, `Combine` and friends, held in buffers. Nothing here is mutable: a pass builds a new tree.

Conventions
- One `Buffer` is one linear array; `Ref(buffer, index)` is an element, index in elements.
- A local buffer is private to a thread, a shared one to a block, a global one to the grid.
- Buffers, operands and parameters are in operands.py.
- What threads reduce and scan together, and their barriers, are in collectives.py.
- Copies in flight, what waits for them, and roles of threads are in waits.py.
- `threadIdx.x`, `blockIdx.y`, ... are symbols named so (`index_symbol`).
- A condition is an `Expr` with value 0 or 1; `TRUE` guards nothing.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fusewright.core.dtype import DataType
from fusewright.core.enums import CacheOp, ParallelType
from fusewright.core.hardware import ASYNC_BYTES as ASYNC_BYTES
from fusewright.core.op import ElementwiseOp, ReductionOp, Spelling
from fusewright.kernel.collectives import Barrier as Barrier
from fusewright.kernel.collectives import BlockReduce as BlockReduce
from fusewright.kernel.collectives import BlockScan as BlockScan
from fusewright.kernel.collectives import ClusterReduce as ClusterReduce
from fusewright.kernel.collectives import GridBarrier as GridBarrier
from fusewright.kernel.collectives import GridReduce as GridReduce
from fusewright.kernel.collectives import GridReduces as GridReduces
from fusewright.kernel.collectives import GridScan as GridScan
from fusewright.kernel.operands import Buffer as Buffer
from fusewright.kernel.operands import Imm as Imm
from fusewright.kernel.operands import IndexValue as IndexValue
from fusewright.kernel.operands import Operand as Operand
from fusewright.kernel.operands import Param as Param
from fusewright.kernel.operands import Ref as Ref
from fusewright.kernel.operands import ScalarParam as ScalarParam
from fusewright.kernel.operands import ScalarRef as ScalarRef
from fusewright.kernel.operands import Space as Space
from fusewright.kernel.operands import TensorParam as TensorParam
from fusewright.kernel.operands import WorkspaceParam as WorkspaceParam
from fusewright.kernel.operands import multiplier as multiplier
from fusewright.kernel.operands import operand_dtype as operand_dtype
from fusewright.kernel.operands import param_name as param_name
from fusewright.kernel.waits import Arrive as Arrive
from fusewright.kernel.waits import BulkCopy as BulkCopy
from fusewright.kernel.waits import InitMbarriers as InitMbarriers
from fusewright.kernel.waits import ProxyFence as ProxyFence
from fusewright.kernel.waits import Ring as Ring
from fusewright.kernel.waits import Role as Role
from fusewright.kernel.waits import Roles as Roles
from fusewright.kernel.waits import Wait as Wait
from fusewright.kernel.waits import WaitForCopies as WaitForCopies
from fusewright.sym import TRUE as TRUE
from fusewright.sym import Expr, Symbol, symbol

THREAD_AXES = (ParallelType.block_x, ParallelType.block_y, ParallelType.block_z)
BLOCK_AXES = (ParallelType.grid_x, ParallelType.grid_y, ParallelType.grid_z)
_INDEX_NAME = dict(
    zip(
        THREAD_AXES + BLOCK_AXES,
        ("threadIdx.x", "threadIdx.y", "threadIdx.z", "blockIdx.x", "blockIdx.y", "blockIdx.z"),
    )
)
#: The names of a block's position in its cluster, and of the cluster's position along x. They are not
#: built-ins: a kernel with clusters defines them.
CLUSTER_RANK, CLUSTER_INDEX = "clusterRank.x", "clusterIdx.x"


def index_name(axis: ParallelType) -> str:
    """The CUDA built-in that holds a thread's position along `axis`, e.g. 'threadIdx.x'."""
    return _INDEX_NAME[axis]


def index_symbol(axis: ParallelType, extent: Expr) -> Symbol:
    """The symbol of that built-in, known to lie in [0, extent - 1]."""
    return symbol(_INDEX_NAME[axis], lo=0, hi=extent - 1)


# ---- statements -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Alloc:
    """Declares a local or shared buffer for the statements that follow in this body."""

    buffer: Buffer


@dataclass(frozen=True, slots=True, eq=False)
class Let:
    """Names an index expression for the statements that follow in this body."""

    symbol: Symbol
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class LetValue:
    """Names a loaded integer as an index for the following statements in this body.

    The index is `value` if that is in [0, extent - 1] and `pred` is 1, else -1. So no value, however large or
    negative, wraps around to another index when it is converted to the index type, and an access by it needs
    the predicate 0 <= symbol. The symbol differs between threads; it is declared as `symbol(name, lo=-1,
    hi=extent - 1)`. `value` is an integer in a register, a constant, a scalar or an index; it is read only if
    `pred` is 1. A symbol with lo=0 states that the value is known to be in range if `pred` is 1, so nothing
    is compared.

    Attributes:
        strict: whether a value out of range is a mistake of the program, which the simulator reports; a GPU
            drops the access.
    """

    symbol: Symbol
    value: Operand
    extent: Expr
    pred: Expr = TRUE
    strict: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class LetMisalignment:
    """Names the number of elements by which the address of a global `buffer` exceeds a multiple of `width`.

    The symbol is declared as `symbol(name, lo=0, hi=width - 1)`.
    """

    symbol: Symbol
    buffer: Buffer
    width: int


@dataclass(frozen=True, slots=True, eq=False)
class For:
    """Runs `body` with `symbol` = 0, 1, ... extent-1; `extent` is the same in all threads of the block."""

    symbol: Symbol
    extent: Expr
    body: tuple[Stmt, ...]
    unroll: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class If:
    """Runs `body` in the threads where `cond` is 1."""

    cond: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Bind:
    """Runs `body` with `names` bound to the parameters `choices[i]`, one for one.

    i is the number of `starts`, which ascend, that are at most `position`; it is the same in all threads of
    the block. A name looks like a parameter, but only the choices are parameters of the kernel, of the same
    kind and type as the name. There is one more choice than starts.
    """

    position: Expr
    starts: tuple[Expr, ...]
    names: tuple[Param, ...]
    choices: tuple[tuple[Param, ...], ...]
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Covering:
    """The needed elements of a vector: the lanes for which the condition holds."""

    lane: Symbol
    wanted: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """dst[index + k] = src[index + k] if pred else fill, for k < width.

    It is one vector access if a side is not local. With width > 1 and a side in global or shared memory, that
    side's index is a multiple of `width` and its buffer is aligned to width * dtype size bytes. A source that
    is not a Ref is stored unchanged (width 1). dtypes are equal: a cast is a Compute.

    If `pred` is 0, the source is not accessed, whatever its index and pointer; its index is still computed.
    Every element of dst then becomes `fill`, which is a constant, a scalar or one element of a register.
    Without a fill, dst does not change.

    Attributes:
        fill_is_value: whether the fill is a value of the program, like a pad's. Otherwise a fill is
            meaningless and must not reach a result.
        asynchronous: the copy runs asynchronously, from global to shared memory. The thread that started it
            sees the data after a `WaitForCopies`. Such a copy has no fill, no cache hint, and ASYNC_BYTES
            bytes.
        covering: the load reads an aligned vector for some of its elements. Its address, rather than its
            index and pointer, is then a multiple of the vector's size. All other elements are meaningless,
            like a fill, and so are elements that the buffer has between the tensor's own.
    """

    dst: Ref
    src: Operand
    width: int = 1
    cache: CacheOp = CacheOp.unspecified
    pred: Expr = TRUE
    fill: Operand | None = None
    fill_is_value: bool = False
    covering: Covering | None = None
    asynchronous: bool = False

    def started(self) -> Copy:
        """The asynchronous copy that replaces this one.

        It has no cache hint because of a bug in the assembler of CUDA 13.0. If the address in shared memory
        is in uniform registers, a copy with a policy of the L2 cache (cp.async, L2::cache_hint) reads
        registers that nothing has set, and the GPU refuses the instruction: `LDGSTS.E.BYPASS.128 [R13+UR0],
        desc[UR1][R8.64]`.
        """
        return dataclasses.replace(self, cache=CacheOp.unspecified, asynchronous=True)


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """dst[index + k] = src[index + offset + k] for k < width, both in registers.

    `offset`, which may differ between threads, is in [0, width - 1]; src has 2 * width elements from its
    index on.
    """

    dst: Ref
    src: Ref
    offset: Expr
    width: int


@dataclass(frozen=True, slots=True, eq=False)
class Convert:
    """dst[index + k] = src[index + k] converted to dst's type, for k < width, both in registers.

    It converts Float to one of `PACKED_TYPES`, for which the GPU converts two elements at a time.
    """

    dst: Ref
    src: Ref
    width: int


@dataclass(frozen=True, slots=True, eq=False)
class Scatter:
    """Changes elements in global memory that other threads may change in the same way at the same time.

    dst[index + k] = src[index + k], or with `op` combine(dst[index + k], src[index + k]), for k < width,
    where `pred` is 1. Without `op` an element keeps the value that one of the threads stored. With `op` each
    thread's value is combined atomically, in any order; `op` has one state, and the type is one of its
    `atomic` ones. `src` is in registers if it is a Ref, and dst is as in a Copy. Nothing else accesses a
    buffer that is changed this way, and all statements that change it have the same `op`.
    """

    dst: Ref
    src: Operand
    op: ReductionOp | None = None
    width: int = 1
    pred: Expr = TRUE


@dataclass(frozen=True, slots=True, eq=False)
class Compute:
    """dst = op(args): operands are converted to `dtype`, the result to dst's dtype.

    `dtype` is the type that arithmetic is done in (`DataType.compute`, never a reduced float);
    casts are a Compute of the cast row. `precise`: by the row's precise spelling.
    """

    op: ElementwiseOp
    dst: Ref
    args: tuple[Operand, ...]
    dtype: DataType
    precise: bool = False

    @property
    def spelling(self) -> Spelling:
        return self.op.precise_spelling(self.dtype) if self.precise else self.op.spelling(self.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Init:
    """Sets accumulators to the identity of `op`: dst[s][index + k] for state s and k < width."""

    op: ReductionOp
    dst: tuple[Ref, ...]
    width: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Combine:
    """dst = combine(dst, src) within a thread, one Ref per state of `op`.

    `src` has one operand per state, or a single input value that `op` lifts to its states. With width > 1 it
    is one Ref, and the elements index .. index+width-1 of a local buffer are combined as a run: of the type
    that `op` reduces, or one of `PACKED_OPERANDS` instead of Float. If `pred` is 0, dst does not change, and
    a source in memory is not accessed. `in_order`: the last state is a position, and that of `src` is not
    less than that of `dst`; the simulator checks this.
    """

    op: ReductionOp
    dst: tuple[Ref, ...]
    src: tuple[Operand, ...]
    width: int = 1
    pred: Expr = TRUE
    in_order: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Hold:
    """Makes the CUDA compiler regard the registers of `buffer` as new values. No value changes.

    Values that were computed from them before are recomputed afterwards, so the compiler does not hold these
    in registers as well.
    """

    buffer: Buffer


@dataclass(frozen=True, slots=True, eq=False)
class IssueLoads:
    """Issues all previous loads before a thread waits for one of them in a later statement.

    No value changes.
    """


Stmt = (
    Alloc
    | Let
    | LetValue
    | LetMisalignment
    | For
    | If
    | Bind
    | Copy
    | Window
    | Convert
    | Scatter
    | Compute
    | Init
    | Combine
    | BlockReduce
    | ClusterReduce
    | BlockScan
    | GridReduce
    | GridScan
    | GridReduces
    | GridBarrier
    | Barrier
    | Hold
    | IssueLoads
    | InitMbarriers
    | BulkCopy
    | Arrive
    | ProxyFence
    | Wait
    | WaitForCopies
    | Roles
    | Role
)

#: Types of which `Combine` takes runs without widening, if the result is one of the elements.
PACKED_OPERANDS = frozenset({DataType.Half, DataType.BFloat16})
#: The types to which `Convert` converts.
PACKED_TYPES = frozenset({DataType.Float8_e4m3fn, DataType.BFloat16, DataType.Half})
#: The classes of statements that all threads of a block arrive at.
COLLECTIVES = (Barrier, BlockReduce, ClusterReduce, BlockScan, GridReduce, GridScan, GridBarrier)
#: The classes of statements that have a body.
NESTING = (For, If, Bind, GridReduces, Roles, Role)


# ---- the kernel -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """The pointer of `buffer` must be a multiple of `bytes`."""

    buffer: Buffer
    bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """A whole kernel.

    Attributes:
        grid, block: extents along x, y, z as expressions over its size symbols.
        cluster: the number of blocks along x that form a cluster, which divides the grid: they are on the GPU
            at the same time and reach each other's shared memory.
        shared_bytes: the size of the block's shared arena.
        index_dtype: the type of index arithmetic (Int32 or Int).
        max_threads: the bound on the block for __launch_bounds__ (0: unknown).
        max_registers: the register limit per thread (0: as many as `max_threads` allow).
        rings: rings that are not filled yet.
    """

    name: str
    params: tuple[Param, ...]
    body: tuple[Stmt, ...]
    grid: tuple[Expr, Expr, Expr]
    block: tuple[Expr, Expr, Expr]
    shared_bytes: Expr
    index_dtype: DataType = DataType.Int
    max_threads: int = 0
    alignments: tuple[Alignment, ...] = ()
    max_registers: int = 0
    cluster: int = 1
    rings: tuple[Ring, ...] = ()


#: The classes that contain statements.
BodyT = TypeVar("BodyT", bound=For | If | Bind | GridReduces | Roles | Role | Kernel)


def reduced_dtype(op: ReductionOp, states: Sequence[DataType]) -> DataType | None:
    """The input type for which `op` has states of these types; None if there is none."""
    # Nearly always the first state has it (a sum, a maximum, a mean).
    for dtype in (states[0], *(d for d in DataType if d is not DataType.Null)):
        if dtype.category in op.supports and op.state_dtypes(dtype) == tuple(states):
            return dtype
    return None


def children(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements nested directly in `stmt`."""
    return stmt.body if isinstance(stmt, NESTING) else ()


def with_children(stmt: Stmt, change: Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]]) -> Stmt:
    """The statement with `change` applied to the statements nested directly in it, if there are any."""
    return with_body(stmt, change(stmt.body)) if isinstance(stmt, NESTING) else stmt


def rewritten(body: tuple[Stmt, ...], change: Callable[[Stmt], Sequence[Stmt]]) -> tuple[Stmt, ...]:
    """`body` with each statement, nested statements first, replaced by the result of `change`."""
    result: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, NESTING):
            stmt = with_body(stmt, rewritten(stmt.body, change))
        result += change(stmt)
    return body_of(body, result)


def with_body(outer: BodyT, body: tuple[Stmt, ...]) -> BodyT:
    """`outer` with other statements in it; the same object if the statements are the same."""
    # `verify` checks that the body of Roles is roles, and that of GridReduces grid reductions.
    return outer if body is outer.body else dataclasses.replace(outer, body=body)  # type: ignore[arg-type]


def body_of(before: tuple[Stmt, ...], after: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """The statements `after` as a body, which is `before` itself if they are the same objects.

    So a pass that has nothing to do returns the kernel that it was given.
    """
    same = len(before) == len(after) and all(map(operator.is_, before, after))
    return before if same else tuple(after)


def is_cooperative(kernel: Kernel) -> bool:
    """Whether blocks wait for each other, so that all of a launch have to be resident at once."""
    return any(
        isinstance(stmt, (GridBarrier, GridScan)) or (isinstance(stmt, GridReduce) and stmt.is_last is None)
        for stmt in walk(kernel.body)
    )


def spares_registers(kernel: Kernel) -> bool:
    """Whether operations are spelled so that they use few registers (`Spelling.sparing`).

    They are if threads have a register limit and hold results while blocks wait for each other. A limit may
    be set after lowering (`CompiledKernel.with_register_limit`), so no pass can decide this.
    """
    return kernel.max_registers > 0 and is_cooperative(kernel)


def walk(body: Iterable[Stmt]) -> Iterator[Stmt]:
    """All statements of `body`, outer before inner, in program order."""
    for stmt in body:
        yield stmt
        yield from walk(children(stmt))
