"""The two groups of a transposing fusion's accesses, by the dimension along which each is contiguous."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fusewright.analyze.vectorize import unit_stride_axis
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import position_of, value_of
from fusewright.ir.node import Indexed
from fusewright.ir.value import TensorView
from fusewright.schedulers.pointwise.space import PointwiseSpace, pointwise_space
from fusewright.schedulers.reference_map import Access
from fusewright.sym import Expr, FloorDiv, Mod, Symbol


@dataclass(frozen=True, slots=True, eq=False)
class AccessAlong:
    """A load or store whose neighbours in memory are along a dimension of the reference.

    Attributes:
        access: the load or store.
        axis: that dimension.
        order: the reference's dimensions along which it goes, the outermost in memory first.
        full: whether it has another element for each point of the reference.
    """

    access: Access
    axis: IterDomain
    order: tuple[IterDomain, ...]
    full: bool

    @property
    def tensor(self) -> TensorView:
        return self.access.tensor

    def is_store(self, fusion: Fusion) -> bool:
        return not fusion.is_input(self.tensor)


@dataclass(frozen=True, slots=True)
class AccessGroups:
    """The two groups of a fusion's accesses to global memory, and their contiguous dimensions (of
    `space.reference`). Group 1's threads compute.

    Attributes:
        second: the accesses that pass through shared memory.
        order1, order2: the dimensions along which the widest tensor of each group goes, the outermost in
            memory first; those of the reference's group are the reference's.
        outer1, outer2: positions (of `space.axes`) of dimensions that may be merged with the first and the
            second, from the inside. Some may be merged with either.
        beside1, beside2: the number of these that are adjacent to the tiled one in all tensors, so that no
            division has to undo the merge.
    """

    space: PointwiseSpace
    inner1: IterDomain
    inner2: IterDomain
    first: tuple[AccessAlong, ...]
    second: tuple[AccessAlong, ...]
    order1: tuple[IterDomain, ...]
    order2: tuple[IterDomain, ...]
    outer1: tuple[int, ...]
    outer2: tuple[int, ...]
    beside1: int
    beside2: int


def _accesses(fusion: Fusion, space: PointwiseSpace) -> list[AccessAlong]:
    """The accesses to tensors with neighbouring elements along one of the space's dimensions."""
    found = []
    wanted = {a for a in space.axes if not a.is_broadcast}
    for access in space.accesses(fusion):
        to_space = {ours: axis for axis, ours in access.axes.items()}
        unit = unit_stride_axis(access.tensor)
        axis = to_space.get(unit) if unit is not None else None
        if axis is None and unit is not None and (moving := _axis_of_values(access, unit)) is not None:
            found.append(AccessAlong(access, moving, (), full=False))
        elif axis is not None:
            stored = [a for a in access.tensor.allocation if not a.is_broadcast and a in to_space]
            order = tuple(to_space[a] for a in stored)
            covered = frozenset(order)
            # A read by index goes through its source along one dimension, and may jump along the others. One
            # at loaded indices stays with their threads, so that it cannot be in group 2.
            node = access.node if access.by_index else None
            if isinstance(node, Indexed) and not node.index_tensors:
                order, covered = _by_steps(access, node) or order, access.concrete
            found.append(AccessAlong(access, axis, order, wanted <= covered))
    return found


def _axis_of_values(access: Access, unit: IterDomain) -> IterDomain | None:
    """The dimension of the reference along which loaded indices alone say which of a tensor's neighbours are
    read; None if there is not one such dimension.

    Threads along it read within one run of memory, others in a run each.
    """
    node = access.node
    if not isinstance(node, Indexed):
        return None
    place = node.map.indices[node.source.shape.index(unit)]
    if all(value_of(symbol) is None for symbol in place.free_symbols):
        return None
    moving = [axis for axis in access.varying if axis not in access.axes]
    return moving[0] if len(moving) == 1 else None


def _by_steps(access: Access, node: Indexed) -> tuple[IterDomain, ...] | None:
    """The reference's dimensions along which a read by index goes, the one of the longest steps first; None
    if steps are sizes.

    Of several dimensions in one of the source's those of longer steps come first.
    """
    source = node.source
    place = {axis: i for i, axis in enumerate(source.allocation)}
    steps: dict[IterDomain, tuple[int, int]] = {}
    for axis, ours in access.strided.items():
        step = _step(node.map.indices[source.shape.index(ours)], access.dims[axis])
        if not step:
            return None
        steps[axis] = place[ours], -abs(step)
    return tuple(sorted(steps, key=steps.__getitem__))


def _step(e: Expr, dim: int) -> int | None:
    """Returns how far an index goes from a position along `dim` to the next, except where a division's result
    jumps; None if that is no number.
    """
    if isinstance(e, Symbol):
        return int(position_of(e) == dim)
    if all(position_of(symbol) != dim for symbol in e.free_symbols):
        return 0
    if isinstance(e, (Mod, FloorDiv)):
        return _step(e.args[0], dim) if isinstance(e, Mod) else 0
    total = 0
    for core, coefficient in e.terms:
        step = None if core is e or len(core.factors) > 1 else _step(core, dim)
        if step is None:
            return None
        total += coefficient * step
    return total


