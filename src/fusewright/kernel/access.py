"""The accesses of a statement: index expressions, defined symbols, and buffers that it reads and writes.

One table has a row for each statement class, so passes need no case analysis. Functions of a single statement
do not consider nested statements.
"""

from __future__ import annotations

import dataclasses
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fusewright.core.once import cached_property
from fusewright.kernel import ir as k
from fusewright.sym import Expr, Symbol, as_int, bounds


@dataclass(frozen=True)
class Fields:
    """The names of a statement's fields, by their role.

    Attributes:
        reads, writes: operands, or whole buffers, that the statement loads from and stores to.
        scratch: buffers that hold values only while it runs. It orders accesses to them itself.
        mbarriers: mbarriers that it waits for, or in whose phases it takes part.
        conditions: expressions outside operands, or tuples of them.
        defines: the symbol that it defines.
        declares: the buffer that it declares.
    """

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    scratch: tuple[str, ...] = ()
    mbarriers: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    defines: str | None = None
    declares: str | None = None

    @cached_property
    def accessed(self) -> tuple[str, ...]:
        """The fields of all operands and buffers whose elements it accesses, without repetition."""
        return tuple(dict.fromkeys((*self.reads, *self.writes, *self.mbarriers)))


FIELDS: dict[type[k.Stmt], Fields] = {
    k.Alloc: Fields(declares="buffer"),
    k.Let: Fields(conditions=("value",), defines="symbol"),
    k.LetValue: Fields(reads=("value",), conditions=("extent", "pred"), defines="symbol"),
    k.LetMisalignment: Fields(reads=("buffer",), defines="symbol"),
    k.For: Fields(conditions=("extent",), defines="symbol"),
    k.If: Fields(conditions=("cond",)),
    k.Bind: Fields(conditions=("position", "starts")),
    k.Copy: Fields(reads=("src", "fill"), writes=("dst",), conditions=("pred",)),
    k.Window: Fields(reads=("src",), writes=("dst",), conditions=("offset",)),
    k.Convert: Fields(reads=("src",), writes=("dst",)),
    k.Scatter: Fields(reads=("src",), writes=("dst",), conditions=("pred",)),
    k.Compute: Fields(reads=("args",), writes=("dst",)),
    k.Init: Fields(writes=("dst",)),
    k.Combine: Fields(reads=("src", "dst"), writes=("dst",), conditions=("pred",)),
    k.BlockReduce: Fields(
        reads=("src", "dst"), writes=("dst",), scratch=("workspace",), conditions=("pred",)
    ),
    k.ClusterReduce: Fields(
        reads=("src", "dst"), writes=("dst",), scratch=("workspace", "exchange"), conditions=("pred",)
    ),
    k.BlockScan: Fields(reads=("src", "carry"), writes=("dst", "carry"), scratch=("workspace",)),
    k.GridReduce: Fields(
        reads=("src", "dst"),
        writes=("dst",),
        scratch=("workspace", "exchange"),
        conditions=("pred",),
        defines="is_last",
    ),
    k.GridScan: Fields(reads=("src", "carry"), writes=("dst", "carry"), scratch=("workspace", "exchange")),
    k.GridReduces: Fields(),
    k.GridBarrier: Fields(scratch=("semaphore",)),
    k.Barrier: Fields(),
    k.Hold: Fields(reads=("buffer",)),
    k.IssueLoads: Fields(),
    k.InitMbarriers: Fields(mbarriers=("buffer",), conditions=("arrivals",)),
    k.BulkCopy: Fields(
        reads=("src",), writes=("dst",), mbarriers=("mbarrier",), conditions=("count", "pred")
    ),
    k.Arrive: Fields(mbarriers=("mbarrier",)),
    k.ProxyFence: Fields(),
    k.WaitForCopies: Fields(),
    k.Wait: Fields(mbarriers=("mbarrier",), conditions=("phase",)),
    k.Roles: Fields(),
    k.Role: Fields(),
}


def _values(stmt: k.Stmt, names: Iterable[str]) -> list[k.Operand | k.Buffer]:
    found: list[k.Operand | k.Buffer] = []
    for name in names:
        value = getattr(stmt, name)
        if isinstance(value, tuple):
            found += value
        elif value is not None:  # a Copy without a fill
            found.append(value)
    return found


def _refs(stmt: k.Stmt, names: Iterable[str]) -> list[k.Ref]:
    return [value for value in _values(stmt, names) if isinstance(value, k.Ref)]


