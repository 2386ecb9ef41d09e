"""Kernels with one mistake each: what a lowering pass, or whoever writes one, could get wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from fusewright.kernel.access import map_buffers, read_refs, written_buffers, written_refs
from fusewright.kernel.ir import (
    NESTING,
    TRUE,
    Alloc,
    Barrier,
    BlockReduce,
    BlockScan,
    Buffer,
    Combine,
    Compute,
    Copy,
    For,
    GridReduce,
    If,
    Init,
    Kernel,
    Ref,
    Scatter,
    Space,
    Stmt,
    TensorParam,
    walk,
    with_body,
)
from fusewright.kernel.text import statement_text
from fusewright.sym import And, Expr, add, land, sub, to_text


@dataclass(frozen=True)
class Mutant:
    """A kernel with one mistake: `replacement` in place of the statement `stmt` of the right one."""

    kind: str
    what: str
    stmt: Stmt
    replacement: tuple[Stmt, ...]
    kernel: Kernel

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}, at `{statement_text(self.stmt)}`"


# What may replace a statement, each with its description; `()` drops it.
Changes = Iterable[tuple[str, tuple[Stmt, ...]]]
Operator = Callable[[Kernel, Stmt], Changes]


def mutants_of(kernel: Kernel, kinds: Iterable[str] | None = None) -> Iterator[Mutant]:
    """Every mutant of the given kinds (names of OPERATORS, by default all)."""
    for kind in OPERATORS if kinds is None else kinds:
        for stmt in walk(kernel.body):
            for what, replacement in OPERATORS[kind](kernel, stmt):
                body = _replaced(kernel.body, stmt, replacement)
                yield Mutant(kind, what, stmt, replacement, dataclasses.replace(kernel, body=body))


def _replaced(body: tuple[Stmt, ...], old: Stmt, new: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    result: list[Stmt] = []
    for stmt in body:
        if stmt is old:
            result += new
        elif isinstance(stmt, NESTING):
            result.append(with_body(stmt, _replaced(stmt.body, old, new)))
        else:
            result.append(stmt)
    return tuple(result)


# ---- conditions ---------------------------------------------------------------------------------


def condition_of(stmt: Stmt) -> Expr | None:
    """What decides which threads take part in a statement."""
    if isinstance(stmt, If):
        return stmt.cond
    return stmt.pred if isinstance(stmt, (Copy, Scatter, Combine, BlockReduce, GridReduce)) else None


def with_condition(stmt: Stmt, condition: Expr) -> Stmt:
    name = "cond" if isinstance(stmt, If) else "pred"
    changed: dict[str, Any] = {name: condition}
    if isinstance(stmt, Copy) and condition is TRUE:
        changed |= {"fill": None, "fill_is_value": False}
    return dataclasses.replace(stmt, **changed)


def _predicate_dropped(kernel: Kernel, stmt: Stmt) -> Changes:
    condition = condition_of(stmt)
    if condition is None or condition is TRUE:
        return
    yield f"`{to_text(condition)}` dropped", (with_condition(stmt, TRUE),)
    if isinstance(condition, And):
        for part in condition.args:
            rest = land(*[other for other in condition.args if other is not part])
            yield f"`{to_text(part)}` dropped", (with_condition(stmt, rest),)


def _branch_dropped(kernel: Kernel, stmt: Stmt) -> Changes:
    if isinstance(stmt, If):
        yield "never taken", ()


# ---- indices and sizes --------------------------------------------------------------------------


def _with_index(stmt: Stmt, ref: Ref, index: Expr) -> Stmt:
    """The statement with another index in the operands that are this very Ref."""
    changed: dict[str, Any] = {}
    for field in dataclasses.fields(stmt):
        value = getattr(stmt, field.name)
        if value is ref:
            changed[field.name] = Ref(ref.buffer, index)
        elif isinstance(value, tuple) and any(item is ref for item in value):
            changed[field.name] = tuple([Ref(ref.buffer, index) if item is ref else item for item in value])
    return dataclasses.replace(stmt, **changed)


def _refs(stmt: Stmt) -> list[Ref]:
    return list({id(ref): ref for ref in (*read_refs(stmt), *written_refs(stmt))}.values())


def _index_off_by_one(kernel: Kernel, stmt: Stmt) -> Changes:
    width = stmt.width if isinstance(stmt, (Copy, Scatter, BlockReduce, BlockScan, GridReduce)) else 1
    for ref in _refs(stmt):
        for step in (width, -width):
            name = f"{ref.buffer.name}[{to_text(ref.index)}] {step:+}"
            yield name, (_with_index(stmt, ref, add(ref.index, step)),)


def _stride_wrong(kernel: Kernel, stmt: Stmt) -> Changes:
    for ref in _refs(stmt):
        index = ref.index
        terms = index.terms
        for core, coefficient in terms:
            term = f"{coefficient}*{to_text(core)} in {ref.buffer.name}[{to_text(index)}]"
            if len(terms) > 1:
                yield f"lost {term}", (_with_index(stmt, ref, sub(index, core * coefficient)),)
            if coefficient > 1:
                yield f"halved {term}", (_with_index(stmt, ref, sub(index, core * (coefficient // 2))),)
            if ref.buffer.space is not Space.LOCAL:
                yield f"doubled {term}", (_with_index(stmt, ref, add(index, core * coefficient)),)


def _loop_too_short(kernel: Kernel, stmt: Stmt) -> Changes:
    if isinstance(stmt, For):
        yield "one iteration less", (dataclasses.replace(stmt, extent=sub(stmt.extent, 1)),)


def _loop_too_long(kernel: Kernel, stmt: Stmt) -> Changes:
    if isinstance(stmt, For):
        yield "one iteration more", (dataclasses.replace(stmt, extent=add(stmt.extent, 1)),)


# ---- statements ---------------------------------------------------------------------------------


def _barrier_dropped(kernel: Kernel, stmt: Stmt) -> Changes:
    if isinstance(stmt, Barrier):
        yield "barrier dropped", ()


def _initialisation_dropped(kernel: Kernel, stmt: Stmt) -> Changes:
    if isinstance(stmt, Init):
        yield "initialisation dropped", ()


def _statement_dropped(kernel: Kernel, stmt: Stmt) -> Changes:
    if isinstance(stmt, (Copy, Scatter, Compute, Combine, BlockReduce, BlockScan, GridReduce)):
        yield "statement dropped", ()


def _wrong_buffer(kernel: Kernel, stmt: Stmt) -> Changes:
    """The next buffer of the kernel that could stand in place of one that is read or written."""
    known = [param.buffer for param in kernel.params if isinstance(param, TensorParam)]
    known += [each.buffer for each in kernel.body if isinstance(each, Alloc)]
    for old in dict.fromkeys(ref.buffer for ref in _refs(stmt)):
        alike = [b for b in known if _traits(b) == _traits(old)]
        if old in alike and len(alike) > 1:
            new = alike[(alike.index(old) + 1) % len(alike)]
            verb = "writes" if old in written_buffers(stmt) else "reads"
            yield f"{verb} {new.name} instead of {old.name}", (map_buffers(stmt, {old: new}),)


def _traits(buffer: Buffer) -> object:
    return buffer.space, buffer.dtype, None if buffer.space is Space.GLOBAL else buffer.size


OPERATORS: dict[str, Operator] = {
    "predicate dropped": _predicate_dropped,
    "branch dropped": _branch_dropped,
    "index off by one": _index_off_by_one,
    "wrong stride": _stride_wrong,
    "loop too short": _loop_too_short,
    "loop too long": _loop_too_long,
    "barrier dropped": _barrier_dropped,
    "initialisation dropped": _initialisation_dropped,
    "statement dropped": _statement_dropped,
    "wrong buffer": _wrong_buffer,
}
