"""The number of threads that hold a row, or a column, and the kernel's resulting assumptions about its
length.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import TypeVar

from fusewright.core.errors import ParamsError
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import Facts
from fusewright.schedulers.params import InnerOuterPersistentParams, ReductionParams, threads_to_hold
from fusewright.schedulers.params.launch import UNSET
from fusewright.schedulers.reduction.space import ReductionSpace, factors_of
from fusewright.sym import Const, Symbol, as_int, product

P = TypeVar("P", ReductionParams, InnerOuterPersistentParams)


@dataclass(frozen=True)
class HeldLength:
    """The threads along the reduced dimensions, which hold all of their elements.

    Attributes:
        what: the held data, "rows" or "columns".
        path: the field of params that states the number of threads.
        threads: that number; -1 if it follows from the sizes of a call.
        elements: the number of elements that each thread holds.
        step: the number of threads is a multiple of this.
        sizes: the reduced sizes, if the kernel has them as constants.
        before: the number of positions that the first vector of a row may have before the row.
        turn: the number of elements that each thread takes at a time; all threads have the same number of
            turns, except for the last turn. 0: each thread has one contiguous stretch.
    """

    what: str
    path: str
    threads: int
    elements: int
    step: int
    sizes: tuple[int, ...] = ()
    before: int = 0
    turn: int = 0

    def threads_needed(self, length: int) -> int:
        """Returns the number of threads that hold so many elements."""
        return threads_to_hold(length + self.before, self.elements, self.step)

    def check(self, space: ReductionSpace) -> None:
        """Raises ParamsError unless the threads are what the length needs, as far as it is known."""
        length = self._length(space)
        if self.threads < 1:
            return
        if length is not None:
            needed = self.threads_needed(length)
            if self.threads != needed:
                expected = f"-1 or {needed}, for {self.what} of {length}"
                raise ParamsError(path=self.path, expected=expected, given=self.threads)
        elif not is_one_size(space):
            length_text = product(axis.extent for axis in space.reduction)
            raise ParamsError(
                path=self.path, expected=f"-1, as it follows from {length_text}", given=self.threads
            )

    def assume(self, schedule: Schedule, space: ReductionSpace) -> None:
        """Assumes the sizes that the params state, or those that exactly so many threads cover, so that the
        block has a constant size.
        """
        if self.sizes:
            ranges = [(size, size) for size in self.sizes]
        elif self.threads > 0 and is_one_size(space):
            fewer = self.elements * (self.threads - self.step) - self.before
            if self.turn:
                fewer = max(fewer, (self.elements - self.turn) * self.threads)
            ranges = [(max(0, fewer) + 1, self.elements * self.threads - self.before)]
        else:
            return
        assume_sizes(schedule, space, ranges)

    def _length(self, space: ReductionSpace) -> int | None:
        """Returns the number of elements, if the fusion or the params state it.

        Raises:
            ParamsError: the params assume sizes that the dimensions cannot have.
        """
        extents = space.reduced_extents
        known = list(map(as_int, extents))
        if self.sizes:
            fits = len(self.sizes) == len(known) and all(b in (None, a) for a, b in zip(self.sizes, known))
            if not fits or not has_sizes(space):
                raise ParamsError(
                    path="assumed_reduction_sizes",
                    expected=f"() or ({', '.join(map(str, extents))})",
                    given=self.sizes,
                )
            return prod(self.sizes)
        return as_int(product(extents))


def assume_sizes(schedule: Schedule, space: ReductionSpace, ranges: Iterable[tuple[int, int]]) -> None:
    """Assumes the least and the greatest value of each reduced size that is not constant.

    ranges: of all reduced sizes, or none.
    """
    given = dict(zip(space.reduced_extents, ranges))
    for extent, (low, high) in given.items():
        if extent in space.unknown_extents and extent in space.dimensions:
            schedule.assume(*space.dimensions[extent], low, high)
    # What a computed size is follows from that of a product with it.
    tensor = space.reference
    for axis in space.reduction if given else ():
        factors = factors_of(axis.extent)
        if not space.dimensions.keys() >= space.unknown_extents.intersection(factors):
            low, high = (prod(ends) for ends in zip(*(given[factor] for factor in factors)))
            schedule.assume(tensor, tensor.logical.index(axis), low, high)


def are_stable(space: ReductionSpace, facts: Facts) -> bool:
    """Whether the kernel may take sizes of reduced dimensions as constants that are not constant anyway."""
    sizes = space.unknown_extents
    return bool(sizes) and space.may_be_assumed and facts.stable >= sizes and all(map(facts.value, sizes))


def for_this_length(params: P, space: ReductionSpace, facts: Facts, what: str) -> P:
    """Returns the params for a kernel that takes the sizes of the reduced dimensions as constants.

    what: "rows" or "columns".
    """
    reason = f"{params.reason}; for {what} of this length only"
    return replace(params, assumed_reduction_sizes=space.reduction_sizes(facts), reason=reason)


def for_any_length(params: P, space: ReductionSpace, threads: str) -> P:
    """Returns the params for a kernel that takes any length. The threads follow from the length where nothing
    can be assumed of it. They are whole warps then, so a block has fewer rows than with parts of warps.

    threads: their field of lparams.
    """
    if is_one_size(space) or space.is_constant:
        return params
    any_length = replace(params, lparams=replace(params.lparams, **{threads: UNSET}))
    if not isinstance(any_length, ReductionParams) or not any_length.fastest_dim:
        return any_length
    lanes, rows = params.lparams.bdimx, params.lparams.bdimy
    rows = max(1, rows * lanes // max(lanes, any_length.threads_step))
    return replace(any_length, lparams=replace(any_length.lparams, bdimy=rows))


def is_one_size(space: ReductionSpace) -> bool:
    """Whether a row is as long as one dimension of an input, of which something may be assumed."""
    return len(space.reduction) == 1 and isinstance(space.reduction[0].extent, (Symbol, Const))


def has_sizes(space: ReductionSpace) -> bool:
    """Whether the kernel may take the sizes of reduced dimensions as constants, if they are known."""
    return all(isinstance(extent, (Symbol, Const)) for extent in space.reduced_extents)
