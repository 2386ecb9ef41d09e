"""Alternates reductions of a block between two workspaces, so that each needs one barrier instead of two.

    reduce a via w                          reduce a via w ordered
    reduce b via w                   ->     reduce b via v ordered
    reduce c via w                          reduce c via w ordered

A reduction has a barrier between the stores of its warps and the loads of all threads. Threads that pass this
barrier have finished the previous reduction. So a workspace is free again after another reduction along the
same axes, or after a barrier. In a loop, an iteration follows the previous iteration.
"""

from __future__ import annotations

import dataclasses

from fusewright.core.enums import ParallelType
from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.sym import as_int

#: The most bytes of a second workspace. A larger one is not worth the shared memory.
MAX_BYTES = 4096

# The workspaces used since the last barrier, each with the axes of the reduction that used it; None: another
# use.
_Used = frozenset[tuple[k.Buffer, tuple[ParallelType, ...] | None]]


def order_reductions(kernel: k.Kernel) -> k.Kernel:
    statements = list(k.walk(kernel.body))
    reductions = [s for s in statements if isinstance(s, k.BlockReduce)]
    if (
        not reductions
        or any(s.ordered for s in reductions)
        or any(isinstance(s, k.Roles) for s in statements)
    ):
        return kernel
    orderer = _Orderer()
    body, _ = orderer.body(kernel.body, frozenset())
    if body is kernel.body:
        return kernel
    return k.with_body(kernel, _with_twins(body, orderer.twins))


class _Orderer:
    """The state of the pass.

    Attributes:
        twins: the second workspace for each first one.
    """

    def __init__(self) -> None:
        self.twins: dict[k.Buffer, k.Buffer] = {}

    def body(self, body: tuple[k.Stmt, ...], used: _Used) -> tuple[tuple[k.Stmt, ...], _Used]:
        """`body` with ordered reductions, and the workspaces that are in use at its end.

        Args:
            used: the workspaces that are in use before `body`.
        """
        result: list[k.Stmt] = []
        for stmt in body:
            if isinstance(stmt, (k.Barrier, k.GridBarrier)):
                used = frozenset()
            elif isinstance(stmt, k.BlockReduce):
                stmt, used = self._reduction(stmt, used)
            elif isinstance(stmt, k.For):
                stmt, used = self._loop(stmt, used)
            elif isinstance(stmt, (k.If, k.Bind)):
                inner, after = self.body(stmt.body, used)
                stmt, used = k.with_body(stmt, inner), used | after
            else:
                used |= {(buffer, None) for buffer in access.scratch_buffers(stmt)}
            result.append(stmt)
        return k.body_of(body, result), used

    def _loop(self, loop: k.For, used: _Used) -> tuple[k.For, _Used]:
        """The loop, and the workspaces in use at its end.

        All iterations use the same workspaces, so those that an iteration leaves in use are in use at its
        beginning, too.
        """
        _, after = self.body(loop.body, used)
        before = used | after
        body, after = self.body(loop.body, before)
        while not after <= before:
            before |= after
            body, after = self.body(loop.body, before)
        return k.with_body(loop, body), used | after

    def _reduction(self, stmt: k.BlockReduce, used: _Used) -> tuple[k.BlockReduce, _Used]:
        own = [buffer for buffer in stmt.workspace if buffer is not None]
        if not own:
            return stmt, used
        chosen = stmt
        busy = {buffer for buffer, _ in used}
        if busy.isdisjoint(own):
            chosen = dataclasses.replace(stmt, ordered=True)
        elif all(map(_is_small, own)) and busy.isdisjoint(twins := self._twins_of(own)):
            chosen = dataclasses.replace(stmt, workspace=tuple(twins), ordered=True)
        left = {(buffer, axes) for buffer, axes in used if axes != stmt.axes}
        taken = {(buffer, stmt.axes) for buffer in chosen.workspace if buffer is not None}
        return chosen, frozenset(left | taken)

    def _twins_of(self, own: list[k.Buffer]) -> list[k.Buffer]:
        first = {twin: buffer for buffer, twin in self.twins.items()}
        if all(buffer in first for buffer in own):
            return [first[buffer] for buffer in own]
        for buffer in own:
            if buffer not in self.twins:
                self.twins[buffer] = dataclasses.replace(buffer, name=f"{buffer.name}_again")
        return [self.twins[buffer] for buffer in own]


def _is_small(buffer: k.Buffer) -> bool:
    size = as_int(buffer.size)
    return size is not None and size * buffer.dtype.size <= MAX_BYTES


def _with_twins(body: tuple[k.Stmt, ...], twins: dict[k.Buffer, k.Buffer]) -> tuple[k.Stmt, ...]:
    """`body` with declarations of the second workspaces that it uses."""
    used = {buffer for stmt in k.walk(body) for buffer in access.scratch_buffers(stmt)}
    added = {first: twin for first, twin in twins.items() if twin in used}

    def change(stmt: k.Stmt) -> list[k.Stmt]:
        twin = added.get(stmt.buffer) if isinstance(stmt, k.Alloc) else None
        return [stmt] if twin is None else [stmt, k.Alloc(twin)]

    return k.rewritten(body, change)