def _buffers(stmt: k.Stmt, names: tuple[str, ...]) -> list[k.Buffer]:
    found: list[k.Buffer] = []
    for value in _values(stmt, names) if names else ():
        if isinstance(value, k.Ref):
            found.append(value.buffer)
        elif isinstance(value, k.Buffer):
            found.append(value)
    return found


def read_refs(stmt: k.Stmt) -> list[k.Ref]:
    """The elements that the statement loads, accumulators included."""
    return _refs(stmt, FIELDS[type(stmt)].reads)


def written_refs(stmt: k.Stmt) -> list[k.Ref]:
    """The elements that the statement stores."""
    return _refs(stmt, FIELDS[type(stmt)].writes)


def read_buffers(stmt: k.Stmt) -> list[k.Buffer]:
    """The buffers that the statement loads from, by element or as a whole."""
    return _buffers(stmt, FIELDS[type(stmt)].reads)


def written_buffers(stmt: k.Stmt) -> list[k.Buffer]:
    """The buffers that the statement stores to, by element or as a whole."""
    return _buffers(stmt, FIELDS[type(stmt)].writes)


def writers(statements: Iterable[k.Stmt]) -> Counter[k.Buffer]:
    """The number of statements that store to each buffer."""
    return Counter(buffer for stmt in statements for buffer in written_buffers(stmt))


def readers(statements: Iterable[k.Stmt]) -> Counter[k.Buffer]:
    """The number of statements that load from each buffer."""
    return Counter(buffer for stmt in statements for buffer in set(read_buffers(stmt)))


def read_in(body: Iterable[k.Stmt]) -> set[k.Buffer]:
    """The buffers that statements, and those nested in them, load from."""
    return {buffer for stmt in k.walk(body) for buffer in read_buffers(stmt)}


def written_in(body: Iterable[k.Stmt]) -> set[k.Buffer]:
    """The buffers that statements, and those nested in them, store to."""
    return {buffer for stmt in k.walk(body) for buffer in written_buffers(stmt)}


def touched_in(body: Iterable[k.Stmt]) -> set[k.Buffer]:
    """The buffers that statements, and those nested in them, load from or store to."""
    return {b for stmt in k.walk(body) for b in (*read_buffers(stmt), *written_buffers(stmt))}


def same_iterations(ours: Sequence[k.For], theirs: Sequence[k.For]) -> dict[Symbol, Expr] | None:
    """Maps the symbols of the loops around another leaf to those of the corresponding loops around this one.

    Common loops are omitted. The result is None unless the first of the other loops of `theirs` have the same
    extents as all those of `ours`.
    """
    ours, theirs = (
        [loop for loop in ours if loop not in theirs],
        [loop for loop in theirs if loop not in ours],
    )
    if len(ours) > len(theirs) or any(a.extent is not b.extent for a, b in zip(ours, theirs)):
        return None
    return {b.symbol: a.symbol for a, b in zip(ours, theirs)}


def scratch_buffers(stmt: k.Stmt) -> list[k.Buffer]:
    """The buffers that the statement uses while it runs, with its own barriers."""
    return _buffers(stmt, FIELDS[type(stmt)].scratch)


def mbarrier_buffers(stmt: k.Stmt) -> list[k.Buffer]:
    """The buffers of mbarriers that the statement takes part in, or waits for."""
    return _buffers(stmt, FIELDS[type(stmt)].mbarriers)


def is_register(buffer: k.Buffer) -> bool:
    """Whether a buffer is one register of each thread."""
    return buffer.space is k.Space.LOCAL and as_int(buffer.size) == 1


def computed_from(stmt: k.Stmt) -> tuple[k.Operand, ...] | None:
    """The operands of a statement that computes or copies one element without a predicate, or None."""
    if isinstance(stmt, k.Compute):
        return stmt.args
    if isinstance(stmt, k.Copy) and stmt.width == 1 and stmt.pred is k.TRUE:
        return (stmt.src,)
    return None


def is_at_hand(operand: k.Operand) -> bool:
    """Whether every thread may read an operand without a predicate.

    An operand in registers must be inside its buffer even in iterations that overrun.
    """
    if not isinstance(operand, k.Ref):
        return True
    low, high = bounds(operand.index)
    size = as_int(operand.buffer.size)
    inside = low is not None and low >= 0 and high is not None and size is not None and high < size
    return inside and operand.buffer.space is k.Space.LOCAL


