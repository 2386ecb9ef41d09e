"""Whether inlined tensors can be ordered, and which to inline less if they cannot.

A tensor that shares a loop with its consumers pulls them into one instance of that loop. If a path leads from
one of the tensors out of the loop and back to another, each instance would need the other's result:

    for j: t, a = f(t), b = g(t, s)        with        s = h(a)        outside the loop

Then `t` cannot share the loop with both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fusewright.analyze.persistent import Reachability
from fusewright.analyze.shared_loops import LoopPosition, SharedLoops
from fusewright.core.once import cached_property
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.sym import as_int


def cut_cycles(fusion: Fusion, candidates: Collection[TensorView], reachability: Reachability) -> None:
    """Inlines `candidates` less until the loops can be ordered, or other tensors if that is not enough."""
    nest = _Nest(fusion, reachability)
    for chosen in (set(candidates), set(fusion.tensors())):
        while (cut := nest.cut(chosen)) is not None:
            tensor, position = cut
            tensor.inline_at = position
            nest = _Nest(fusion, reachability)


@dataclass(frozen=True, slots=True, eq=False)
class _Cycle:
    """Instances of loops that need each other's results.

    Attributes:
        component: the members of the cycle; a loop is a LoopPosition, and a tensor that shares no loop
            represents itself.
        stretches: for each, the tensors inside the same loops.
        home: the stretch of each of those tensors.
    """

    component: Sequence[object]
    stretches: Mapping[object, Sequence[TensorView]]
    home: Mapping[TensorView, object]


class _Nest:
    """The loops that tensors currently share by inlining."""

    def __init__(self, fusion: Fusion, reachability: Reachability) -> None:
        self._reach = reachability
        nodes = fusion.tensor_nodes()
        self._leads = [node.output for node in nodes]
        self._lead = {out: node.output for node in nodes for out in node.outputs}
        self._shared = SharedLoops(nodes)
        self._users: dict[TensorView, list[TensorView]] = {lead: [] for lead in self._leads}
        for node in nodes:
            for out in node.outputs:
                assert isinstance(out, TensorView)
                self._users[node.output] += [self._lead[c] for c in out.consumers if c in self._lead]
        real = {
            self._shared.of((lead, i))
            for lead in self._leads
            for i, axis in enumerate(lead.loop)
            if _is_loop(axis)
        }
        self._path = {
            lead: [loop for i in range(len(lead.loop)) if (loop := self._shared.of((lead, i))) in real]
            for lead in self._leads
        }

    def cut(self, chosen: Collection[TensorView]) -> LoopPosition | None:
        """One of `chosen` to inline less, and how far; None if there is an order, or if none helps."""
        for cycle in self._cycles:
            for loop in cycle.component:
                if not isinstance(loop, tuple):
                    continue  # a tensor by itself shares no loop
                found = self._cut_stretch(loop, cycle, chosen)
                if found is not None:
                    return found
        return None

    @cached_property
    def _cycles(self) -> list[_Cycle]:
        """Those of outer loops before those inside them."""
        return list(self._cycles_within(self._leads, 0))

    def _cycles_within(self, members: Sequence[TensorView], depth: int) -> Iterator[_Cycle]:
        """Looks inside the `depth` loops that `members` share."""
        stretches: dict[object, list[TensorView]] = {}
        home: dict[TensorView, object] = {}
        for lead in members:
            home[lead] = self._path[lead][depth] if len(self._path[lead]) > depth else lead
            stretches.setdefault(home[lead], []).append(lead)
        needs = {
            key: dict.fromkeys(
                home[user] for lead in inside for user in self._users[lead] if home.get(user, key) != key
            )
            for key, inside in stretches.items()
        }
        for component in _strongly_connected_components(stretches, needs):
            yield _Cycle(component, stretches, home)
        for key, inside in stretches.items():
            if isinstance(key, tuple):
                yield from self._cycles_within(inside, depth + 1)

    def _cut_stretch(
        self, loop: object, cycle: _Cycle, chosen: Collection[TensorView]
    ) -> LoopPosition | None:
        """A tensor that joins what leads out of the loop with what does not."""
        inside, home = cycle.stretches[loop], cycle.home
        for leaving in inside:
            if not any(
                home.get(user) != loop and home.get(user) in cycle.component for user in self._users[leaving]
            ):
                continue
            before = {lead for lead in inside if self._reach.reaches(lead, leaving)}
            for lead in inside:
                if lead not in before or lead not in chosen:
                    continue
                position = next(i for i in range(len(lead.loop)) if self._shared.of((lead, i)) == loop)
                others = (user for user in self._users[lead] if home.get(user) == loop and user not in before)
                if lead.inline_at > position and any(others):
                    return lead, position
        return None


def _is_loop(axis: IterDomain) -> bool:
    return not (axis.parallel.is_block or axis.parallel.is_grid) and as_int(axis.extent) != 1


def _strongly_connected_components(
    keys: Iterable[object], needs: Mapping[object, Iterable[object]]
) -> list[list[object]]:
    """The strongly connected components of more than one key (Tarjan, 1972), each in the order of `keys`."""
    index: dict[object, int] = {}
    low: dict[object, int] = {}
    stack: list[object] = []
    components: list[list[object]] = []
    done: set[object] = set()
    place = {key: i for i, key in enumerate(keys)}

    def visit(start: object) -> None:
        work = [(start, iter(needs[start]))]
        index[start] = low[start] = len(index)
        stack.append(start)
        while work:
            key, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    work.append((other, iter(needs[other])))
                    break
                if other not in done:
                    low[key] = min(low[key], index[other])
            else:
                work.pop()
                if work:
                    above = work[-1][0]
                    low[above] = min(low[above], low[key])
                if low[key] == index[key]:
                    component: list[object] = []
                    while not component or component[-1] != key:
                        component.append(stack.pop())
                        done.add(component[-1])
                    if len(component) > 1:
                        components.append(sorted(component, key=place.__getitem__))

    for key in place:
        if key not in index:
            visit(key)
    return components
