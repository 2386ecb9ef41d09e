"""Determines which loops of different tensors are the same, since the tensors are inlined."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.node import Node
from fusewright.ir.value import TensorView

#: A loop of a tensor by its position. The outputs of a node share loops, which the first output represents.
LoopPosition = tuple[TensorView, int]


class SharedLoops:
    """Classes of loops: a tensor shares its outer `inline_at` loops with its consumers among `nodes`."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._parent: dict[LoopPosition, LoopPosition] = {}
        computed = set(nodes)
        for node in nodes:
            lead = node.output
            for tensor in node.outputs:
                assert isinstance(tensor, TensorView)
                if tensor.inline_at == 0:
                    continue
                for user in tensor.uses:
                    if user in computed:
                        reader = user.output
                        for position in range(tensor.inline_at):
                            self._unite((lead, position), (reader, position))

    def of(self, loop: LoopPosition) -> LoopPosition:
        """The representative of the loops that are the same as `loop`."""
        root = loop
        while root in self._parent:
            root = self._parent[root]
        while loop in self._parent and self._parent[loop] is not root:
            self._parent[loop], loop = root, self._parent[loop]
        return root

    def _unite(self, a: LoopPosition, b: LoopPosition) -> None:
        a, b = self.of(a), self.of(b)
        if a != b:
            self._parent[b] = a
