"""Checks that a kernel is well-formed.

`verify` runs after every lowering pass. It checks what the printer and the simulator assume: names and
scopes, the spaces and types of buffers, vector widths, and that no thread of a block misses a collective. The
simulator finds indices out of bounds and races between threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from fusewright.core.dtype import DataType
from fusewright.core.enums import CacheOp
from fusewright.core.errors import VerifyError
from fusewright.core.hardware import MAX_VECTOR_BYTES
from fusewright.core.op import ReductionOp
from fusewright.kernel import ir as k
from fusewright.kernel.access import (
    conditions,
    mbarrier_buffers,
    operands,
    read_buffers,
    scratch_buffers,
    written_buffers,
)
from fusewright.kernel.text import operand_text, statement_text
from fusewright.kernel.verify_reductions import RULES as REDUCTION_RULES
from fusewright.kernel.verify_waits import RULES as WAIT_RULES
from fusewright.sym import Expr, Symbol, as_expr, as_int, bounds, to_text

_THREAD_NAMES = frozenset(k.index_name(axis) for axis in k.THREAD_AXES)
_INDEX_NAMES = _THREAD_NAMES | {k.index_name(axis) for axis in k.BLOCK_AXES}


def verify(kernel: k.Kernel, after: str = "construction") -> None:
    """Raise VerifyError, naming the statement, unless `kernel` is well-formed.

    Args:
        after: the pass that made it, for the message.
    """
    Verifier(kernel, after).run()


class Verifier:
    """The state of one verification: the scopes at the current statement."""

    def __init__(self, kernel: k.Kernel, after: str) -> None:
        self.kernel = kernel
        self.after = after
        self.stmt: k.Stmt | None = None
        self.names: dict[str, object] = {}
        self.declared: list[str] = []  # names of the innermost scope
        self.buffers: set[k.Buffer] = set()
        self.symbols: set[Symbol] = set()
        self.varying: set[Symbol] = set()  # symbols that differ between the threads of a block
        self.scalars: set[k.ScalarParam] = set()
        self.divergent: Expr | None = None  # the enclosing condition that does
        self.loops: list[k.For] = []
        self.read: set[k.Buffer] = set()
        self.written: set[k.Buffer] = set()
        self.worked_in: set[k.Buffer] = set()  # as scratch memory of collectives
        self.workspaces: set[k.Buffer] = set()  # of those, what one block alone works in
        self.exchanges: dict[
            k.Buffer, tuple[object, ...]
        ] = {}  # axes and width of the reductions through each
        self.scattered: dict[k.Buffer, ReductionOp | None] = {}  # how elements of a buffer are changed
        self.mbarriers: set[k.Buffer] = set()  # those that have begun
        self.role: k.Role | None = None  # the one that the statement stands in
        self.has_roles = False
        self.depth = 0  # of the bodies around the statement

    def fail(self, problem: str) -> NoReturn:
        if self.stmt is not None:
            problem = f"{problem}, in `{statement_text(self.stmt)}`"
        raise VerifyError(level="kernel", after=self.after, problem=problem, node=self.stmt)

    def run(self) -> None:
        for param in self.kernel.params:
            self.named(param)
        if self.kernel.index_dtype not in (DataType.Int, DataType.Int32):
            self.fail(f"index arithmetic cannot be done in {self.kernel.index_dtype.name}")
        for expr in (*self.kernel.grid, *self.kernel.block, self.kernel.shared_bytes):
            unknown = expr.free_symbols - self.symbols
            if unknown:
                self.fail(f"the launch {to_text(expr)} depends on {_listed(unknown)}, no parameter")
        if self.kernel.cluster < 1:
            self.fail(f"clusters of {self.kernel.cluster} blocks")
        self.body(self.kernel.body)
        self.stmt = None
        for buffer in sorted(self.worked_in & (self.read | self.written), key=lambda b: b.name):
            self.fail(f"{buffer.name} is a collective's scratch memory, but other statements access it")
        for buffer in sorted(self.workspaces & self.exchanges.keys(), key=lambda b: b.name):
            self.fail(f"{buffer.name} is an exchange between blocks, and a workspace of one of them")
        for buffer in sorted(self.mbarriers & (self.read | self.written), key=lambda b: b.name):
            self.fail(f"{buffer.name} holds mbarriers, but other statements access it")
        for buffer in sorted(self.scattered.keys() & (self.read | self.written), key=lambda b: b.name):
            self.fail(f"{buffer.name} is scattered to, but other statements access it")
        for param in self.kernel.params:
            if isinstance(param, k.TensorParam) and param.is_output and param.buffer not in self.written:
                self.fail(f"nothing writes the output {param.buffer.name}")
            if isinstance(param, k.TensorParam) and param.is_updated != (param.buffer in self.scattered):
                verb = "is not" if param.is_updated else "is"
                self.fail(f"{param.buffer.name} {verb} scattered to, against what is said of the parameter")

    # ---- scopes ----------------------------------------------------------------------------------

    def declare(self, name: str, what: object) -> None:
        if name in self.names:
            self.fail(f"the name {name} is already in use")
        if name in _INDEX_NAMES:
            self.fail(f"the name {name} is CUDA's")
        self.names[name] = what
        self.declared.append(name)

    def named(self, param: k.Param) -> None:
        """Declares a parameter of the kernel, or a name in a Bind."""
        if isinstance(param, k.ScalarParam):
            self.declare(param.name, param)
            self.scalars.add(param)
            if param.symbol is not None:
                self.symbols.add(param.symbol)
                if param.symbol.name != param.name:
                    self.declare(param.symbol.name, param)
            return
        self.declare(param.buffer.name, param.buffer)
        self.buffers.add(param.buffer)
        if param.buffer.space is not k.Space.GLOBAL:
            self.fail(f"parameter {param.buffer.name} is in {param.buffer.space.value} memory")
        if isinstance(param, k.TensorParam) and param.buffer.dtype is not param.buffer.dtype.in_memory:
            self.fail(
                f"the tensor {param.buffer.name} holds {param.buffer.dtype.name}, "
                "whose width differs from kernel to kernel"
            )

    def stands_for(self, param: k.Param, name: k.Param) -> None:
        """Fails unless the parameter of the kernel is like the name that a Bind gives it."""
        if param not in self.kernel.params:
            self.fail(f"{k.param_name(param)} is not a parameter of the kernel")
        if isinstance(name, k.ScalarParam) and isinstance(param, k.ScalarParam):
            alike = name.dtype is param.dtype and (name.symbol is None) == (param.symbol is None)
            alike = alike and (name.divisor is None) == (param.divisor is None)
        elif isinstance(name, k.TensorParam) and isinstance(param, k.TensorParam):
            alike = name.buffer.dtype is param.buffer.dtype and name.is_output == param.is_output
            alike = alike and (name.is_home, name.is_updated) == (param.is_home, param.is_updated)
        else:
            alike = False
        if not alike:
            self.fail(f"{k.param_name(param)} cannot stand for {k.param_name(name)}")

    def define(self, symbol: Symbol, varies: bool) -> None:
        self.declare(symbol.name, symbol)
        self.symbols.add(symbol)
        if varies:
            self.varying.add(symbol)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A context whose declarations end with it."""
        outer, self.declared = self.declared, []
        divergent = self.divergent
        yield
        for name in self.declared:
            what = self.names.pop(name)
            if isinstance(what, k.ScalarParam):
                self.symbols.discard(what.symbol)
            for known in (self.buffers, self.symbols, self.varying, self.scalars):
                known.discard(what)
        self.declared, self.divergent = outer, divergent

    def body(self, body: Sequence[k.Stmt]) -> None:
        self.depth += 1
        for stmt in body:
            self.stmt = stmt
            self.uses(stmt)
            RULES[type(stmt)](self, stmt)
        self.depth -= 1

    # ---- rules for all statements ----------------------------------------------------------------

    def uses(self, stmt: k.Stmt) -> None:
        for expr in conditions(stmt):
            self.expression(expr)
        for operand in operands(stmt):
            if isinstance(operand, k.Ref):
                self.expression(operand.index)
            elif isinstance(operand, k.ScalarRef):
                self.scalar(operand.param)
            elif isinstance(operand, k.IndexValue):
                self.expression(operand.expr)
        read, written, scratch = read_buffers(stmt), written_buffers(stmt), scratch_buffers(stmt)
        for buffer in (*read, *written, *scratch, *mbarrier_buffers(stmt)):
            self.buffer(buffer)
        self.read.update(read)
        self.written.update(written if not isinstance(stmt, k.Scatter) else ())
        self.worked_in.update(scratch)

    def expression(self, expr: Expr) -> None:
        for symbol in expr.free_symbols - self.symbols:
            if symbol.name in _INDEX_NAMES:
                self.symbols.add(symbol)  # known everywhere
                continue
            if symbol.name in self.names:
                self.fail(f"{symbol.name} has other bounds here than where it is defined")
            self.fail(f"{symbol.name} is not defined here")

    def buffer(self, buffer: k.Buffer, space: k.Space | None = None) -> None:
        if buffer not in self.buffers:
            other = " (another buffer of that name is)" if buffer.name in self.names else ""
            self.fail(f"buffer {buffer.name} is not declared here{other}")
        if space is not None and buffer.space is not space:
            self.fail(f"buffer {buffer.name} is in {buffer.space.value} memory, not {space.value}")

    def scalar(self, param: k.ScalarParam) -> None:
        if param not in self.scalars:
            self.fail(f"{param.name} is not a parameter of the kernel")
        if param.symbol is not None:
            self.fail(f"{param.name} is an index quantity; use IndexValue for its value")

    def varies(self, expr: Expr) -> bool:
        """Whether the threads of a block may disagree about `expr`."""
        return any(s.name in _THREAD_NAMES or s in self.varying for s in expr.free_symbols)

    def predicate(self, cond: Expr) -> None:
        if not cond.is_boolean and bounds(cond) != (0, 1):
            self.fail(f"the condition {to_text(cond)} is not boolean")

    def collective(self) -> None:
        if self.divergent is not None:
            self.fail(f"not all threads arrive here: `{to_text(self.divergent)}` differs between them")

    def width(self, width: int) -> None:
        if width < 1 or width & (width - 1):
            self.fail(f"the width {width} is not a power of two")


