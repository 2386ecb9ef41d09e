"""Recomputes elementwise work at the borders of segments to save memory traffic.

One kernel writes an intermediate tensor at a border, and another reads it. If the tensor follows elementwise
from tensors that take no more bytes to read, the reader recomputes it: for example, a cast of an input to
float has twice the bytes of the input. Recomputation starts from inputs and results of reductions, or else
from tensors that the reader reads anyway. A tensor that then has no reader is not computed at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from fusewright.ir import Copy, Fusion, Node, TensorView, Val
from fusewright.ir.axis import IterDomain
from fusewright.segment.groups import is_boundary
from fusewright.sym import ZERO, as_int, floordiv, mod, product

Group = list[Node]

# The most nodes of a chain that is recomputed. Longer chains cost more arithmetic than they save in memory
# traffic.
MAX_CHAIN = 16
# What a chain reads beyond the bytes of the tensor, as a share of these, and still saves memory traffic:
# vectors beside what it starts from. What a few readers read of them is less than the store takes.
MAX_BESIDE = 1 / 16
# The most parts into which a group is split so that each recomputes a tensor.
MAX_PARTS = 3


def recompute_borders(
    whole: Fusion,
    groups: Sequence[Group],
    position: Mapping[Node, int],
    accepts: Callable[[Sequence[Node], set[TensorView]], bool],
    once: Collection[Node] = (),
) -> list[list[Group]]:
    """Adds to groups the nodes that they recompute.

    Args:
        position: the position of each node in topological order.
        accepts: whether a scheduler accepts a group of nodes (producers first) with these results.
        once: nodes that are not recomputed.

    Returns:
        For each group the groups that replace it: one with the recomputed nodes, or several if no scheduler
        accepts the one, or none if nothing reads its results any more.
    """
    handed_on = owned_borders(groups)
    # Tensors that are in memory in any case: outputs, and operands of libraries, which read whole tensors.
    kept = {*whole.output_tensors(), *(t for g in groups if g[0].traits.whole for t in border_inputs(g))}
    stored = kept.union(*handed_on)
    result: list[list[Group]] = []
    for group, own in zip(groups, handed_on):
        parts: list[Group] | None = None
        for tensor in () if group[0].traits.whole else border_inputs(group):
            if _stands_at_boundary(tensor) or tensor.definition in once:
                continue
            for chain in _chains(tensor, group, kept):
                if not 0 < len(chain) <= MAX_CHAIN or not _is_cheaper(tensor, chain, group, groups, stored):
                    continue
                candidate = sorted({*group, *chain}, key=position.__getitem__)
                # Other groups still read recomputed tensors from the group that owns them.
                if accepts(candidate, own):
                    group = candidate
                    break
                if parts is None and _only_serves(tensor, chain, group, groups):
                    parts = _parts_with(tensor, chain, group, own, kept, position, accepts)
                    break
        result.append(parts if parts is not None else [list(group)])
    return _without_dead(whole, result)


def _only_serves(
    tensor: TensorView, chain: Sequence[Node], group: Sequence[Node], groups: Sequence[Group]
) -> bool:
    """Whether the group that makes `tensor` computes only nodes of the chain, and only for `group`."""
    maker = next(g for g in groups if tensor.definition in g)
    served = {*maker, *group}
    return set(maker) <= set(chain) and all(
        use in served for node in maker for out in node.outputs for use in out.uses
    )


def _parts_with(
    tensor: TensorView,
    chain: Sequence[Node],
    group: Sequence[Node],
    own: set[TensorView],
    kept: set[TensorView],
    position: Mapping[Node, int],
    accepts: Callable[[Sequence[Node], set[TensorView]], bool],
) -> list[Group] | None:
    """The parts of a group. Parts that read `tensor` recompute it by the chain, so no kernel stores it.

    None if the group has only one part or too many, if the parts move more bytes than the group and the group
    that makes `tensor`, or if no scheduler accepts one of them.
    """
    parts = _parts(group, {*own, *kept})
    if not 1 < len(parts) <= MAX_PARTS:
        return None
    readers = [part for part in parts if any(tensor in node.inputs for node in part)]
    moved = sum(_bytes_again(tensor, chain, part) for part in readers) + _shared_bytes(tensor, parts)
    if moved > _bytes_again(tensor, chain, ()) + 2 * tensor.dtype.size:
        return None
    found = []
    for part in parts:
        candidate = sorted({*part, *(chain if part in readers else ())}, key=position.__getitem__)
        if not accepts(candidate, own.intersection(out for node in part for out in node.outputs)):
            return None
        found.append(candidate)
    return found


def _parts(group: Sequence[Node], read: set[Val]) -> list[Group]:
    """The group split into parts that share no computed tensor.

    They may share views, which each part repeats.

    Args:
        read: tensors that other groups read. Only one part computes each of them.
    """
    inside = set(group)
    found: list[set[Node]] = []
    for node in group:
        if any(use in inside for out in node.outputs for use in out.uses):
            continue
        cone: set[Node] = set()
        stack = [node]
        while stack:
            above = stack.pop()
            if above in inside and above not in cone:
                cone.add(above)
                stack += [v.definition for v in above.inputs if v.definition is not None]
        # A part may repeat a view of a load, unless other groups read the view from this one.
        work = {n for n in cone if not n.traits.own_load or not read.isdisjoint(n.outputs)}
        joined = [part for part in found if not part.isdisjoint(work)]
        found = [part for part in found if part.isdisjoint(work)]
        found.append(cone.union(*joined))
    return [[node for node in group if node in part] for part in found]


def _shared_bytes(tensor: TensorView, parts: Sequence[Sequence[Node]]) -> float:
    """The bytes per element of `tensor` that the parts read more than once, not counting `tensor` itself."""
    times: Counter[TensorView] = Counter()
    for part in parts:
        read = {v for node in part for v in node.tensor_inputs}
        times.update(read.difference((out for node in part for out in node.outputs), [tensor]))
    return sum((n - 1) * v.dtype.size * _elements_per_element(v, tensor) for v, n in times.items())


def border_inputs(group: Sequence[Node]) -> list[TensorView]:
    """Tensors that the group reads and other groups make, in order of use."""
    made = {out for node in group for out in node.outputs}
    read = dict.fromkeys(v for node in group for v in node.inputs)
    return [v for v in read if isinstance(v, TensorView) and v not in made and v.definition is not None]


def owned_borders(groups: Sequence[Sequence[Node]]) -> list[set[TensorView]]:
    """For each group the results that other groups read. The first group that computes a tensor owns it."""
    owner: dict[TensorView, int] = {}
    for i, group in enumerate(groups):
        for node in group:
            for out in node.outputs:
                if isinstance(out, TensorView):
                    owner.setdefault(out, i)
    owned: list[set[TensorView]] = [set() for _ in groups]
    for group in groups:
        for tensor in border_inputs(group):
            owned[owner[tensor]].add(tensor)
    return owned


def _stands_at_boundary(tensor: TensorView) -> bool:
    """Whether a kernel boundary follows the tensor (`is_boundary`)."""
    return any(is_boundary(tensor, use) for use in tensor.uses)


def _chains(tensor: TensorView, group: Sequence[Node], kept: set[TensorView]) -> Iterator[list[Node]]:
    """The chains that recompute `tensor`: first the longest one, then one that starts only from tensors that
    the group reads anyway, if there is one.
    """
    yield _chain(tensor, kept)
    read = {v for node in group for v in node.inputs if isinstance(v, TensorView) and v is not tensor}
    short = _chain(tensor, kept | read)
    if not _bytes_again(tensor, short, group):
        yield short


def _chain(tensor: TensorView, kept: set[TensorView]) -> list[Node]:
    """The elementwise nodes that `tensor` depends on, up to inputs, reductions and tensors in `kept`.

    The result has more than MAX_CHAIN nodes if the chain is too long; it is then incomplete.
    """
    chain: dict[Node, None] = {}
    stack: list[Val] = [tensor]
    while stack and len(chain) <= MAX_CHAIN:
        value = stack.pop()
        node = value.definition
        if node is None or node in chain or node.is_scalar or not _can_repeat(node):
            continue
        if isinstance(value, TensorView) and value in kept:
            continue
        chain[node] = None
        stack.extend(node.inputs)
    return list(chain)


def _can_repeat(node: Node) -> bool:
    is_elementwise = node.traits.pointwise or node.traits.indexed
    return is_elementwise and not (isinstance(node, Copy) and node.segment)


def _is_cheaper(
    tensor: TensorView,
    chain: Sequence[Node],
    group: Sequence[Node],
    groups: Sequence[Group],
    stored: Collection[TensorView],
) -> bool:
    """Whether the chain moves no more bytes than a read of `tensor`, or few more.

    The chain reads the tensors that it starts from, and other kernels store those that none stores yet. If
    the group is the only reader of `tensor`, the chain is compared with the store and the read of `tensor`.
    """
    again = _bytes_again(tensor, chain, group) + _bytes_stored(tensor, chain, stored)
    if again <= (1 + MAX_BESIDE) * tensor.dtype.size:
        return True
    readers = [g for g in groups if any(use in g for use in tensor.uses) and tensor.definition not in g]
    return len(readers) == 1 and again < 2 * tensor.dtype.size


def _bytes_again(tensor: TensorView, chain: Sequence[Node], group: Sequence[Node]) -> float:
    """The bytes per element of `tensor` that the chain reads and the group does not read anyway."""
    read = {v for node in group for v in node.inputs}
    return sum(v.dtype.size * _share_read(v, chain, tensor) for v in _starts(chain) if v not in read)


def _bytes_stored(tensor: TensorView, chain: Sequence[Node], stored: Collection[TensorView]) -> float:
    """The bytes per element of `tensor` of tensors that the chain starts from and no kernel stores yet."""
    new = [v for v in _starts(chain) if v.definition is not None and v not in stored]
    return sum(v.dtype.size * _elements_per_element(v, tensor) for v in new)


def _starts(chain: Sequence[Node]) -> set[TensorView]:
    """The tensors that the chain reads and does not make."""
    made = {out for node in chain for out in node.outputs}
    return {v for node in chain for v in node.inputs if isinstance(v, TensorView) and v not in made}


def _share_read(source: TensorView, chain: Sequence[Node], other: TensorView) -> float:
    """How many elements of `source` the chain reads per element of `other`.

    A node that reads by index reads at most one element per element of its result.
    """
    users = [node for node in chain if source in node.inputs]
    taken = [node.output if node.traits.indexed and node.inputs[0] is source else source for node in users]
    whole = _elements_per_element(source, other)
    return min(whole, sum(_elements_per_element(tensor, other) for tensor in taken))


def _elements_per_element(tensor: TensorView, other: TensorView) -> float:
    """The number of elements of `tensor` divided by that of `other`, estimated from the definition.

    Sizes may be unknown. If the number for `tensor` provably divides the number for `other` by an unknown
    factor, the factor is assumed to be large. If nothing is provable, a tensor of fewer dimensions is assumed
    to be much smaller.
    """
    ours, theirs = (product(axis.extent for axis in _concrete(t)) for t in (tensor, other))
    if ours is theirs:
        return 1.0
    if as_int(ours) == 0:
        return 0.0
    if as_int(theirs) != 0 and mod(theirs, ours) is ZERO:
        times = as_int(floordiv(theirs, ours))
        return 1.0 / times if times else 0.0
    return 1.0 if len(_concrete(tensor)) >= len(_concrete(other)) else 0.0


def _concrete(tensor: TensorView) -> list[IterDomain]:
    return [axis for axis in tensor.shape if not axis.is_broadcast]


def _without_dead(whole: Fusion, groups: list[list[Group]]) -> list[list[Group]]:
    """The groups without nodes whose results neither their group nor a later one reads."""
    wanted: set[Val] = set(whole.output_tensors())
    result: list[list[Group]] = []
    for parts in reversed(groups):
        alive_parts: list[Group] = []
        for group in reversed(parts):
            needed = set(wanted)
            alive: Group = []
            for node in reversed(group):
                if any(out in needed for out in node.outputs):
                    alive.append(node)
                    needed.update(node.inputs)
            alive.reverse()
            if alive:
                alive_parts.append(alive)
            wanted.update(border_inputs(alive))
        alive_parts.reverse()
        result.append(alive_parts)
    result.reverse()
    return result
