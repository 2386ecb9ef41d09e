"""Extraction gives a group other numbers and changes nothing else."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import FusewrightError
from fusewright.core.once import clear_shared_caches
from fusewright.ir import Copy, Fusion, position_of, value_of
from fusewright.ir.canonical import fusion_description
from fusewright.schedulers import default_registry
from fusewright.segment import extract, partition
from fusewright.sym import Expr, Symbol
from tests.fuzz.flavours import draw
from tests.fuzz.programs import arguments, define

PROGRAMS, SEED = 100, 1
# The package has a function of the module's name.
EXTRACT = import_module("fusewright.segment.extract")


def sizes_of(fusion: Fusion) -> set[Symbol]:
    """All sizes in extents and index expressions, and in the bounds of positions."""
    found: set[Symbol] = set()
    stack: list[Expr] = [e for node in fusion.nodes for e in node.index_expressions()]
    stack += [axis.visible_extent for axis in fusion.axes()]
    while stack:
        for symbol in stack.pop().free_symbols:
            if isinstance(symbol.hi, Expr):
                stack.append(symbol.hi)
            if position_of(symbol) is None and value_of(symbol) is None:
                found.add(symbol)
    return found


def definition(number: int) -> FusionDefinition | None:
    """A random program; None where the definition refuses it."""
    _, program = draw(SEED, number)
    try:
        with FusionDefinition() as fd:
            define(program, fd, arguments(program, 0))
        return fd
    except FusewrightError:
        return None


def test_a_group_has_the_same_text_after_extraction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it is rewritten; and no size of the definition is left in what it becomes."""
    compared = 0
    for number in range(PROGRAMS):
        fd = definition(number)
        if fd is None:
            continue
        whole = fd._finished().fusion
        nodes = [node for node in whole.ordered_nodes() if not node.is_scalar]
        for segment in partition(whole, default_registry()).segments:
            own = {own for own, _ in segment.sizes}.union(segment.fusion.computed_sizes)
            assert sizes_of(segment.fusion) <= own
        if not nodes or any(isinstance(node, Copy) and node.segment for node in nodes):
            continue  # a boundary has done its work
        with monkeypatch.context() as patch:
            patch.setattr(EXTRACT, "canonicalize", lambda *_: None)
            patch.setattr(EXTRACT, "reshape_border", lambda *_: ())
            clear_shared_caches()
            found = extract(whole, nodes)
        assert fusion_description(found.fusion).text == found.segment.text, number
        clear_shared_caches()
        compared += 1
    assert compared > PROGRAMS / 2


def test_a_size_may_get_the_old_name_of_another() -> None:
    """The fourth size of the definition is the segment's third, and bounds of positions are made of sizes."""
    with FusionDefinition() as fd:
        first, x = (fd.define_tensor([-1], contiguity=True, dtype=DataType.Float) for _ in range(2))
        fd.add_output(fd.ops.neg(fd.ops.slice(x, [2], [4], [2])))
        fd.add_output(fd.ops.all(x, [0], keepdim=True))
        fd.add_output(first)
    fd.validate([torch.randn(3), torch.randn(3)])
