"""Buffers while a kernel runs: registers, shared and global memory, and facts about their contents.

Every memory offers `load` and `store` of `width` adjacent elements per lane. Values are tensors that
broadcast to (blocks, threads) and are never changed in place, so a load may return the tensor that was
stored. Memory that nothing wrote holds NaN (the greatest integer, True), and reading it is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fusewright.core.dtype import DataType
from fusewright.core.errors import OutOfBoundsError, RaceError, SimulationError, UninitializedReadError
from fusewright.core.hardware import BULK_BYTES
from fusewright.core.once import cached_property
from fusewright.core.op import CombineSpelling, movable, selected
from fusewright.sim.activity import Activity
from fusewright.sim.faults import Fault
from fusewright.sim.index import Lanes
from fusewright.sim.races import BARRIERS, AccessLog, Actors, Conflict, Order

Filled = bool | Tensor
"""Where a register holds a fill that stands for no value, or what was computed from one: nowhere, everywhere,
or in the lanes of a mask."""


@dataclass(frozen=True)
class Access:
    """The origin of an access: the active lanes, and the stamps (blocks, threads) of all lanes (see
    races.py).
    """

    active: Activity
    all_stamps: Tensor
    order: Order = BARRIERS

    @cached_property
    def actors(self) -> Actors:
        """The active lanes."""
        active = self.active
        return Actors(active.lanes, active.threads, active.compress(self.all_stamps), self.order)


def poison(dtype: DataType) -> float | int | bool:
    """What memory holds that nothing has written: NaN, or the value that is likeliest to be noticed."""
    return float("nan") if dtype.is_floating or dtype.is_complex else dtype.highest


def poisoned(shape: tuple[int, ...], dtype: DataType) -> Tensor:
    return torch.full(shape, poison(dtype), dtype=dtype.values)


class LocalMemory:
    """The registers of every thread: one value an element, replaced as a whole when it is stored to."""

    def __init__(self, name: str, dtype: DataType, size: int) -> None:
        self.name, self.dtype, self.size = name, dtype, size
        self._values: list[Tensor | None] = [None] * size
        # Where the element was written: nowhere, everywhere, or in the lanes of a mask.
        self._written: list[bool | Tensor] = [False] * size
        self._filled: list[Filled] = [False] * size
        self._has_fills = False

    def load(self, index: Lanes, width: int, access: Access) -> list[Tensor]:
        index = checked_index(self.name, self.size, index, width, access.active, aligned=False)
        return [self._load(index + k, access.active) for k in range(width)]

    def store(
        self, index: Lanes, values: Sequence[Tensor], access: Access, filled: Sequence[Filled] = ()
    ) -> None:
        index = checked_index(self.name, self.size, index, len(values), access.active, aligned=False)
        for k, value in enumerate(values):
            check_dtype(self.name, self.dtype, value)
            self._store(index + k, value, access.active)
            self._mark(index + k, filled[k] if filled else False, access.active)

    def filled(self, index: Lanes, width: int, access: Access) -> list[Filled]:
        """Which of the elements hold fills, in the active lanes."""
        if not self._has_fills:
            return [False] * width
        active = access.active
        index = checked_index(self.name, self.size, index, width, active, aligned=False)
        return [self._filled_at(index + k, active) for k in range(width)]

    def _filled_at(self, index: Lanes, active: Activity) -> Filled:
        result: Filled = False
        for element, part in self._split(index, active):
            mark = self._filled[element]
            if mark is not False:
                here = torch.as_tensor(mark) if part.mask is None else part.mask & torch.as_tensor(mark)
                result = here if result is False else result | here
        return result

    def _mark(self, index: Lanes, filled: Filled, active: Activity) -> None:
        if not self._has_fills and filled is False:
            return
        self._has_fills = True
        for element, part in self._split(index, active):
            old = self._filled[element]
            if old is filled:
                continue
            if part.mask is None:
                self._filled[element] = filled
            else:
                self._filled[element] = torch.where(part.mask, torch.as_tensor(filled), torch.as_tensor(old))

    def forget(self, index: Lanes, keep: Tensor, active: Activity) -> None:
        """Make the element that active lanes address undefined where `keep` is false."""
        for element, _ in self._split(index, active):
            written = self._written[element]
            self._written[element] = keep if isinstance(written, bool) else keep & written

    def _split(self, index: Lanes, active: Activity) -> list[tuple[int, Activity]]:
        """The elements that the active lanes address, each with the lanes that address it."""
        if not isinstance(index, Tensor):
            return [(index, active)]
        parts = [(element, active.narrow(index == element)) for element in range(self.size)]
        return [(element, part) for element, part in parts if part is not None]

    def _load(self, index: Lanes, active: Activity) -> Tensor:
        result: Tensor | None = None
        for element, part in self._split(index, active):
            value, written = self._values[element], self._written[element]
            if written is not True and written is not part.mask:
                lane = part.first(not written if isinstance(written, bool) else ~written)
                if lane is not None:
                    problem = f"element {element} of `{self.name}` is read and was never written"
                    raise Fault(UninitializedReadError, problem, lane, index=element)
            assert value is not None
            result = value if result is None else selected(torch.as_tensor(index == element), value, result)
        assert result is not None  # some lane is active, and its index is in bounds
        return result

    def _store(self, index: Lanes, value: Tensor, active: Activity) -> None:
        for element, part in self._split(index, active):
            if part.mask is None:
                self._values[element], self._written[element] = value, True
                continue
            old, written = self._values[element], self._written[element]
            self._values[element] = selected(
                part.mask, value, poisoned((1, 1), self.dtype) if old is None else old
            )
            if written is False:
                self._written[element] = part.mask
            elif written is not True and written is not part.mask:
                union = written | part.mask
                self._written[element] = True if bool(union.all()) else union


class Region:
    """A stretch of memory in which buffers may overlap, in granules: the smallest unit that they share.

    Attributes:
        tags: the buffer whose value each granule holds (0: none).
        log: the threads that accessed it.
    """

    def __init__(self, granules: int, granule_bytes: int, *, races: bool, tags: bool, reads: bool) -> None:
        self.granule_bytes = granule_bytes
        self.tags = torch.zeros(granules, dtype=torch.int32) if tags else None
        self.log = AccessLog(granules, reads=reads) if races else None


@dataclass(frozen=True)
class Members:
    """The elements of a buffer that belong to its tensor, of these sizes and strides: `own`, bool by index.

    The others, such as the padding of rows, may belong to something else.
    """

    own: Tensor
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Run:
    """The elements that bulk copies access: all of the first copy's, then those of the next.

    Attributes:
        elements: their indices in the buffer.
        actors: for each element, the copy's origin.
        first: the position in `elements` of the first element of each copy.
        counts: the number of elements of each copy.
    """

    elements: Tensor
    actors: Actors
    first: Tensor
    counts: Tensor


class LinearMemory:
    """A shared or global buffer: elements of a flat tensor, some of which may be shared with other buffers.

    Args:
        flat: the storage; a lane's element i is flat[origin + i].
        size: the number of elements of the buffer.
        origin: 0, or for shared memory an int64 tensor (blocks, 1).
        region: where accesses are checked and logged; None for memory that is only read.
        first: the granule of flat[0] in the region.
        tag: marks this buffer's values in the region.
        unaligned: the distance of element 0 from a multiple of 128 bytes, in bytes.
        defined: whether elements that nothing has written hold values anyway, like those of an input.
        members: the elements that may be accessed; None if all may.
    """

    def __init__(
        self,
        name: str,
        dtype: DataType,
        flat: Tensor,
        size: int,
        *,
        origin: int | Tensor = 0,
        region: Region | None = None,
        first: int = 0,
        tag: int = 0,
        unaligned: int = 0,
        defined: bool = False,
        members: Members | None = None,
    ) -> None:
        self.name, self.dtype, self.size = name, dtype, size
        self._defined, self._members = defined, members
        self._flat, self._origin, self._region = flat, origin, region
        self._first, self._tag, self._unaligned = first, tag, unaligned
        self._granules = flat.element_size() // region.granule_bytes if region is not None else 1
        self._filled: Tensor | None = None  # by position, once a fill was stored

    def load(self, index: Lanes, width: int, access: Access) -> list[Tensor]:
        positions = self._positions(index, width, access)
        if self._members is not None:
            self._check_members(self._members, access.active.compress(positions), width, access.active.lanes)
        if self._region is not None:
            self._note_read(self._region, access.active.compress(positions), width, access.actors)
        if width == 1:
            return [self._flat[positions]]
        return list(self._rows(width)[_divide(positions, width)].unbind(-1))

    def misalignment(self, width: int) -> int:
        """The distance of the buffer's address from a multiple of `width` elements, in elements."""
        return self._unaligned // self._flat.element_size() % width

    def load_covering(
        self, index: Lanes, wanted: Sequence[Tensor], access: Access
    ) -> tuple[list[Tensor], list[Filled]]:
        """A vector at an aligned address, and which of its elements are none of the tensor's.

        wanted: for each element the lanes for which it counts as read.
        """
        active, width = access.active, len(wanted)
        index = checked_index(self.name, self.size, index, width, active, aligned=False)
        own = torch.as_tensor(index).reshape(1, 1) if not isinstance(index, Tensor) else index
        lane = active.first((own + self.misalignment(width)) % width != 0)
        if lane is not None:
            problem = f"misaligned access: the address of index {_at_lane(own, lane, active)}"
            raise Fault(
                SimulationError, f"{problem} of `{self.name}` is no multiple of {width} elements", lane
            )
        positions = self._placed(index)
        if self._region is not None:
            for k, lanes in enumerate(wanted):
                if (reading := active.narrow(lanes)) is not None:
                    reader = Access(reading, access.all_stamps, access.order).actors
                    self._note_read(self._region, reading.compress(positions + k), 1, reader)
        values = [self._flat[positions + k] for k in range(width)]
        if self._members is None:
            return values, [False] * width
        return values, [~self._members.own[positions + k] for k in range(width)]

    def filled(self, index: Lanes, width: int, access: Access) -> list[Filled]:
        """Which of the elements hold fills, in the active lanes."""
        if self._filled is None:
            return [False] * width
        positions = self._positions(index, width, access)
        return [self._filled[positions + k] for k in range(width)]

    def _mark(self, positions: Tensor, filled: Sequence[Filled], active: Activity) -> None:
        if self._filled is None:
            if not any(mark is not False for mark in filled):
                return
            self._filled = torch.zeros(self._flat.numel(), dtype=torch.bool)
        for k, mark in enumerate(filled):
            self._filled[positions + k] = mark if isinstance(mark, bool) else active.compress(mark)

    def store(
        self, index: Lanes, values: Sequence[Tensor], access: Access, filled: Sequence[Filled] = ()
    ) -> None:
        width = len(values)
        for value in values:
            check_dtype(self.name, self.dtype, value)
        positions = access.active.compress(self._positions(index, width, access))
        if self._members is not None:
            self._check_members(self._members, positions, width, access.active.lanes)
        if self._region is not None:
            self._note_write(self._region, positions, width, access.actors)
        self._mark(positions, filled or [False] * width, access.active)
        compressed = [access.active.compress(value) for value in values]
        if width == 1:
            movable(self._flat)[positions] = movable(compressed[0])
        else:
            vectors = torch.stack([movable(value) for value in compressed], dim=-1)
            movable(self._rows(width))[_divide(positions, width)] = vectors

    def scatter(
        self, index: Lanes, values: Sequence[Tensor], combine: CombineSpelling | None, access: Access
    ) -> None:
        """Elements that several lanes may name: the value of one remains, or those of all are combined."""
        width = len(values)
        for value in values:
            check_dtype(self.name, self.dtype, value)
        positions = access.active.compress(self._positions(index, width, access))
        if self._members is not None:
            self._check_members(self._members, positions, width, access.active.lanes)
        flat = movable(self._flat)
        for k, value in enumerate(values):
            new = movable(access.active.compress(value).expand(positions.shape))
            at, new = _one_of_each(positions + k, new, combine)
            flat[at] = new if combine is None else combine.torch((flat[at],), (new,))[0]

    def clobber(self) -> None:
        """Undefine the contents, with a barrier before and after: a collective used them as scratch."""
        if self._region is None:
            return
        positions = torch.arange(self.size) + self._origin
        addresses = self._addresses(positions.reshape(-1), 1)
        if self._region.tags is not None:
            self._region.tags[addresses] = 0
        if self._region.log is not None:
            self._region.log.clear(addresses)

    def elements(self) -> Tensor:
        """The contents of a global buffer, not a copy."""
        assert isinstance(self._origin, int)
        return self._flat[self._origin : self._origin + self.size]

    def _rows(self, width: int) -> Tensor:
        """The storage as aligned vectors. An incomplete last one is out of every buffer's bounds."""
        return self._flat[: self._flat.numel() // width * width].view(-1, width)

    def _positions(self, index: Lanes, width: int, access: Access) -> Tensor:
        active = access.active
        index = checked_index(self.name, self.size, index, width, active, aligned=True)
        if width > 1 and self._unaligned % (width * self._flat.element_size()):
            vector = width * self._flat.element_size()
            raise Fault(
                SimulationError,
                f"misaligned access: vectors of {vector} bytes in `{self.name}`, "
                f"which starts {self._unaligned % vector} bytes after a multiple of that",
            )
        return self._placed(index)

    def _placed(self, index: Lanes) -> Tensor:
        """Where checked indices lie in the memory of the chunk's blocks."""
        if isinstance(index, Tensor):
            return index + self._origin if isinstance(self._origin, Tensor) or self._origin else index
        if isinstance(self._origin, Tensor):
            return self._origin + index
        return torch.full((1, 1), index + self._origin)

    def _addresses(self, positions: Tensor, width: int) -> Tensor:
        """The granules of `width` elements from each position on, one position's after the other's."""
        addresses = positions if self._granules == 1 else positions * self._granules
        if self._first:
            addresses = addresses + self._first
        span = width * self._granules
        return addresses if span == 1 else (addresses[:, None] + torch.arange(span)).reshape(-1)

    def _check_members(self, members: Members, positions: Tensor, width: int, lanes: Tensor) -> None:
        elements = positions if width == 1 else (positions[:, None] + torch.arange(width)).reshape(-1)
        stray = ~members.own[elements]
        if bool(stray.any()):
            number = int(stray.nonzero()[0])
            index = int(elements[number])
            problem = (
                f"index {index} of `{self.name}` is none of its elements: "
                f"sizes {list(members.sizes)}, strides {list(members.strides)}"
            )
            raise Fault(OutOfBoundsError, problem, int(lanes[number // width]), index=index)

    def _note_read(self, region: Region, positions: Tensor, width: int, actors: Actors) -> None:
        addresses = self._addresses(positions, width)
        if region.tags is not None and not self._defined:
            unwritten = region.tags[addresses] != self._tag
            if bool(unwritten.any()):
                lane, index = self._culprit(int(unwritten.nonzero()[0]), width, positions, actors)
                problem = f"element {index} of `{self.name}` is read and was never written"
                raise Fault(UninitializedReadError, problem, lane, index=index)
        if region.log is not None:
            conflict = region.log.on_read(addresses, actors.spread(width * self._granules))
            if conflict is not None:
                self._raise_race("reads", conflict, width, positions, actors)

    def _note_write(self, region: Region, positions: Tensor, width: int, actors: Actors) -> None:
        addresses = self._addresses(positions, width)
        if region.log is not None:
            conflict = region.log.on_write(addresses, actors.spread(width * self._granules))
            if conflict is not None:
                self._raise_race("writes", conflict, width, positions, actors)
        if region.tags is not None:
            region.tags[addresses] = self._tag

    def _culprit(self, position: int, width: int, positions: Tensor, actors: Actors) -> tuple[int, int]:
        """The lane and the element index of an address, given its number among those of the access."""
        number, granule = divmod(position, width * self._granules)
        lane = int(actors.lanes[number])
        origin = self._origin
        start = int(origin[lane // actors.threads, 0]) if isinstance(origin, Tensor) else origin
        return lane, int(positions[number]) - start + granule // self._granules

    def _raise_race(
        self, verb: str, conflict: Conflict, width: int, positions: Tensor, actors: Actors
    ) -> None:
        lane, index = self._culprit(conflict.position, width, positions, actors)
        own = "this thread" if actors.left is None else "a copy of this thread"
        raise Fault(
            RaceError,
            f"race: {own} {verb} element {index} of `{self.name}`, which {{other}} {conflict.verb} "
            f"with no {actors.order.what} between",
            lane,
            index=index,
            other_block=conflict.block,
            other_thread=conflict.thread,
        )

    # ---- runs of elements that the copy engine moves

    def read_run(self, run: Run) -> Tensor:
        """The elements of a run."""
        positions = self._run(run)
        if self._members is not None:
            self._check_members(self._members, positions, 1, run.actors.lanes)
        if self._region is not None:
            self._note_read(self._region, positions, 1, run.actors)
        return self._flat[positions]

    def write_run(self, run: Run, values: Tensor) -> None:
        positions = self._run(run)
        if self._region is not None:
            self._note_write(self._region, positions, 1, run.actors)
        if self._filled is not None:
            self._filled[positions] = False
        movable(self._flat)[positions] = movable(values)

    def _run(self, run: Run) -> Tensor:
        """The positions of a run's elements; a Fault where it leaves the buffer or is misaligned."""
        bytes_ = self._flat.element_size()
        starts = run.elements[run.first] * bytes_ + self._unaligned
        wrong = starts % BULK_BYTES != 0
        if bool(wrong.any()):
            number = int(wrong.nonzero()[0])
            lane = int(run.actors.lanes[run.first[number]])
            problem = f"misaligned copy: it starts at byte {int(starts[number])} of `{self.name}`"
            raise Fault(SimulationError, f"{problem}, no multiple of {BULK_BYTES}", lane)
        outside = (run.elements < 0) | (run.elements >= self.size)
        if bool(outside.any()):
            number = int(outside.nonzero()[0])
            _raise_out_of_bounds(
                self.name, self.size, int(run.elements[number]), 1, int(run.actors.lanes[number])
            )
        if isinstance(self._origin, Tensor):
            return run.elements + self._origin[run.actors.lanes // run.actors.threads, 0]
        return run.elements + self._origin


Memory = LocalMemory | LinearMemory


def _one_of_each(places: Tensor, values: Tensor, combine: CombineSpelling | None) -> tuple[Tensor, Tensor]:
    """The places, each once, with one of the values for it, or all of them combined, pair by pair."""
    order = torch.argsort(places, stable=True)
    places, values = places[order], values[order]
    while places.numel() > 1:
        count = torch.arange(places.numel())
        starts = torch.ones_like(places, dtype=torch.bool)
        starts[1:] = places[1:] != places[:-1]
        if bool(starts.all()):
            break
        rank = count - torch.where(starts, count, 0).cummax(0).values
        kept = rank == 0 if combine is None else rank % 2 == 0
        if combine is not None:
            paired = count[~kept]
            values = values.clone()
            values[paired - 1] = combine.torch((values[paired - 1],), (values[paired],))[0]
        places, values = places[kept], values[kept]
    return places, values


def checked_index(
    name: str, size: int, index: Lanes, width: int, active: Activity, *, aligned: bool
) -> Lanes:
    """The index, made safe in every lane; a Fault if active lanes violate the bounds or the alignment."""
    last = size - width
    if not isinstance(index, Tensor):
        if not 0 <= index <= last:
            _raise_out_of_bounds(name, size, index, width, None)
        if aligned and index % width:
            _raise_misaligned(name, index, width, None)
        return index
    low, high = (int(bound) for bound in index.aminmax())
    if low < 0 or high > last:
        outside = (index < 0) | (index > last)
        lane = active.first(outside)
        if lane is not None:
            _raise_out_of_bounds(name, size, _at_lane(index, lane, active), width, lane)
        index = torch.where(outside, 0, index)
    if aligned and width > 1:
        misaligned = index % width != 0
        if bool(misaligned.any()):
            lane = active.first(misaligned)
            if lane is not None:
                _raise_misaligned(name, _at_lane(index, lane, active), width, lane)
    return index


def check_dtype(name: str, dtype: DataType, value: Tensor) -> None:
    """A Fault if `value` is stored to a buffer of another dtype."""
    if value.dtype != dtype.values:
        raise Fault(
            SimulationError,
            f"a value of {value.dtype} is stored to `{name}` of {dtype.values} without a cast",
        )


def _divide(positions: Tensor, width: int) -> Tensor:
    if width & (width - 1) == 0:
        return positions >> (width.bit_length() - 1)
    return torch.div(positions, width, rounding_mode="floor")


def _at_lane(index: Tensor, lane: int, active: Activity) -> int:
    return int(index.expand(active.blocks, active.threads)[divmod(lane, active.threads)])


def _raise_out_of_bounds(name: str, size: int, index: int, width: int, lane: int | None) -> None:
    what = f"index {index}" if width == 1 else f"indices {index} to {index + width - 1}"
    problem = f"{what} out of bounds of `{name}`, which has {size} elements"
    raise Fault(OutOfBoundsError, problem, lane, index=index)


def _raise_misaligned(name: str, index: int, width: int, lane: int | None) -> None:
    problem = f"misaligned access: index {index} of `{name}` is no multiple of the vector width {width}"
    raise Fault(SimulationError, problem, lane, index=index)