def _listed(symbols: set[Symbol] | frozenset[Symbol]) -> str:
    return ", ".join(sorted(symbol.name for symbol in symbols))


# ---- statements ---------------------------------------------------------------------------------


def _alloc(v: Verifier, stmt: k.Alloc) -> None:
    buffer = stmt.buffer
    if buffer.space is k.Space.GLOBAL:
        v.fail(f"buffer {buffer.name} is global, so it must be a parameter")
    if buffer.space is k.Space.LOCAL and (as_int(buffer.size) or 0) < 1:
        v.fail(f"local buffer {buffer.name} has the size {to_text(buffer.size)}, not a positive constant")
    if buffer.offset is not None:
        if buffer.space is not k.Space.SHARED:
            v.fail(f"buffer {buffer.name} has an offset but is not in shared memory")
        v.expression(buffer.offset)
        if v.varies(buffer.offset):
            v.fail(f"the place of {buffer.name} differs between threads")
    v.declare(buffer.name, buffer)
    v.buffers.add(buffer)


def _let(v: Verifier, stmt: k.Let) -> None:
    v.define(stmt.symbol, v.varies(stmt.value))


def _let_value(v: Verifier, stmt: k.LetValue) -> None:
    dtype = k.operand_dtype(stmt.value)
    if not dtype.is_integral:
        v.fail(f"{operand_text(stmt.value)} is {dtype.name}, no integer")
    if isinstance(stmt.value, k.Ref):
        v.buffer(stmt.value.buffer, k.Space.LOCAL)
    if v.varies(stmt.extent):
        v.fail(f"the extent {to_text(stmt.extent)} differs between threads")
    v.predicate(stmt.pred)
    hi = stmt.symbol.hi
    if stmt.symbol.lo not in (-1, 0) or hi is None or as_expr(hi) is not stmt.extent - 1:
        v.fail(f"{stmt.symbol.name} is not declared to lie in [-1, {to_text(stmt.extent - 1)}]")
    v.define(stmt.symbol, varies=True)


