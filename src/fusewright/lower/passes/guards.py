"""Gathers the conditions that statements share into branches around them.

Each access of a node has its own predicate. If consecutive statements of a body share conditions that they do
not change, the conditions become one `If` around them:

    a = x[i] if i < n else 0              if i < n:
    b = exp(a)                     ->         a = x[i]
    y[i] = b if i < n                         b = exp(a)
                                              y[i] = b

Then threads without work skip the arithmetic. A phase between two collectives becomes a separate region,
whose results the CUDA compiler does not hold in registers for the next.

Unrolled loops that load stay free of branches, so that the loads of all iterations are in flight at once.
Loops that reduce loaded values have a branch for each iteration with enough work; otherwise the CUDA compiler
would move the work of one iteration between the loads of the next, which then wait for it. A fill that has no
readers any more is removed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.guards import Conditions, conditions_of, with_pred
from fusewright.sym import Symbol, as_int, bounds, land, substitute

_PREDICATED = (k.Copy, k.Scatter, k.Combine, k.LetValue)

# Statements that stay outside new branches, since all following statements need them.
_STAY = (k.Alloc, k.Let, k.LetMisalignment, k.WaitForCopies)

_NONE: Conditions = frozenset()

# If an unrolled iteration computes or reduces fewer elements than this, predicates are cheaper than a branch,
# which takes four instructions. (Measured with sums of vectors of four and of eight elements on an H200.)
MIN_BRANCH_STEPS = 16


def gather_guards(kernel: k.Kernel) -> k.Kernel:
    tree = _Tree(kernel.body)
    tree.gather(tree.top, _NONE, _Branches.ALL)
    tree.drop_fills()
    return k.with_body(kernel, k.body_of(kernel.body, _statements(tree.top, _NONE)))


# ---- the tree ----------------------------------------------------------------------------------------------


class _Branches(Enum):
    """Which branches may be made in a body: all, only those around much work, or none."""

    ALL = 0
    LARGE = 1
    NONE = 2


@dataclass(eq=False)
class _Node:
    """A statement whose body can change.

    Attributes:
        stmt: the statement; None for a new branch.
        conditions: the conditions of a branch, or of the predicate of a leaf.
        body: the nodes in its body.
        around: the conditions of the branches around a leaf.
        loops: the loops around a leaf, outermost first.
        is_fresh: whether a leaf depends on values that were loaded since the threads last waited for each
            other.
        is_collective: whether threads wait for each other in it.
    """

    stmt: k.Stmt | None
    conditions: Conditions = _NONE
    body: list[_Node] = field(default_factory=list)
    around: Conditions = _NONE
    is_collective: bool = False
    loops: tuple[k.For, ...] = ()
    is_fresh: bool = False

    @property
    def is_leaf(self) -> bool:
        return not self.body

    def leaves(self) -> Iterator[_Node]:
        if self.is_leaf:
            yield self
        for node in self.body:
            yield from node.leaves()

    def common(self, given: Conditions) -> Conditions | None:
        """The conditions beyond `given` that all statements with effects have in common.

        If no statement has effects, all statements count. None if there are no statements.
        """
        found = self._common(given, effects=True)
        return self._common(given, effects=False) if found is None else found

    def _common(self, given: Conditions, effects: bool) -> Conditions | None:
        if self.is_leaf:
            return self.conditions - given if _has_effect(self.stmt) or not effects else None
        inner = [found for node in self.body if (found := node._common(given, effects)) is not None]
        if not inner:
            return None
        own = {symbol for node in self.body if (symbol := _named(node.stmt)) is not None}
        if isinstance(self.stmt, k.For):
            own.add(self.stmt.symbol)
        # Symbols that are defined inside are unknown outside.
        shared = frozenset(c for c in frozenset.intersection(*inner) if own.isdisjoint(c.free_symbols))
        return shared if isinstance(self.stmt, k.For) else (self.conditions - given) | shared


def _named(stmt: k.Stmt | None) -> Symbol | None:
    """The symbol that a statement defines for the following statements."""
    return stmt.symbol if isinstance(stmt, (k.LetValue, k.Let, k.LetMisalignment)) else None


def _has_effect(stmt: k.Stmt | None) -> bool:
    """Whether a leaf writes memory or accumulates."""
    assert stmt is not None
    written = access.written_buffers(stmt)
    return isinstance(stmt, k.Combine) or any(buffer.space is not k.Space.LOCAL for buffer in written)


class _Tree:
    """A kernel's body as a tree of nodes, with the leaves that access each buffer.

    Attributes:
        top: the statements.
    """

    def __init__(self, body: Sequence[k.Stmt]) -> None:
        self._accesses: dict[k.Buffer, list[_Node]] = {}
        self._users: dict[Symbol, list[_Node]] = {}
        self._varying: set[Symbol] = set()  # symbols whose values change during the execution
        self._phase = 0  # the number of times that the threads have waited for each other
        self._fresh: dict[k.Buffer, int] = {}  # register -> the phase of the loads that its value depends on
        self.top = [self._node(stmt, _NONE, ()) for stmt in body]

    def _node(self, stmt: k.Stmt, around: Conditions, loops: tuple[k.For, ...]) -> _Node:
        if isinstance(stmt, (k.For, k.LetValue)):
            self._varying.add(stmt.symbol)
        if not k.children(stmt):
            own = _NONE
            if isinstance(stmt, _PREDICATED):
                own = conditions_of(stmt.pred)
            node = _Node(stmt, own, [], around, isinstance(stmt, k.COLLECTIVES), loops)
            self._note_loads(node)
            for buffer in dict.fromkeys((*access.read_buffers(stmt), *access.written_buffers(stmt))):
                self._accesses.setdefault(buffer, []).append(node)
        else:
            own = conditions_of(stmt.cond) if isinstance(stmt, k.If) else _NONE
            within = (*loops, stmt) if isinstance(stmt, k.For) else loops
            body = [self._node(inner, around | own, within) for inner in k.children(stmt)]
            node = _Node(stmt, own, body, is_collective=any(inner.is_collective for inner in body))
        for expr in access.expressions(stmt):
            for symbol in expr.free_symbols:
                self._users.setdefault(symbol, []).append(node)
        return node

    def _note_loads(self, leaf: _Node) -> None:
        """Sets whether a leaf depends on values that were loaded in its phase."""
        assert leaf.stmt is not None
        self._phase += leaf.is_collective
        read, written = access.read_buffers(leaf.stmt), access.written_buffers(leaf.stmt)
        leaf.is_fresh = any(self._fresh.get(buffer) == self._phase for buffer in read)
        if leaf.is_fresh or any(buffer.space is k.Space.GLOBAL for buffer in read):
            self._fresh.update((b, self._phase) for b in written if b.space is k.Space.LOCAL)

    # ---- gathering

    def gather(self, body: list[_Node], given: Conditions, branches: _Branches) -> None:
        """Makes branches in `body` and in nested bodies.

        It goes from the last statement to the first: a branch around readers allows one around the statements
        that compute what they read.

        Args:
            given: the conditions of the branches around `body`.
        """
        end = len(body)
        while end > 0:
            start, shared = self._group(body, end, given, branches)
            if start < end:
                branch = _Node(None, shared, body[start:end])
                for leaf in branch.leaves():
                    leaf.around |= shared
                body[start:end] = [branch]
                self.gather(branch.body, given | shared, branches)
                end = start
                continue
            end -= 1
            node = body[end]
            if not node.is_leaf:
                self.gather(node.body, given | node.conditions, _branches_in(node, branches))

    def _group(
        self, body: list[_Node], end: int, given: Conditions, branches: _Branches
    ) -> tuple[int, Conditions]:
        """The longest run of nodes up to `end` that can be in one new branch.

        Returns:
            The start of the run, which is `end` if there is no such run, and the conditions of the branch.
        """
        last = body[end - 1]
        if branches is _Branches.NONE or last.is_collective:
            return end, _NONE
        shared = last.common(given)
        if not shared:
            return end, _NONE
        best, group = end - 1, body[end - 1 : end]
        if not self._may_branch(group, shared):
            return end, _NONE
        for start in range(end - 2, -1, -1):
            node = body[start]
            if node.is_collective or isinstance(node.stmt, _STAY):
                break
            less, group = shared, [node, *group]
            if not self._may_branch(group, less):
                less = shared & (node.common(given) or _NONE)
                if not less or not self._may_branch(group, less):
                    break
            best, shared = start, less
        # A single leaf has its predicate already, and a single branch its condition.
        lone = body[best] if best == end - 1 else None
        if lone is not None and (lone.is_leaf or lone.conditions >= shared):
            return end, _NONE
        if branches is _Branches.LARGE and not _pays(body[best:end]):
            return end, _NONE
        return best, shared

    def _may_branch(self, group: Sequence[_Node], shared: Conditions) -> bool:
        """Whether a branch with the conditions `shared` around the group changes no result."""
        symbols = {symbol for condition in shared for symbol in condition.free_symbols}
        leaves = [leaf for node in group for leaf in node.leaves()]
        inside = set(leaves)
        defined = {symbol for node in group if (symbol := _named(node.stmt)) is not None}
        if not defined.isdisjoint(symbols):
            return False
        users = (user for symbol in defined for user in self._users.get(symbol, ()))
        if not all(_within(user, group) for user in users):
            return False
        varies = not symbols.isdisjoint(self._varying)
        for leaf in leaves:
            assert leaf.stmt is not None
            if shared <= leaf.around | leaf.conditions and getattr(leaf.stmt, "fill", None) is None:
                continue
            for buffer in access.written_buffers(leaf.stmt):
                if buffer.space is not k.Space.LOCAL:
                    return False
                others = [other for other in self._accesses[buffer] if other not in inside]
                if varies and (others or _reads(self._accesses[buffer][0], buffer)):
                    return False
                readers = (other for other in others if _reads(other, buffer))
                if not all(shared <= _read_under(reader, buffer) for reader in readers):
                    return False
        return True

    # ---- fills

    def drop_fills(self) -> None:
        """Removes the fill from loads whose registers are read only where the load took place."""
        for accesses in self._accesses.values():
            for leaf in accesses:
                stmt = leaf.stmt
                if not isinstance(stmt, k.Copy) or stmt.fill is None or leaf.conditions <= leaf.around:
                    continue
                if self._is_read_where_loaded(leaf, stmt.dst.buffer):
                    leaf.stmt = dataclasses.replace(stmt, fill=None, fill_is_value=False)

    def _is_read_where_loaded(self, load: _Node, register: k.Buffer) -> bool:
        others = [other for other in self._accesses[register] if other is not load]
        if register.space is not k.Space.LOCAL or not others:
            return False
        read_under = (load.around | _read_back_under(load, other, register) for other in others)
        return all(load.conditions <= conditions for conditions in read_under)


def _within(node: _Node, group: Sequence[_Node]) -> bool:
    return any(node is each or _within(node, each.body) for each in group)


def _reads(leaf: _Node, buffer: k.Buffer) -> bool:
    return leaf.stmt is not None and buffer in access.read_buffers(leaf.stmt)


def _read_back_under(writer: _Node, other: _Node, buffer: k.Buffer) -> Conditions:
    """The conditions under which another leaf reads what the writer wrote.

    They use the symbols of the writer's loops. Empty if the leaf reads or writes other elements of the
    buffer. Loops of equal extents at the same depth correspond: for i: a[i] = ...; for j: ... a[j].
    """
    assert writer.stmt is not None and other.stmt is not None
    if buffer in access.written_buffers(other.stmt):
        return _NONE
    table = access.same_iterations(writer.loops, other.loops)
    if table is None:
        return _NONE
    first = next(ref.index for ref in access.written_refs(writer.stmt) if ref.buffer is buffer)
    written, read = getattr(writer.stmt, "width", 1), getattr(other.stmt, "width", 1)
    for ref in access.read_refs(other.stmt):
        if ref.buffer is buffer:
            low, high = bounds(substitute(ref.index, table) - first)
            if low is None or high is None or low < 0 or high + read > written:
                return _NONE
    return frozenset(substitute(condition, table) for condition in _read_under(other, buffer))


def _branches_in(node: _Node, around: _Branches) -> _Branches:
    """Which branches may be made in the body of a node, given those that may be made around it."""
    if around is _Branches.NONE or not (isinstance(node.stmt, k.For) and node.stmt.unroll):
        return around
    read = access.readers(leaf.stmt for leaf in node.leaves() if leaf.stmt is not None)
    loads = any(buffer.space is k.Space.GLOBAL for buffer in read)
    return _Branches.NONE if loads else _Branches.LARGE


def _pays(group: Sequence[_Node]) -> bool:
    """Whether a branch around a part of an unrolled iteration pays.

    It does if the part reduces values that were just loaded and has enough work.
    """
    leaves = [leaf for node in group for leaf in node.leaves()]
    reduces = any(isinstance(leaf.stmt, k.Combine) for leaf in leaves)
    return reduces and any(leaf.is_fresh for leaf in leaves) and sum(map(_steps, group)) >= MIN_BRANCH_STEPS


def _steps(node: _Node) -> int:
    """The number of elements that a node computes or reduces."""
    if node.is_leaf:
        if isinstance(node.stmt, k.Compute):
            return 1
        return node.stmt.width if isinstance(node.stmt, k.Combine) else 0
    times = as_int(node.stmt.extent) if isinstance(node.stmt, k.For) else 1
    return (times or 1) * sum(map(_steps, node.body))


def _read_under(leaf: _Node, buffer: k.Buffer) -> Conditions:
    """The conditions under which a leaf reads a register."""
    stmt = leaf.stmt
    assert stmt is not None
    if isinstance(stmt, (k.BlockReduce, k.ClusterReduce, k.GridReduce)):
        into_dst = any(ref.buffer is buffer for ref in stmt.dst)
        return leaf.around if into_dst else leaf.around | conditions_of(stmt.pred)
    if isinstance(stmt, k.Copy) and isinstance(stmt.fill, k.Ref) and stmt.fill.buffer is buffer:
        return leaf.around
    return leaf.around | leaf.conditions


# ---- statements again --------------------------------------------------------------------------------------


def _statements(body: Sequence[_Node], given: Conditions) -> list[k.Stmt]:
    """The nodes as statements, where the conditions `given` hold."""
    result: list[k.Stmt] = []
    for node in body:
        stmt = node.stmt
        if stmt is not None and node.is_leaf:
            result.append(_without(stmt, node.conditions, given))
            continue
        if isinstance(stmt, k.For):
            result.append(k.with_body(stmt, k.body_of(stmt.body, _statements(node.body, given))))
            continue
        rest = node.conditions - given
        inner = _statements(node.body, given | rest)
        if not rest:
            result += inner
        elif isinstance(stmt, k.If) and rest == node.conditions:
            result.append(k.with_body(stmt, k.body_of(stmt.body, inner)))
        else:
            result.append(k.If(land(*rest), tuple(inner)))
    return result


def _without(stmt: k.Stmt, own: Conditions, given: Conditions) -> k.Stmt:
    """A leaf without the conditions that hold anyway. A load without conditions has no fill."""
    if own.isdisjoint(given):
        return stmt
    assert isinstance(stmt, _PREDICATED)
    return with_pred(stmt, land(*(own - given)))