def declared_buffer(stmt: k.Stmt) -> k.Buffer | None:
    """The buffer that the statement declares for the following statements, or None."""
    name = FIELDS[type(stmt)].declares
    return getattr(stmt, name) if name is not None else None


def operands(stmt: k.Stmt) -> list[k.Operand]:
    """All operands, read or written, and the mbarriers."""
    return [value for value in _values(stmt, FIELDS[type(stmt)].accessed) if not isinstance(value, k.Buffer)]


def conditions(stmt: k.Stmt) -> list[Expr]:
    """The expressions of the statement outside its operands: its extent, condition, predicate or value."""
    found: list[Expr] = []
    for name in FIELDS[type(stmt)].conditions:
        value = getattr(stmt, name)
        if isinstance(value, tuple):
            found += value
        else:
            found.append(value)
    return found


def expressions(stmt: k.Stmt) -> list[Expr]:
    """Every index expression and condition in the statement."""
    found = conditions(stmt)
    for operand in operands(stmt):
        if isinstance(operand, k.Ref):
            found.append(operand.index)
        elif isinstance(operand, k.IndexValue):
            found.append(operand.expr)
    return found


def defined_symbol(stmt: k.Stmt) -> Symbol | None:
    """The symbol that the statement defines, or None."""
    name = FIELDS[type(stmt)].defines
    return getattr(stmt, name) if name is not None else None


def defined_symbols(statements: Iterable[k.Stmt]) -> set[Symbol]:
    """The symbols that the statements define."""
    return {symbol for symbol in map(defined_symbol, statements) if symbol is not None}


def map_expressions(stmt: k.Stmt, change: Callable[[Expr], Expr]) -> k.Stmt:
    """The statement with `change` applied to its `expressions` and to the conditions of needed lanes."""

    def operand(value: k.Operand | k.Buffer | None) -> k.Operand | k.Buffer | None:
        if isinstance(value, k.Ref):
            index = change(value.index)
            return value if index is value.index else k.Ref(value.buffer, index)
        if isinstance(value, k.IndexValue):
            expr = change(value.expr)
            return value if expr is value.expr else k.IndexValue(expr, value.dtype)
        return value

    changed: dict[str, object] = {}
    for name in FIELDS[type(stmt)].conditions:
        old = getattr(stmt, name)
        if isinstance(old, tuple):
            several = tuple(map(change, old))
            if any(map(operator.is_not, several, old)):
                changed[name] = several
        elif (new := change(old)) is not old:
            changed[name] = new
    for name in FIELDS[type(stmt)].accessed:
        value = getattr(stmt, name)
        if isinstance(value, tuple):
            values = tuple(map(operand, value))
            if any(map(operator.is_not, values, value)):
                changed[name] = values
        elif (single := operand(value)) is not value:
            changed[name] = single
    if isinstance(stmt, k.Copy) and stmt.covering is not None:
        covering = k.Covering(stmt.covering.lane, change(stmt.covering.wanted))
        if covering.wanted is not stmt.covering.wanted:
            changed["covering"] = covering
    if isinstance(stmt, k.Copy) and changed.get("pred") is k.TRUE:  # a load that always takes place
        changed |= {"fill": None, "fill_is_value": False}
    return dataclasses.replace(stmt, **changed) if changed else stmt  # type: ignore[arg-type]


def map_buffers(stmt: k.Stmt, table: dict[k.Buffer, k.Buffer]) -> k.Stmt:
    """The statement with every buffer in `table` replaced; nested statements are not changed."""
    nested = ("body",) if isinstance(stmt, k.NESTING) else ()
    old = {f.name: getattr(stmt, f.name) for f in dataclasses.fields(stmt) if f.name not in nested}
    new = {name: _with_buffers(value, table) for name, value in old.items()}
    changed = {name: value for name, value in new.items() if value != old[name]}
    return dataclasses.replace(stmt, **changed) if changed else stmt  # type: ignore[arg-type]


def _with_buffers(value: object, table: dict[k.Buffer, k.Buffer]) -> object:
    if isinstance(value, k.Ref):
        return k.Ref(table[value.buffer], value.index) if value.buffer in table else value
    if isinstance(value, k.Buffer):
        return table.get(value, value)
    if isinstance(value, tuple):
        return tuple([_with_buffers(item, table) for item in value])
    return value
