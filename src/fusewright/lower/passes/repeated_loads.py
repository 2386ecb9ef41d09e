"""Loads a vector once if all rows of a thread load the same one.

    for i in 3: a[8*i:+8] = x[n:+8]                       a[0:+8] = x[n:+8]
    for i in 3: for j: y[8*i + j] = f(a[8*i + j])    ->   for i in 3: for j: y[8*i + j] = f(a[j])

Rows that are planes of a join, such as the channels of an image, are computed from the same elements. Values
computed only from these are then also the same for all rows (see vector_invariants.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.passes.loads import is_load
from fusewright.lower.passes.unrolled_load import single_nest
from fusewright.sym import ZERO, as_int, const, substitute


def load_repeated_vectors_once(kernel: k.Kernel) -> k.Kernel:
    statements = list(k.walk(kernel.body))
    return _loaded_once(kernel, _repeated_arrays(statements, statements))


def load_repeated_indices_once(kernel: k.Kernel) -> k.Kernel:
    """Does the same only for loads of indices, so that later passes see that the indices are equal."""
    while True:  # replacing a loop may leave a nested loop that loads the same in each iteration
        statements = list(k.walk(kernel.body))
        values = [stmt.value for stmt in statements if isinstance(stmt, k.LetValue)]
        indices = {value.buffer for value in values if isinstance(value, k.Ref)}
        loops = [stmt for stmt in statements if not indices.isdisjoint(access.written_in((stmt,)))]
        found = _repeated_arrays(loops, statements)
        if not found:
            return kernel
        kernel = _loaded_once(kernel, found)


def _repeated_arrays(loops: Sequence[k.Stmt], statements: Sequence[k.Stmt]) -> dict[k.Buffer, _Repeated]:
    """The loops that load the same elements in each iteration, by the array that they load to.

    Args:
        loops: the loops to consider.
        statements: all statements of the kernel.
    """
    writers = access.writers(statements)
    found: dict[k.Buffer, _Repeated] = {}
    for stmt in loops:
        repeated = _repeated(stmt)
        if repeated is None or writers[repeated.array] > 1 or writers[repeated.memory] > 0:
            continue
        users = [each for each in statements if repeated.array in access.read_buffers(each)]
        if all(
            isinstance(each, (k.Compute, k.LetValue)) or (isinstance(each, k.Copy) and each.width == 1)
            for each in users
        ):
            found[repeated.array] = repeated
    return found


def _loaded_once(kernel: k.Kernel, found: Mapping[k.Buffer, _Repeated]) -> k.Kernel:
    if not found:
        return kernel
    arrays = {each.array: each.shorter for each in found.values()}
    loads: dict[k.Stmt, k.Stmt] = {each.loop: each.load for each in found.values()}

    def operand(value: k.Operand) -> k.Operand:
        if not isinstance(value, k.Ref) or value.buffer not in found:
            return value
        return k.Ref(value.buffer, value.index % found[value.buffer].period)

    def changed(stmt: k.Stmt) -> list[k.Stmt]:
        if isinstance(stmt, k.Compute):
            stmt = replace(stmt, args=tuple(map(operand, stmt.args)))
        elif isinstance(stmt, k.LetValue):
            stmt = replace(stmt, value=operand(stmt.value))
        elif isinstance(stmt, k.Copy):
            fill = None if stmt.fill is None else operand(stmt.fill)
            stmt = replace(stmt, src=operand(stmt.src), fill=fill)
        return [access.map_buffers(stmt, arrays)]

    body = k.rewritten(kernel.body, lambda stmt: [loads.get(stmt, stmt)])
    return k.with_body(kernel, k.rewritten(body, changed))


@dataclass(frozen=True, eq=False)
class _Repeated:
    """A loop that loads the same elements in each iteration.

    Attributes:
        loop: the loop.
        load: the load of the first iteration.
        memory: the memory that it reads.
        array: the registers that it sets.
        period: the number of registers that one iteration sets.
    """

    loop: k.For
    load: k.Stmt
    memory: k.Buffer
    array: k.Buffer
    period: int

    @property
    def shorter(self) -> k.Buffer:
        """The registers of one iteration."""
        return replace(self.array, size=const(self.period))


def _repeated(stmt: k.Stmt) -> _Repeated | None:
    if not isinstance(stmt, k.For) or not stmt.unroll or len(stmt.body) != 1:
        return None
    count, [load] = as_int(stmt.extent), stmt.body
    _, inner = single_nest(load)
    if not is_load(inner) or inner.asynchronous or inner.covering is not None or not count or count < 2:
        return None
    assert isinstance(inner.src, k.Ref)
    array, size = inner.dst.buffer, as_int(inner.dst.buffer.size)
    if stmt.symbol in inner.src.index.free_symbols or stmt.symbol in inner.pred.free_symbols:
        return None
    step = as_int(substitute(inner.dst.index, {stmt.symbol: stmt.symbol + 1}) - inner.dst.index)
    if step is None or size is None or size != step * count:
        return None
    at_first = partial(substitute, replacements={stmt.symbol: ZERO})
    [first] = k.rewritten((load,), lambda each: [access.map_expressions(each, at_first)])
    return _Repeated(stmt, first, inner.src.buffer, array, step)