def _let_misalignment(v: Verifier, stmt: k.LetMisalignment) -> None:
    v.buffer(stmt.buffer, k.Space.GLOBAL)
    v.width(stmt.width)
    if (stmt.symbol.lo, stmt.symbol.hi) != (0, stmt.width - 1):
        v.fail(f"{stmt.symbol.name} is not declared to lie in [0, {stmt.width - 1}]")
    v.define(stmt.symbol, varies=False)


def _for(v: Verifier, stmt: k.For) -> None:
    if v.varies(stmt.extent):
        v.fail(f"the extent {to_text(stmt.extent)} differs between threads")
    with v.scope():
        v.define(stmt.symbol, varies=False)
        v.loops.append(stmt)
        v.body(stmt.body)
        v.loops.pop()


def _if(v: Verifier, stmt: k.If) -> None:
    v.predicate(stmt.cond)
    with v.scope():
        if v.varies(stmt.cond):
            v.divergent = stmt.cond
        v.body(stmt.body)


def _bind(v: Verifier, stmt: k.Bind) -> None:
    for expr in (stmt.position, *stmt.starts):
        if v.varies(expr):
            v.fail(f"{to_text(expr)} differs between threads")
    if len(stmt.choices) != len(stmt.starts) + 1:
        v.fail(f"{len(stmt.choices)} choices for {len(stmt.starts)} starts")
    for choice in stmt.choices:
        if len(choice) != len(stmt.names):
            v.fail(f"{len(choice)} parameters for {len(stmt.names)} names")
        for name, param in zip(stmt.names, choice):
            v.stands_for(param, name)
    with v.scope():
        for name in stmt.names:
            v.named(name)
        v.body(stmt.body)
    for position, name in enumerate(stmt.names):
        if not isinstance(name, k.ScalarParam):
            chosen = [
                param.buffer for c in stmt.choices if not isinstance(param := c[position], k.ScalarParam)
            ]
            for accessed in (v.read, v.written):
                accessed.update(chosen if name.buffer in accessed else ())
            if name.buffer in v.scattered:
                v.scattered.update(dict.fromkeys(chosen, v.scattered[name.buffer]))


