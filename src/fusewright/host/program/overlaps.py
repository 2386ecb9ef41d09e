"""Checks inputs that a call writes: whether they may be written, and which inputs share their memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import add, gt, is_

import torch

from fusewright.core.errors import InputError
from fusewright.core.op import movable
from fusewright.host.inputs.memory_checks import in_own_memory
from fusewright.host.program.ir import KeepApart

# The most sets of addresses that a bound program remembers not to overlap. Gradients that are allocated in
# each training step return to the same addresses after a few steps.
MAX_REMEMBERED = 16
# The most steps of the search for a common byte. A nested dimension takes two or three steps. If the search
# takes more, the tensors are assumed to share memory.
MAX_STEPS = 2000


class Apart:
    """Copies inputs that overlap written inputs, so that a bound program reads the values before its writes.

    Kernels write some inputs in place and read each element before they overwrite it. If another input shares
    bytes with a written input, the order of threads would decide whether it is read before or after the
    write. So it is copied. Inputs that share memory only with unwritten inputs are not copied.

    Attributes:
        remembered: sets of addresses for which nothing had to be copied. The program looks them up.
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
        """The tensors; a tensor that is read and shares memory with a written one is replaced by a copy.

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
        """The pairs of tensors whose address ranges overlap."""
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
    """Whether elements of `a` and `b` share a byte; True also if the search takes too long."""
    if not a.numel() or not b.numel():
        return False
    # They share a byte if the distance of their addresses is a sum of strides. Each stride occurs at most as
    # often as the sizes allow: {stride: [times that it is subtracted, times that it is added]}.
    steps: dict[int, list[int]] = {1: [0, 0]}
    for tensor, sign in ((a, 1), (b, 0)):
        size = tensor.element_size()
        dims = [(1, size), *((stride * size, n) for n, stride in zip(tensor.shape, tensor.stride()))]
        for stride, n in dims:
            if stride and n > 1:
                steps.setdefault(stride, [0, 0])[sign] += n - 1
    return _adds_up(b.data_ptr() - a.data_ptr(), steps) is not False


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether two elements of a tensor have the same address; False also if the search takes too long."""
    dims = sorted(((stride, n) for n, stride in zip(tensor.shape, tensor.stride()) if n > 1), reverse=True)
    if not tensor.numel():
        return False
    for i, (stride, n) in enumerate(dims):
        inner = dims[i + 1 :]
        if stride > sum(s * (m - 1) for s, m in inner):
            continue  # the usual case: the inner dimensions end before the next index of this one begins
        # Search two elements whose indices first differ in this dimension.
        steps: dict[int, list[int]] = {stride: [0, n - 2]}
        for s, m in inner:
            known = steps.setdefault(s, [0, 0])
            known[0] += m - 1
            known[1] += m - 1
        if not stride or _adds_up(-stride, {s: count for s, count in steps.items() if s}):
            return True
    return False


def _adds_up(distance: int, steps: Mapping[int, Sequence[int]]) -> bool | None:
    """Whether multiples of the strides add up to `distance`; None if the search takes more than MAX_STEPS.

    steps: for each stride, the most times that it may be subtracted, and the most times that it may be added.
    """
    strides = sorted(steps, reverse=True)
    least, most = [0], [0]  # bounds of the sums of strides[k:], by k
    for stride in reversed(strides):
        back, forth = steps[stride]
        least.insert(0, least[0] - back * stride)
        most.insert(0, most[0] + forth * stride)
    pending = [(distance, 0)]
    for _ in range(MAX_STEPS):
        if not pending:
            return False
        left, k = pending.pop()
        if k == len(strides):  # the last bounds are 0, so `left` is 0
            return True
        stride, (back, forth) = strides[k], steps[strides[k]]
        first = max(-back, -((most[k + 1] - left) // stride))
        last = min(forth, (left - least[k + 1]) // stride)
        if last - first >= MAX_STEPS:
            return None
        pending += [(left - count * stride, k + 1) for count in range(first, last + 1)]
    return None
