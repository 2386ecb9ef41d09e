"""Registers that a pass adds to a kernel."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.core.dtype import DataType
from fusewright.kernel import ir as k
from fusewright.sym import const


class Registers:
    """The registers that a pass has added so far."""

    def __init__(self) -> None:
        self._made: dict[k.Buffer, None] = {}  # in order

    def __len__(self) -> int:
        return len(self._made)

    def __contains__(self, buffer: k.Buffer) -> bool:
        return buffer in self._made

    def new(self, name: str, dtype: DataType, size: int = 1) -> k.Buffer:
        """Adds a register of this type, or an array of `size` registers."""
        return self.add(k.Buffer(name, dtype, k.Space.LOCAL, const(size)))

    def add(self, buffer: k.Buffer) -> k.Buffer:
        """Adds a buffer, which is declared together with the registers."""
        self._made[buffer] = None
        return buffer

    def declared(self, kernel: k.Kernel, body: Sequence[k.Stmt]) -> k.Kernel:
        """The kernel with `body` and declarations of the registers.

        The same object if nothing has changed.
        """
        return k.with_body(kernel, k.body_of(kernel.body, (*map(k.Alloc, self._made), *body)))