def access_groups(fusion: Fusion, reference: TensorView | None = None) -> AccessGroups | str:
    """The groups, or why there are not two. Without a `reference` one is chosen.

    Group 1 is that of an output which moves most bytes, so that least passes through shared memory. It is the
    other one where more is loaded along that one's dimension once what is no element for each point counts,
    too: a table that goes along both dimensions is read in whole sectors by threads that go along its own.
    """
    space = pointwise_space(fusion, reference)
    if isinstance(space, str):
        return space
    full: dict[IterDomain, list[AccessAlong]] = {}
    accesses = _accesses(fusion, space)
    for access in accesses:
        if access.full:
            full.setdefault(access.axis, []).append(access)
    if len(full) < 2:
        return "all tensors of full rank are contiguous along the same dimension"

    def moved(axis: IterDomain) -> tuple[int, int]:
        """Returns a key of dimensions: the bytes that move along them; among equals, the inner one is
        greater, so that caches change nothing.
        """
        return sum(a.tensor.dtype.size for a in full[axis]), space.axes.index(axis)

    if reference is None:
        stored = [axis for axis, members in full.items() if any(a.is_store(fusion) for a in members)]
        if not stored:
            return "no output is contiguous along a dimension"
        inner = max(stored, key=moved)
        chosen = next(a.tensor for a in full[inner] if a.is_store(fusion))
        if chosen is not space.reference:
            return access_groups(fusion, chosen)
    inner1 = next(a.axis for a in accesses if a.tensor is space.reference)
    inner2 = max((axis for axis in full if axis is not inner1), key=moved)
    if _crossing(accesses, inner2, inner1):
        bytes1, bytes2 = (
            moved(axis)[0] + _crossing(accesses, axis, other)
            for axis, other in ((inner1, inner2), (inner2, inner1))
        )
        if bytes2 > bytes1:
            inner1, inner2 = inner2, inner1
    order1, order2 = (_order(space, full[axis]) for axis in (inner1, inner2))
    outer1 = _outer(space, order1, inner1, {inner2})
    outer2 = _outer(space, order2, inner2, {inner1})
    first = tuple(a for a in accesses if a.axis is inner1)
    every = space.accesses(fusion)
    beside1, beside2 = (
        _count_beside([inner, *(space.axes[p] for p in outer)], every)
        for inner, outer in ((inner1, outer1), (inner2, outer2))
    )
    second = tuple(full[inner2])
    return AccessGroups(
        space, inner1, inner2, first, second, order1, order2, outer1, outer2, beside1, beside2
    )


def _crossing(accesses: Sequence[AccessAlong], axis: IterDomain, other: IterDomain) -> int:
    """Bytes for each point of what lies along `axis`, goes along `other`, and has not all of the points."""
    along = (a for a in accesses if a.axis is axis and not a.full)
    return sum(a.tensor.dtype.size for a in along if other in a.access.concrete)


def _order(space: PointwiseSpace, members: Sequence[AccessAlong]) -> tuple[IterDomain, ...]:
    """The dimensions of the members' widest tensor in memory order, or the reference's, if it is a member."""
    if any(member.tensor is space.reference for member in members):
        return space.axes
    return max(members, key=lambda a: a.tensor.dtype.size).order


def _outer(
    space: PointwiseSpace, order: Sequence[IterDomain], inner: IterDomain, stop: Collection[IterDomain]
) -> tuple[int, ...]:
    """Positions of the dimensions around `inner` in memory, inside of the first in `stop`."""
    found = []
    for axis in reversed(order[: order.index(inner)]):
        if axis in stop:
            break
        found.append(space.axes.index(axis))
    return tuple(found)


def _count_beside(axes: Sequence[IterDomain], accesses: Sequence[Access]) -> int:
    """Returns how many of `axes`, from the inside out, are as one dimension with the first to all
    accesses.
    """
    count = 0
    while count + 1 < len(axes) and all(_are_one(a, axes[count + 1], axes[count]) for a in accesses):
        count += 1
    return count


def _are_one(access: Access, outer: IterDomain, inner: IterDomain) -> bool:
    """Whether an access goes through two of the reference's dimensions as through one, or through neither."""
    if not access.varying.isdisjoint((outer, inner)) and not _keeps_places(access, outer, inner):
        return False
    ours = [access.axes.get(axis) for axis in (outer, inner)]
    concrete = [axis for axis in ours if axis is not None and not axis.is_broadcast]
    stored = zip(access.tensor.allocation, access.tensor.contiguity)
    neighbours = pairwise([(axis, dense) for axis, dense in stored if not axis.is_broadcast])
    return not concrete or any(dense and [above, below] == ours for (above, dense), (below, _) in neighbours)


def _keeps_places(access: Access, outer: IterDomain, inner: IterDomain) -> bool:
    """Whether an access by index has its tensor's dimensions in the places of these two of the reference."""
    node = access.node
    if not isinstance(node, Indexed) or node.index_tensors:
        return False
    ours = {axis: access.axes.get(axis) for axis in (outer, inner)}
    for axis, theirs in ours.items():
        if theirs not in node.source.shape or theirs.extent != axis.extent:
            return False
        along = [
            e for e in node.map.indices if any(position_of(s) == access.dims[axis] for s in e.free_symbols)
        ]
        if along != [node.map.indices[node.source.shape.index(theirs)]] or not isinstance(along[0], Symbol):
            return False
    return True