def _copy(v: Verifier, stmt: k.Copy) -> None:
    dtype, width, source = stmt.dst.buffer.dtype, stmt.width, stmt.src
    given = k.operand_dtype(source)
    if given is not dtype:
        v.fail(f"{operand_text(source)} is {given.name}, its destination {dtype.name}")
    v.width(width)
    v.predicate(stmt.pred)
    _fill(v, stmt)
    if not isinstance(source, k.Ref):
        if width != 1:
            v.fail("only elements of a buffer are copied in vectors")
        return
    if stmt.asynchronous:
        v.buffer(source.buffer, k.Space.GLOBAL)
        v.buffer(stmt.dst.buffer, k.Space.SHARED)
        if stmt.fill is not None or width * dtype.size not in k.ASYNC_BYTES:
            v.fail(f"a copy of {width * dtype.size} bytes, or with a fill, does not go on by itself")
        if stmt.cache is not CacheOp.unspecified:
            v.fail(f"a copy that goes on by itself with the hint {stmt.cache.name}")
    spaces = {stmt.dst.buffer.space, source.buffer.space}
    if spaces != {k.Space.LOCAL} and width > 1 and width * dtype.size > MAX_VECTOR_BYTES:
        v.fail(f"{width} elements of {dtype.name} are more than {MAX_VECTOR_BYTES} bytes")
    if stmt.cache is not CacheOp.unspecified and k.Space.GLOBAL not in spaces:
        v.fail("a cache hint without global memory")
    if stmt.covering is not None and (
        source.buffer.space is k.Space.LOCAL or stmt.dst.buffer.space is not k.Space.LOCAL
    ):
        v.fail("a covering vector is loaded from memory into registers")


