"""Names of values: as in the definition, or derived from the source.

A value that the definition names has that name (`T3`, `S1`). Any other value is called `<stem>_<what>`: the
exp inside the definition's T3 is `T3_exp`, and a copy of it that a schedule makes is `T3_exp_copy`. In a
fusion without a `Naming`, and until the naming has seen a value, tensors are called by their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from fusewright.ir.value import Scalar, TensorView, Val
from fusewright.sym import Symbol, symbol

if TYPE_CHECKING:
    from fusewright.ir.fusion import Fusion
    from fusewright.ir.node import Node


class Naming:
    """Names for the values that nodes of one fusion make.

    Attributes:
        stem: the start of the names; None: the name of the node's operand.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self.stem: str | None = None

    def copy(self) -> Naming:
        return Naming(self._taken)

    def derived(self, stem: str, what: str) -> str:
        """`<stem>_<what>`, with a number appended if another value has that name."""
        name = plain = f"{stem}_{_word(what)}"
        number = 1
        while name in self._taken:
            number += 1
            name = f"{plain}{number}"
        self._taken.add(name)
        return name

    def name_results(self, node: Node) -> None:
        """Names the results of a node that have no name yet."""
        stem = None
        for out in node.outputs:
            if isinstance(out, TensorView) and out.label is None:
                stem = stem or self.stem or _stem(node)
                out.label = self.derived(stem, node.label)
            elif isinstance(out, Scalar) and out.extent is None and out.name not in self._taken:
                stem = stem or self.stem or _stem(node)
                out.name = self.derived(stem, node.label)


def _stem(node: Node) -> str:
    """The first name of the first tensor that a node reads, else of the first value that is no constant."""
    read = [v for v in node.inputs if isinstance(v, TensorView) or not v.is_constant]
    if not read:
        return "T"
    first = next((v for v in read if isinstance(v, TensorView)), read[0])
    return (first.name if isinstance(first, TensorView) else str(first)).partition("_")[0]


@cache
def _word(label: str) -> str:
    return re.sub(r"\W+", "_", label).lower()


def call(fusion: Fusion, value: Val, name: str) -> None:
    """Names a value. The symbol that stands for a scalar is named alike: nothing may use it yet."""
    if isinstance(value, TensorView):
        value.label = name
        return
    own = value.extent
    if isinstance(own, Symbol) and fusion.scalar_of.get(own) is value and own.name == value.name:
        del fusion.scalar_of[own]
        value.extent = symbol(name, own.lo, own.hi, own.multiple_of)
        fusion.scalar_of[value.extent] = value
        fusion.made_as[value.extent] = own.name
    value.name = name


def number_by_state(fusion: Fusion, states: Sequence[object]) -> None:
    """Gives each tensor the number of its first state, and all others the numbers behind, in their order."""
    numbers: dict[TensorView, int] = {}
    for number, value in enumerate(states):
        if isinstance(value, TensorView):
            numbers.setdefault(value, number)
    following = len(states)
    for tensor in fusion.tensors():
        if tensor not in numbers:
            numbers[tensor] = following
            following += 1
    for tensor, number in numbers.items():
        tensor.number = number
    _, axes, scalars = fusion.numbering
    fusion.numbering = following, axes, scalars
