"""The fields that the params of all schedulers have, and the limits that several of them share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from fusewright.core.errors import ParamsError
from fusewright.core.hardware import HardwareInfo
from fusewright.schedulers.params.decision import Decision, check_hardware, fields_of
from fusewright.schedulers.params.launch import CompileParams, LaunchChoice, LaunchParams
from fusewright.schedulers.params.legal import Legal, counts, powers_of_two
from fusewright.schedulers.params.space import space

P = TypeVar("P", bound="HeuristicParams")

# The widest access, 16 bytes, of the smallest elements. What of it a dtype allows, the lowering checks.
MAX_VECTOR = 16
# Copies of a loop's body: more make a kernel that compiles for minutes and spills all its registers.
MAX_UNROLL = 128
# Unrolling that a space tries: a thread with more in flight spills.
TRIED_UNROLL = (1, 2, 4, 8, 16)

# Of a row that begins anywhere, the vectors at its ends are accessed by elements: code as of narrow vectors.
SHIFTED_WIDTH = 4

WIDTHS: Legal = powers_of_two(MAX_VECTOR, what="Vectorization factor")
UNROLLING: Legal = counts(1, MAX_UNROLL, TRIED_UNROLL)


@dataclass(frozen=True, slots=True)
class HeuristicParams(Decision):
    """The base of the params that a scheduler's planner chooses.

    A subclass declares its fields with `choice`, and the extents of `lparams` that it reads with `launch`.

    Attributes:
        lparams: extents of the grid and the block.
        cparams: compiler settings.
        reason: why a heuristic chose these values. It does not take part in equality.
    """

    lparams: LaunchParams = LaunchParams()
    cparams: CompileParams = CompileParams()
    reason: str = field(default="", compare=False)

    def validate(self, hardware: HardwareInfo) -> None:
        Decision.validate(self, hardware)
        for declared in fields_of(type(self)):
            if isinstance(declared.choice, LaunchChoice):
                declared.choice.check(self)

    def for_length(self: P, length: int) -> P:
        """The same for rows, or columns, of `length`, if fields state how many threads hold these."""
        return self

    @classmethod
    def space(
        cls: type[P],
        hardware: HardwareInfo,
        *,
        base: P | None = None,
        points: int | None = None,
        seed: int = 0,
    ) -> Iterator[P]:
        """Legal params, which `validate` accepts: the points that sweeps and tuning try.

        Args:
            base: has the values that are not varied: `cparams`, and fields without declared legal values,
                since the fusion determines them. None: the defaults.
            points: the size of a stratified sample, which is the same for the same seed: each value of each
                field is in about as many points as every other. None, or more than there are: all points.

        Raises:
            ParamsError: not a description of a GPU, params of another class, or a number of points below 1.
        """
        check_hardware(hardware)
        if base is not None and not isinstance(base, cls):
            raise ParamsError(path="base", expected=f"{cls.__name__} or None", given=repr(base))
        if points is not None and (isinstance(points, bool) or not isinstance(points, int) or points < 1):
            raise ParamsError(path="points", expected="1 or more, or None", given=repr(points))
        return space(cls() if base is None else base, hardware, points, seed)
