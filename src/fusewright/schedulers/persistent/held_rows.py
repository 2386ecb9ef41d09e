"""Which values of a row are held, where, and which are recomputed: shared by schedulers that hold rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fusewright.analyze.persistent import Reachability, persistent_tensors
from fusewright.core.enums import MemoryType, ParallelType
from fusewright.core.op import Rule
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Copy, Node, Pointwise, Reduction, Scan
from fusewright.ir.value import TensorView, Val
from fusewright.rewrite.proposed.one_pass_softmax import in_one_pass, softmax_sums
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import Part, Rewrite
from fusewright.schedulers.io import cache_inputs_and_outputs
from fusewright.schedulers.reduction.space import ReductionSpace, reduction_space
from fusewright.schedulers.slots import slots_of
from fusewright.sym import Expr

# Factor by which the nodes of a fusion may grow by what is computed anew for each reduction: beyond it
# several kernels are cheaper.
MAX_GROWTH = 4
# Slots of a node up to which it may be computed any number of times, and the most times for others.
#   H200, six layers of RMS norm and SiLU on a stream of floats, us: 8192x4096 888, as two kernels 248;
#   16384x1024 421 and 127.
CHEAP_SLOTS = 4  # of a node
MAX_TIMES = 5  # for nodes of more slots
# Times these limits for rows of which nothing is computed anew.
HELD_TIMES = 2


@dataclass(frozen=True)
class Held:
    """The bytes to hold for each element of a row.

    Attributes:
        at_once: the most that is held across any one reduction.
        in_all: the bytes of all tensors that are held across some reduction.
        copied: the bytes of each of these, if all are copies of inputs of types of one size, with an element
            for each point; else 0.
        tensors: their number.
    """

    at_once: int
    in_all: int
    copied: int = 0
    tensors: int = 1


def held_bytes(fusion: Fusion, *, project: bool) -> Held:
    """Returns what a schedule would hold, counted from the buffers that it makes.

    project: whether only inputs are held.
    """
    schedule = Schedule(fusion)
    cache_inputs_and_outputs(schedule)
    space = reduction_space(schedule.fusion, with_scans=True)
    assert isinstance(space, ReductionSpace), space
    recompute(schedule, space, everything=project)
    held = held_tensors(schedule.fusion, space)
    copies = {t for t in held if _is_copied(schedule.fusion, t) and space.has_every_element(t)}
    sizes = {tensor.dtype.size if tensor in copies else 0 for tensor in held}
    copied = sizes.pop() if len(sizes) == 1 else 0
    at_once, in_all = most_held(schedule.fusion, held), sum(tensor.dtype.size for tensor in held)
    return Held(at_once, in_all, copied, len(held))


def _is_copied(fusion: Fusion, tensor: TensorView) -> bool:
    node = tensor.definition
    return isinstance(node, Copy) and fusion.is_input(node.inputs[0])


def softmax_in_one_pass(part: Part, shared: bool = False) -> Rewrite | None:
    """One reduction for a maximum and the sum of exponentials, if nothing else needs the row again.

    Args:
        shared: whether blocks share a row; they then wait for each other once less.
    """
    found = list(softmax_sums(part.nodes))
    if not found or (not shared and _reads_again(part.fusion)):
        return None

    def replace_all(graph: Fusion) -> dict[TensorView, TensorView]:
        return {old: new for sums in found for old, new in in_one_pass(graph, sums).items()}

    reason = (
        "blocks that share a row exchange once" if shared else "a row that is not read again need not be held"
    )
    return Rewrite("softmax in one pass", replace_all, reason)


def _reads_again(fusion: Fusion) -> bool:
    """Whether a row is read after reductions of it by more than sums of exponentials."""
    nodes = fusion.ordered_nodes()
    inside = {tensor for sums in softmax_sums(nodes) for tensor in sums.inside}
    outputs = set(fusion.output_tensors())
    if any(len(tensor.uses) > 1 or tensor in outputs for tensor in inside):
        return True
    reduced = {axis.extent for node in nodes if isinstance(node, Reduction) for axis in node.output.logical}
    reduced -= {axis.extent for node in nodes if isinstance(node, Reduction) for axis in node.output.shape}
    after: set[Val] = set()
    for node in nodes:
        if isinstance(node, Reduction):
            after.update(node.outputs)
        elif not after.isdisjoint(node.inputs):
            after.update(node.outputs)
            if node.outputs[0] not in inside and any(_has(out, reduced) for out in node.outputs):
                return True
    return False


def _has(value: Val, extents: set[Expr]) -> bool:
    return isinstance(value, TensorView) and any(
        axis.extent in extents and not axis.is_broadcast for axis in value.shape
    )


def held_tensors(fusion: Fusion, space: ReductionSpace) -> dict[TensorView, list[TensorView]]:
    """Returns the tensors that are read before and after a reduction and have an element for each point of a
    row, with those reductions. A block holds its part of these also if other rows read the same, such as the
    channels of an image that each of several sums adds up.
    """
    held = persistent_tensors(fusion).items()
    return {tensor: reductions for tensor, reductions in held if space.has_every_element_of_a_row(tensor)}


def most_held(fusion: Fusion, held: Mapping[TensorView, Sequence[TensorView]]) -> int:
    """Returns the most bytes for each element that are held at once, of `held_tensors`: across any one
    reduction, or for what is computed with the results of several that do not depend on each other.

    A scan has all of its elements at once.
    """
    scans = [node.output for node in fusion.tensor_nodes() if isinstance(node, Scan)]
    across = {tensor: tensor.dtype.size for tensor in scans}
    for tensor, reductions in held.items():
        for reduction in reductions:
            across[reduction] = across.get(reduction, 0) + tensor.dtype.size
    read: dict[TensorView, int] = {}
    if len(held) > 1:
        reachability = Reachability(fusion)
        for tensor, reductions in held.items():
            for user in _computed_with(tensor, held):
                if any(reachability.reaches(reduction, user) for reduction in reductions):
                    read[user] = read.get(user, 0) + tensor.dtype.size
    return max((*across.values(), *read.values()), default=0)


def _computed_with(tensor: TensorView, held: Collection[TensorView]) -> set[TensorView]:
    """Returns what is computed in one loop with a tensor, except what follows from others that are held."""
    found: set[TensorView] = set()
    stack = [tensor]
    while stack:
        for user in stack.pop().consumers:
            if user not in found:
                found.add(user)
                if user not in held and not user.is_reduction:
                    stack.append(user)
    return found


def grows_too_much(fusion: Fusion) -> bool:
    """Whether several kernels are cheaper than recomputing the values between reductions for each of them."""
    return _grows(fusion, 1)


def row_grows_too_much(fusion: Fusion) -> bool:
    """The same of rows, which registers hold as they hold inputs if no more is held at once: then nothing is
    computed anew, and only the size of a kernel is limited.
    """
    if not _grows(fusion, 1):
        return False
    everything, inputs = (held_bytes(fusion, project=project).at_once for project in (False, True))
    return everything > inputs or _grows(fusion, HELD_TIMES)


def _grows(fusion: Fusion, times: int) -> bool:
    """Whether a fusion exceeds so many times what it may grow by."""
    ends: dict[Node, set[Node]] = {}
    for node in reversed(fusion.ordered_nodes()):
        users = [ends[user] for out in node.outputs for user in out.uses if user in ends]
        ends[node] = {node} if node.reduced or not users else set().union(*users)
        if slots_of(node) > CHEAP_SLOTS and len(ends[node]) > times * MAX_TIMES:
            return True
    return sum(map(len, ends.values())) > times * MAX_GROWTH * len(fusion.nodes)


def recompute(schedule: Schedule, space: ReductionSpace, *, everything: bool, loads: bool = False) -> None:
    """Recomputes what persists and is cheap, once for all uses that lead to the same reductions or results.

    `everything`: whatever else follows from inputs, too. `loads`: even the inputs are loaded again, as rows
    are not held, of which scans have one step at a time.
    """
    fusion = schedule.fusion
    persistent = set(persistent_tensors(fusion, across_scans=not loads))
    outputs = set(fusion.output_tensors())
    # The reductions and the last results that each node leads to, where inputs are loaded again one for each
    # sweep: reductions that do not depend on each other share it.
    ends: dict[Node | None, frozenset[Node]] = {}
    shared = _first_of_each_sweep(fusion) if loads else {}
    # Consumers first: what a recomputed tensor is made from is then needed wherever that one was.
    for node in reversed(fusion.ordered_nodes()):
        tensor = node.outputs[0]
        uses: dict[frozenset[Node], list[Node]] = {}
        for use in dict.fromkeys(user for out in node.outputs for user in out.uses if user in ends):
            uses.setdefault(ends[use], []).append(use)
        of_row = _is_result_a_row(node, space)
        ends[node] = frozenset([shared.get(node, node)]) if of_row or not uses else frozenset().union(*uses)
        if tensor not in persistent or tensor in outputs or isinstance(node, Reduction):
            continue
        if isinstance(node, Scan) and not loads:
            continue
        # What is one element a row stays in a register.
        wanted = not of_row and (loads if fusion.is_input(node.inputs[0]) else everything)
        if wanted or _is_cheap(fusion, tensor, space):
            ends[node] = next(iter(uses))
            for those, users in list(uses.items())[1:]:
                (twin,) = schedule.recompute(tensor, [use.output for use in users])
                ends[twin.definition] = those
            persistent.update(tensor.producers)


def _first_of_each_sweep(fusion: Fusion) -> dict[Node, Node]:
    """Returns for each reduction the first one that depends on as many reductions."""
    depths: dict[Val, int] = {}
    first: dict[int, Node] = {}
    found: dict[Node, Node] = {}
    for node in fusion.ordered_nodes():
        depth = max((depths.get(value, 0) for value in node.inputs), default=0)
        if isinstance(node, Reduction):
            found[node] = first.setdefault(depth, node)
        depths.update(dict.fromkeys(node.outputs, depth + isinstance(node, Reduction)))
    return found


def hold_in_shared(schedule: Schedule, held: Iterable[TensorView], first: int = 0) -> None:
    """Places rows in shared memory so that a warp accesses neighbours, in vectors where they are loaded so.

    first: the outermost loop over what is held at a time.

    Along the loops, [threads, batches, vector], each thread would have a stretch of its own, and those of a
    warp would meet in a few banks.

    Vectors that start at any element are selected in registers, and copied from there.
    """
    for row in held:
        tensor = schedule.cache_after(row) if row.unaligned else row
        schedule.set_memory_type(tensor, MemoryType.shared)
        threads = [i for i, axis in enumerate(tensor.loop) if axis.parallel.is_block]
        serial = [i for i, axis in enumerate(tensor.loop) if i >= first and not axis.parallel.is_thread]
        # What is computed may be an output, too, which is stored in vectors.
        accesses = (tensor, *(use.output for use in tensor.uses))
        if not any(each.loop[-1].parallel is ParallelType.vectorize for each in accesses):
            schedule.store_along(tensor, [*serial, *threads])
            continue
        schedule.store_along(tensor, [*serial[:-1], *threads, serial[-1]])
        for use in list(tensor.uses):
            read = schedule.cache_after(tensor, cached_uses=[use.output])
            schedule.parallelize(read, -1, ParallelType.vectorize)


def _is_cheap(fusion: Fusion, tensor: TensorView, space: ReductionSpace) -> bool:
    """Whether it is cheaper to compute a tensor again than to hold it.

    That is so for a cast to a wider type, also with one instruction after it that adds only values of a row
    (`x - mean`); for a broadcast of what was computed; and for a load that is the same for all rows, which
    comes from the caches.
    """
    node = tensor.definition
    assert node is not None
    if isinstance(node, Pointwise):
        return _is_widened(node) or _shifts_widened(node, space)
    if fusion.is_input(node.inputs[0]):
        return _is_same_for_all_rows(tensor, space)
    return node.traits.view


def _is_widened(node: Node | None) -> bool:
    return (
        isinstance(node, Pointwise)
        and node.op.rule is Rule.CAST
        and node.inputs[0].dtype.size < node.output.dtype.size
    )


def _shifts_widened(node: Pointwise, space: ReductionSpace) -> bool:
    """Whether a node computes with one instruction on what is widened, and on values a row."""
    elements = [v for v in dict.fromkeys(node.tensor_inputs) if not _is_value_a_row(v, space)]
    return (
        len(elements) == 1
        and _is_widened(elements[0].definition)
        and node.op.spelling(node.output.dtype).slots == 1
    )


def _is_value_a_row(tensor: TensorView, space: ReductionSpace) -> bool:
    covered = space.maps.get(tensor, {})
    along = (covered.get(axis) for axis in space.reduction if not axis.is_broadcast)
    return all(axis is None or axis.is_broadcast for axis in along)


def _is_result_a_row(node: Node, space: ReductionSpace) -> bool:
    """Whether a reduction's results, one a row of this space, are what a node computes.

    The results of another space's reductions, which another kernel computed, may be elements of these rows.
    """
    return bool(node.reduced) and (isinstance(node, Reduction) or _is_value_a_row(node.output, space))


def _is_same_for_all_rows(tensor: TensorView, space: ReductionSpace) -> bool:
    """Whether `tensor` is a broadcast along the rows, of which there are several."""
    covered = space.maps.get(tensor, {})
    rows = [axis for axis in space.iteration if not axis.is_broadcast]
    return bool(rows) and all(axis in covered and covered[axis].is_broadcast for axis in rows)
