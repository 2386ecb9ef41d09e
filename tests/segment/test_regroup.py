"""Groups that merge once a group no longer waits for what it computes again itself."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir import Node, TensorView
from fusewright.segment.regroup import merged_again
from tests.segment.graphs import Graph


class Three:
    """mean -> deviations -> columns, where rows need the mean and the deviations."""

    def __init__(self) -> None:
        g = Graph()
        x = g.input()
        self.mean = g.sum(x)
        self.deviations = g.op(x, self.mean)
        self.columns = g.sum(self.deviations)
        self.rows = g.op(self.deviations, self.mean)
        g.output(self.columns, self.rows)
        self.first, self.shared, self.second, self.third = (
            node for node in g.fusion.ordered_nodes() if not node.is_scalar
        )
        self.before = [[self.first], [self.shared, self.second], [self.third]]
        self.asked: list[tuple[list[Node], set[TensorView]]] = []

    def merged(self, after: Sequence[Sequence[Node]], taken: Sequence[Node] = ()) -> list[Sequence[Node]]:
        """The groups where schedulers take `taken` as one more."""

        def accepts(nodes: Sequence[Node], handed_on: set[TensorView]) -> bool:
            self.asked.append((list(nodes), handed_on))
            return list(nodes) == taken

        position = {node: i for i, node in enumerate([self.first, self.shared, self.second, self.third])}
        return merged_again(self.before, [[group] for group in after], position, accepts)


def test_groups_merge_that_a_third_one_stood_between():
    graph = Three()
    after = [[graph.first], [graph.shared, graph.second], [graph.shared, graph.third]]
    taken = [graph.first, graph.shared, graph.third]
    assert graph.merged(after, taken) == [taken, [graph.shared, graph.second]]
    # What the search asked about before it is not asked again. Of what is merged others read the mean.
    asked = [nodes for nodes, _ in graph.asked]
    assert [graph.first, graph.shared, graph.second] not in asked
    assert graph.asked[asked.index(taken)] == (taken, {graph.mean})


def test_groups_that_nobody_takes_together_stay():
    graph = Three()
    after = [[graph.first], [graph.shared, graph.second], [graph.shared, graph.third]]
    assert graph.merged(after) == after and graph.asked


def test_nothing_is_asked_where_no_work_is_repeated():
    graph = Three()
    assert graph.merged(graph.before) == graph.before and not graph.asked


def test_groups_merge_that_read_the_same_tensor_now():
    """The second reads the input in place of what the first computed from it, as the third does."""
    g = Graph()
    x = g.input()
    cast = g.op(x)
    results = g.op(cast), g.sum(cast), g.sum(x)
    g.output(*results)
    shared, *nodes = (tensor.definition for tensor in (cast, *results))
    position = {node: i for i, node in enumerate([shared, *nodes])}
    before = [[shared, nodes[0]], [nodes[1]], [nodes[2]]]
    after = [[shared, nodes[0]], [shared, nodes[1]], [nodes[2]]]
    taken = [shared, *nodes[1:]]
    merged = merged_again(
        before, [[group] for group in after], position, lambda nodes, _: list(nodes) == taken
    )
    assert merged == [[shared, nodes[0]], taken]
