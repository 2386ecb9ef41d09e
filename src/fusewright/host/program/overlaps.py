"""Inputs that a call writes: which may be written, and which other inputs share their memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import add, gt, is_

import torch

from fusewright.core.errors import InputError
from fusewright.core.op import movable
from fusewright.host.inputs.memory_checks import in_own_memory
from fusewright.host.program.ir import KeepApart

# Sets of addresses that a bound program remembers to be apart. Gradients that are allocated for each step
# come back to the same addresses after a few steps.
MAX_REMEMBERED = 16
# Steps of the search for a common byte. Dimensions that nest take two or three each; beyond this, tensors
# are taken to share memory.
MAX_STEPS = 2000


class Apart:
    """Gives the reads of a bound program the values from before its writes, wherever its inputs are in
    memory.

    Kernels write some inputs in place and read each element before they overwrite it. If another input shares
    bytes with such an input, it would be read before or after the write, depending on the order of threads;
    it is copied. Tensors without written bytes are not copied and may share memory.

    Attributes:
        remembered: the addresses for which nothing had to be copied, which calls look up.
    """

    def __init__(self, op: KeepApart, positions: Sequence[int], bytes_: Sequence[int]) -> None:
        self.remembered: set[tuple[int, ...]] = set()
        self._names = [tensor.name for tensor in op.tensors]
        self._positions = positions
        self._bytes = bytes_
        self._early = [tensor in op.early for tensor in op.tensors]
        self._late = [tensor in op.late for tensor in op.tensors]
        self._copied = [tensor in op.copied for tensor in op.tensors]

    def __call__(
        self, tensors: tuple[torch.Tensor, ...], addresses: tuple[int, ...]
    ) -> tuple[torch.Tensor, ...]:
        """The tensors, with copies of those that are read and share memory with a written one.

        Raises:
            InputError: two of the written tensors share memory, so that the result depends on their order.
        """
        found = list(tensors)
        for i, j in self._overlapping(addresses):
            if not self._matters(i, j) or not share_memory(tensors[i], tensors[j]):
                continue
            read = [k for k in (i, j) if not (self._early[k] or self._late[k])]
            if not read:
                self._refuse(*sorted((i, j), key=lambda k: self._positions[k]))
            for k in read:
                if found[k] is tensors[k]:
                    found[k] = in_own_memory(movable(tensors[k].detach())).view(tensors[k].dtype)
        if all(map(is_, found, tensors)):
            if len(self.remembered) >= MAX_REMEMBERED:
                self.remembered.clear()
            self.remembered.add(addresses)
        return tuple(found)

    def _overlapping(self, addresses: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Pairs of tensors, the first bytes of which lie before the last of the other."""
        ends = list(map(add, addresses, self._bytes))
        order = sorted(range(len(ends)), key=addresses.__getitem__)
        if not any(map(gt, map(ends.__getitem__, order), map(addresses.__getitem__, order[1:]))):
            return
        before: list[int] = []
        for i in order:
            before = [j for j in before if ends[j] > addresses[i]]
            yield from ((j, i) for j in before)
            before.append(i)

    def _matters(self, i: int, j: int) -> bool:
        early, late, copied = self._early, self._late, self._copied
        return early[i] or early[j] or (late[i] and copied[j]) or (late[j] and copied[i])

    def _refuse(self, i: int, j: int) -> None:
        names, positions = self._names, self._positions
        raise InputError(
            f"Inputs {positions[i]}, {names[i]}, and {positions[j]}, {names[j]}, share memory, "
            "and outputs are written in place into both",
            expected="written inputs that do not overlap",
            given="some element in memory that belongs to both",
            hint="pass a clone() of one of them",
        )


def unwritable(tensor: torch.Tensor) -> str | None:
    """Why the result of a kernel cannot be written into a tensor; None if it can."""
    if tensor.is_conj():
        return "a lazily conjugated view"
    if any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride())):
        return "an expanded one, several of whose elements are one in memory"
    if overlaps_itself(tensor):
        return f"one of strides {tuple(tensor.stride())}, several of whose elements are one in memory"
    return None


def share_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether some byte belongs to an element of each, or finding that out would take too long."""
    if not a.numel() or not b.numel():
        return False
    # The distance of their addresses must be a sum of steps, so many of each stride as the sizes allow.
    steps: dict[int, list[int]] = {1: [0, 0]}
    for tensor, sign in ((a, 1), (b, 0)):
        size = tensor.element_size()
        dims = [(1, size), *((stride * size, n) for n, stride in zip(tensor.shape, tensor.stride()))]
        for stride, n in dims:
            if stride and n > 1:
                steps.setdefault(stride, [0, 0])[sign] += n - 1
    return _adds_up(b.data_ptr() - a.data_ptr(), steps) is not False


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether two elements of a tensor are one in memory, and finding that out takes no long."""
    dims = sorted(((stride, n) for n, stride in zip(tensor.shape, tensor.stride()) if n > 1), reverse=True)
    if not tensor.numel():
        return False
    for i, (stride, n) in enumerate(dims):
        inner = dims[i + 1 :]
        if stride > sum(s * (m - 1) for s, m in inner):
            continue  # as of nearly all tensors: the elements inside end before the next begin
        # Two elements, of which the first dimension that tells them apart is this one.
        steps: dict[int, list[int]] = {stride: [0, n - 2]}
        for s, m in inner:
            known = steps.setdefault(s, [0, 0])
            known[0] += m - 1
            known[1] += m - 1
        if not stride or _adds_up(-stride, {s: count for s, count in steps.items() if s}):
            return True
    return False


def _adds_up(distance: int, steps: Mapping[int, Sequence[int]]) -> bool | None:
    """Whether steps of these strides, at most so many back and forth, add up to `distance`; None: unknown."""
    strides = sorted(steps, reverse=True)
    least, most = [0], [0]  # what the smaller strides add up to
    for stride in reversed(strides):
        back, forth = steps[stride]
        least.insert(0, least[0] - back * stride)
        most.insert(0, most[0] + forth * stride)
    pending = [(distance, 0)]
    for _ in range(MAX_STEPS):
        if not pending:
            return False
        left, k = pending.pop()
        if k == len(strides):  # nothing is left of it
            return True
        stride, (back, forth) = strides[k], steps[strides[k]]
        first = max(-back, -((most[k + 1] - left) // stride))
        last = min(forth, (left - least[k + 1]) // stride)
        if last - first >= MAX_STEPS:
            return None
        pending += [(left - count * stride, k + 1) for count in range(first, last + 1)]
    return None
