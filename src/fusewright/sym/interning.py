"""The process-wide table that makes structurally equal nodes one object.

The table holds its values weakly, so a long process that compiles many kernels does
not accumulate expressions. `weakref.WeakValueDictionary` would do the same at about
three times the cost of a lookup.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

NodeT = TypeVar("NodeT")


class _KeyedRef(weakref.ref):  # type: ignore[type-arg]
    __slots__ = ("key",)
    key: Hashable


class InternTable(Generic[NodeT]):
    """Maps a structural key to the one live node that has it.

    Reads take no lock: one dict lookup is atomic. A weak reference's callback may run
    at any allocation, even while this thread holds the lock, so it only appends to a
    deque; the next insertion removes the dead entries.
    """

    __slots__ = ("_dead", "_lock", "_refs")

    def __init__(self) -> None:
        self._refs: dict[Hashable, _KeyedRef] = {}
        self._dead: deque[_KeyedRef] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        self._drain()
        return len(self._refs)

    def get(self, key: Hashable) -> NodeT | None:
        """The live node of `key`, or None."""
        ref = self._refs.get(key)
        return None if ref is None else ref()

    def publish(self, key: Hashable, node: NodeT) -> NodeT:
        """Make `node` the node of `key`; returns the winner if another thread was first."""
        ref = _KeyedRef(node, self._dead.append)
        ref.key = key
        if self._dead:
            self._drain()
        with self._lock:
            held = self._refs.get(key)
            if held is not None:
                winner: NodeT | None = held()
                if winner is not None:
                    return winner
            self._refs[key] = ref
        return node

    def renew(self) -> None:
        """Replaces the lock in a child of `fork`, where the thread that held it does not exist."""
        self._lock = threading.Lock()

    def _drain(self) -> None:
        # A key holds the node's operands, so removing one entry may kill further nodes;
        # their callbacks append to the same deque and the loop goes on.
        dead, refs = self._dead, self._refs
        while dead:
            try:
                ref = dead.popleft()
            except IndexError:  # another thread took the last one
                return
            with self._lock:
                removed = refs.pop(ref.key, None) if refs.get(ref.key) is ref else None
            del removed
