"""How the dimensions of a pointwise kernel are split into rows and columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusewright.schedulers.vector_limits import Vectors


@dataclass(frozen=True, slots=True)
class Cut:
    """The rows and columns that the dimensions are split into.

    Attributes:
        at: the number of dimensions that are rows; 0: all dimensions are one row.
        why: the reason, for people.
        vectors: the vectors of the columns.
        dim: the dimension whose size they divide.
        shifts: whether all dimensions are one row, whose first and last vectors may be partial.
        busy: the fraction of a block's threads that have columns.
        cost: accesses per element, including threads without columns.
        planes: the number of rows per thread that are planes of a join; 0: they are not.
        rows: the number of rows that a thread should have because they share loads.
    """

    at: int
    why: str
    vectors: Vectors
    dim: int
    shifts: bool
    busy: float
    cost: float
    planes: int = 0
    rows: int = 1


def broadcasts_served(broadcasts: Sequence[Sequence[bool]], cut: int) -> int:
    """The number of broadcast inputs that a split into rows and columns at `cut` serves.

    In one dimension every access to a broadcast input divides its index; in two, an input that is a broadcast
    along all rows or all columns does not, and one read serves all of a thread's rows.
    """
    return sum(not any(p[:cut]) or not any(p[cut:]) for p in broadcasts)