def _window(v: Verifier, stmt: k.Window) -> None:
    if stmt.src.buffer.dtype is not stmt.dst.buffer.dtype:
        v.fail(f"{operand_text(stmt.src)} and {operand_text(stmt.dst)} have two types")
    for ref in (stmt.src, stmt.dst):
        v.buffer(ref.buffer, k.Space.LOCAL)
    v.width(stmt.width)
    low, high = bounds(stmt.offset)
    if low is None or low < 0 or high is None or high >= stmt.width:
        v.fail(f"the offset {to_text(stmt.offset)} is not known to lie in [0, {stmt.width - 1}]")


def _convert(v: Verifier, stmt: k.Convert) -> None:
    if stmt.src.buffer.dtype is not DataType.Float or stmt.dst.buffer.dtype not in k.PACKED_TYPES:
        v.fail(f"{stmt.src.buffer.dtype.name} is not converted to {stmt.dst.buffer.dtype.name} so")
    for ref in (stmt.src, stmt.dst):
        v.buffer(ref.buffer, k.Space.LOCAL)
    if stmt.width < 2 or stmt.width % 2:
        v.fail(f"{stmt.width} elements are no pairs")


def _scatter(v: Verifier, stmt: k.Scatter) -> None:
    buffer, width = stmt.dst.buffer, stmt.width
    given = k.operand_dtype(stmt.src)
    if given is not buffer.dtype:
        v.fail(f"{operand_text(stmt.src)} is {given.name}, its destination {buffer.dtype.name}")
    v.buffer(buffer, k.Space.GLOBAL)
    if isinstance(stmt.src, k.Ref):
        v.buffer(stmt.src.buffer, k.Space.LOCAL)
    elif width > 1:
        v.fail("only elements of a buffer are scattered in vectors")
    v.width(width)
    if width > 1 and width * buffer.dtype.size > MAX_VECTOR_BYTES:
        v.fail(f"{width} elements of {buffer.dtype.name} are more than {MAX_VECTOR_BYTES} bytes")
    v.predicate(stmt.pred)
    if stmt.op is not None and buffer.dtype not in stmt.op.atomic:
        v.fail(f"{stmt.op.name} of {buffer.dtype.name} is not done at once")
    if v.scattered.setdefault(buffer, stmt.op) is not stmt.op:
        v.fail(f"{buffer.name} is scattered to in another way, too")


def _fill(v: Verifier, stmt: k.Copy) -> None:
    fill = stmt.fill
    if fill is None:
        if stmt.fill_is_value:
            v.fail("a value of the program fills, but there is no fill")
        return
    if stmt.pred is k.TRUE:
        v.fail("a fill without a predicate")
    given = k.operand_dtype(fill)
    if given is not stmt.dst.buffer.dtype:
        v.fail(f"the fill {operand_text(fill)} is {given.name}, its destination {stmt.dst.buffer.dtype.name}")
    if isinstance(fill, k.Ref):
        v.buffer(fill.buffer, k.Space.LOCAL)


def _compute(v: Verifier, stmt: k.Compute) -> None:
    op, dtype = stmt.op, stmt.dtype
    if len(stmt.args) != op.arity:
        v.fail(f"{op.name} takes {op.arity} operands, not {len(stmt.args)}")
    if dtype is not dtype.compute:
        v.fail(f"nothing is computed in {dtype.name}")
    if dtype is DataType.Null or dtype.category not in op.supports:
        v.fail(f"{op.name} is not defined for {dtype.name}")


def _hold(v: Verifier, stmt: k.Hold) -> None:
    v.buffer(stmt.buffer, k.Space.LOCAL)


def _issue_loads(v: Verifier, stmt: k.IssueLoads) -> None:
    """No rules."""


RULES: dict[type[k.Stmt], Callable[[Verifier, Any], None]] = {
    k.Alloc: _alloc,
    k.Let: _let,
    k.LetValue: _let_value,
    k.LetMisalignment: _let_misalignment,
    k.For: _for,
    k.If: _if,
    k.Bind: _bind,
    k.Copy: _copy,
    k.Window: _window,
    k.Convert: _convert,
    k.Scatter: _scatter,
    k.Compute: _compute,
    k.Hold: _hold,
    k.IssueLoads: _issue_loads,
    **REDUCTION_RULES,
    **WAIT_RULES,
}
