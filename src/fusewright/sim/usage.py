"""How a kernel uses its buffers, computed once before it runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from fusewright.kernel import ir as k
from fusewright.kernel.access import read_buffers, read_refs, scratch_buffers, written_buffers, written_refs
from fusewright.sym import Expr, Symbol

# The largest element (std::complex<double>).
_MAX_ELEMENT_BYTES = 16


@dataclass(frozen=True)
class Usage:
    """The buffers that some statement reads or writes, and whether all blocks must run together.

    A collective's scratch buffers are not included.

    Attributes:
        shared_granule: the bytes of the smallest element in shared memory.
        renewed: the buffers that each loop writes anew in every iteration (see `_renewed`).
        roles: returns the number of each thread's role, from the extents of the block; None if only block
            barriers order its threads.
    """

    read: frozenset[k.Buffer]
    written: frozenset[k.Buffer]
    needs_whole_grid: bool
    shared_granule: int
    renewed: Mapping[k.For, tuple[k.Buffer, ...]]
    roles: Callable[[tuple[int, int, int]], Tensor] | None


def usage_of(kernel: k.Kernel) -> Usage:
    """Walk the kernel once."""
    read: set[k.Buffer] = set()
    written: set[k.Buffer] = set()
    names: list[k.Bind] = []
    needs_whole_grid = False
    shared_granule = _MAX_ELEMENT_BYTES
    roles: k.Roles | None = None
    has_mbarriers = False
    for stmt in k.walk(kernel.body):
        read.update(read_buffers(stmt))
        written.update(written_buffers(stmt))
        if isinstance(stmt, k.Bind):
            names.append(stmt)
        needs_whole_grid |= isinstance(stmt, (k.GridReduce, k.GridScan, k.GridBarrier))
        has_mbarriers |= isinstance(stmt, k.InitMbarriers)
        roles = stmt if isinstance(stmt, k.Roles) else roles
        if isinstance(stmt, k.Alloc) and stmt.buffer.space is k.Space.SHARED:
            shared_granule = min(shared_granule, stmt.buffer.dtype.values.itemsize)
    for bind in names:
        for choice in bind.choices:
            for name, param in zip(bind.names, choice):
                if not isinstance(name, k.ScalarParam) and not isinstance(param, k.ScalarParam):
                    for used in (read, written):
                        used.update([param.buffer] if name.buffer in used else [])
    return Usage(
        frozenset(read),
        frozenset(written),
        needs_whole_grid,
        shared_granule,
        _renewed(kernel),
        partial(_role_of_threads, roles) if roles is not None or has_mbarriers else None,
    )


def _role_of_threads(roles: k.Roles | None, block: tuple[int, int, int]) -> Tensor:
    """The number of the role of each thread of a block, by its linear number, (threads,)."""
    numbers = torch.zeros(math.prod(block), dtype=torch.int64)
    if roles is not None:
        inner = math.prod(block[: k.THREAD_AXES.index(roles.body[0].axis)])
        for number, role in enumerate(roles.body):
            numbers[inner * role.first : inner * (role.first + role.count)] = number
    return numbers


@dataclass
class _Life:
    """The accesses of a buffer: the loops around all of them, and whether the first is a store.

    Attributes:
        used: the symbols in its indices.
    """

    loops: tuple[k.For, ...]
    starts_written: bool
    used: set[Symbol] = field(default_factory=set)


def _renewed(kernel: k.Kernel) -> dict[k.For, tuple[k.Buffer, ...]]:
    """By loop, the buffers whose contents mean nothing beyond an iteration.

    They are used in the loop alone, a store comes first, and the iteration's number is in none of their
    indices. What an iteration reads of them it has written, unless the guards of store and load disagree.
    """
    lives: dict[k.Buffer, _Life] = {}
    carried: set[k.Buffer] = set()
    names: dict[Symbol, frozenset[Symbol]] = {}
    for stmt, loops in _with_loops(kernel.body, ()):
        if isinstance(stmt, k.Let):
            names[stmt.symbol] = _symbols(stmt.value, names)
        elif isinstance(stmt, k.LetValue):  # which may be another in every iteration
            names[stmt.symbol] = frozenset(loop.symbol for loop in loops)
        carried.update(scratch_buffers(stmt))
        read = {ref.buffer for ref in read_refs(stmt)}
        for ref in (*read_refs(stmt), *written_refs(stmt)):
            life = lives.setdefault(ref.buffer, _Life(loops, ref.buffer not in read))
            life.loops = tuple([a for a, b in zip(life.loops, loops) if a is b])
            life.used |= _symbols(ref.index, names)
    result: dict[k.For, tuple[k.Buffer, ...]] = {}
    for buffer, life in lives.items():
        if buffer.space is k.Space.GLOBAL or buffer in carried or not life.starts_written:
            continue
        loop = next((loop for loop in reversed(life.loops) if loop.symbol not in life.used), None)
        if loop is not None:
            result[loop] = (*result.get(loop, ()), buffer)
    return result


def _with_loops(
    body: tuple[k.Stmt, ...], loops: tuple[k.For, ...]
) -> Iterator[tuple[k.Stmt, tuple[k.For, ...]]]:
    """All statements in program order, each with the loops around it, outermost first."""
    for stmt in body:
        yield stmt, loops
        yield from _with_loops(k.children(stmt), (*loops, stmt) if isinstance(stmt, k.For) else loops)


def _symbols(expr: Expr, names: Mapping[Symbol, frozenset[Symbol]]) -> frozenset[Symbol]:
    """The symbols that a value depends on, those that stand for others resolved."""
    return frozenset().union(*(names.get(symbol, {symbol}) for symbol in expr.free_symbols))
