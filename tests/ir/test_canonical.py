"""The canonical text: blind to names, and different wherever the code of a group may be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from fusewright.core.dtype import DataType
from fusewright.core.enums import CacheOp, LoadStoreOpType, MemoryType, ParallelType
from fusewright.ir import (
    Fusion,
    IndexMap,
    IterDomain,
    IterKind,
    Node,
    Scalar,
    Storage,
    TensorView,
    node,
    position,
)
from fusewright.ir.canonical import Describer, fusion_description
from fusewright.ir.value import CircularBuffer, HeldPart
from fusewright.ops import OPS
from fusewright.ops.build_elementwise import apply
from fusewright.ops.build_inputs import add_output, define_scalar, define_tensor
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.sym import const, symbol

N, M = symbol("i7"), symbol("i9")
ADD, MUL = ELEMENTWISE["add"], ELEMENTWISE["mul"]

# For each parameter of a node two values. A new one belongs here.
PARAMETERS: dict[str, tuple[Any, Any]] = {
    "op": (ADD, MUL),
    "reduced": (False, True),
    "dim": (0, 1),
    "kind": (LoadStoreOpType.set, LoadStoreOpType.cp_async),
    "cache": (CacheOp.unspecified, CacheOp.all_levels),
    "segment": (False, True),
    "ordered": (False, True),
    "flags": ((True, False), (False, True)),
    "dims": ((0, 1), (1, None)),
    "map": (IndexMap((position(0, N),)), IndexMap((position(0, N) + 1,))),
    "inverse": (None, IndexMap((position(0, N),))),
    "indices": (0, 1),
    "filled": (False, True),
    "pred": (const(1), position(0, N)),
    "views": ((), ((node.Copy,),)),
    "_has_base": (False, True),
    "options": ({"dim": 1}, {"dim": True}),
}
# What of a value is a name, follows from its place in the group, or is a way to find others.
NAMES = {"number", "name", "label", "memory", "definition", "uses"}
# What follows from other fields.
DERIVED = {"maybe_root", "shape"}


def _nodes() -> list[type[Node]]:
    return [cls for cls in vars(node).values() if isinstance(cls, type) and issubclass(cls, Node)]


def _slots(cls: type) -> Iterator[str]:
    for base in cls.__mro__:
        yield from getattr(base, "__slots__", ())


def _text(*nodes: Node) -> str:
    """Of nodes over one input of the fusion."""
    return Describer(nodes[0].inputs).describe(nodes, nodes[0].inputs, [(nodes[-1].output, None)]).text


@pytest.mark.parametrize("cls", _nodes(), ids=lambda cls: cls.__name__)
def test_each_parameter_of_a_node_makes_a_difference(cls: type[Node]) -> None:
    def made(changed: str | None = None, value: Any = None) -> Node:
        new = object.__new__(cls)
        source, output = (TensorView(i, DataType.Float, [IterDomain(i, N)]) for i in range(2))
        new.inputs, new.outputs = (source,), (output,)
        for slot in set(_slots(cls)) - {"inputs", "outputs"}:
            setattr(new, slot, PARAMETERS[slot][0])
        if changed is not None:
            setattr(new, changed, value)
        return new

    same = _text(made())
    assert same == _text(made())
    for slot in set(_slots(cls)) - {"inputs", "outputs"}:
        assert _text(made(slot, PARAMETERS[slot][1])) != same, slot


def test_kinds_of_nodes_differ() -> None:
    """Of equal parameters, too."""
    texts = set()
    for cls in _nodes():
        new = object.__new__(cls)
        source, output = (TensorView(i, DataType.Float, [IterDomain(i, N)]) for i in range(2))
        new.inputs, new.outputs = (source,), (output,)
        texts.add(_text(new))
    assert len(texts) == len(_nodes())


Change = Callable[[TensorView], object]


def _axis(tensor: TensorView, **changes: Any) -> None:
    for name, value in changes.items():
        setattr(tensor.logical[1], name, value)


TENSORS: dict[str, Change] = {
    "dtype": lambda t: setattr(t, "dtype", DataType.Half),
    "root": lambda t: t.redefine(t.logical, t.logical[::-1]),
    "logical": lambda t: t.redefine(t.logical[:1]),
    "loop": lambda t: setattr(t, "loop", t.loop[::-1]),
    "allocation": lambda t: setattr(t, "allocation", t.allocation[::-1]),
    "contiguity": lambda t: setattr(t, "contiguity", (False, True)),
    "storage": lambda t: setattr(t, "storage", Storage(t.logical, 1)),
    "circular": lambda t: setattr(t, "circular", CircularBuffer(2, 1, 1)),
    "everywhere": lambda t: setattr(t, "everywhere", True),
    "part": lambda t: setattr(t, "part", HeldPart(0, 1)),
    "prefetched": lambda t: setattr(t, "prefetched", True),
    "inline_at": lambda t: setattr(t, "inline_at", 1),
    "is_cpu": lambda t: setattr(t, "is_cpu", True),
    "unaligned": lambda t: setattr(t, "unaligned", True),
}
AXES: dict[str, Change] = {
    "extent": lambda t: _axis(t, extent=N),
    "kind": lambda t: _axis(t, kind=IterKind.REDUCTION),
    "parallel": lambda t: _axis(t, parallel=ParallelType.block_x),
    "expanded": lambda t: _axis(t, expanded=M),
    "rfactor": lambda t: _axis(t, rfactor=True),
    "padded": lambda t: _axis(t, padded=32),
}
EXTENTS: dict[str, Change] = {
    "a constant": lambda t: _axis(t, extent=const(8)),
    "a product": lambda t: _axis(t, extent=N * M),
    "lo": lambda t: _axis(t, extent=symbol("i9", lo=1)),
    "hi": lambda t: _axis(t, extent=symbol("i9", hi=64)),
    "hi of another size": lambda t: _axis(t, extent=symbol("i9", hi=N)),
    "multiple_of": lambda t: _axis(t, extent=symbol("i9", multiple_of=4)),
}


@pytest.mark.parametrize("of_output", [False, True], ids=["input", "output"])
def test_each_field_of_a_tensor_makes_a_difference(of_output: bool) -> None:
    assert {*TENSORS, *NAMES} == {*TensorView.__slots__, "name"} - DERIVED
    assert {*AXES} == {*IterDomain.__slots__} - NAMES

    def text(change: Change) -> str:
        pair = [TensorView(i, DataType.Float, [IterDomain(i, N), IterDomain(i, M)]) for i in range(2)]
        change(pair[of_output])
        return _text(node.Pointwise(ADD, pair[:1], pair[1]))

    texts = {name: text(change) for name, change in {**TENSORS, **AXES, **EXTENTS}.items()}
    texts["none"] = text(lambda t: None)
    assert len(set(texts.values())) == len(texts), sorted(texts.values())
    for name in ("number", "label", "memory"):
        assert text(lambda t, name=name: setattr(t, name, MemoryType.shared)) == texts["none"]


def test_each_field_of_a_scalar_makes_a_difference() -> None:
    assert {"dtype", "value", "extent", *NAMES} - {"number", "label", "memory"} == set(Scalar.__slots__)

    def text(*fields: Any, name: str = "i3") -> str:
        return _text(node.Full(Scalar(name, *fields), TensorView(0, DataType.Float, [IterDomain(0, N)])))

    values = [None, 0.0, -0.0, 1, 1.0, True, float("inf"), float("nan")]
    texts = [text(DataType.Double, value) for value in values]
    texts += [text(DataType.Float, 0.0), text(DataType.Int, None, symbol("i3")), text(DataType.Int, None, N)]
    assert len(set(texts)) == len(texts)
    assert text(DataType.Double, name="d4") == texts[0]


def _graph(before: int = 0, swapped: bool = False, alias: bool = False, twice: bool = False) -> Fusion:
    """A sum over rows and what follows; `before`: values that are defined first and not used."""
    fusion = Fusion()
    for _ in range(before):
        define_tensor(fusion, [-1, -1, 3], True)
        define_scalar(fusion, None, DataType.Double)
    fusion.inputs.clear()
    x, y = define_tensor(fusion, [-1, -1], True), define_tensor(fusion, [-1, -1], [False, True])
    scale = define_scalar(fusion, None, DataType.Double)
    total = OPS["sum"].build(fusion, x, [1], True, DataType.Null)
    result = apply(fusion, "sub", *((total, y) if swapped else (y, total)))
    result = apply(fusion, "mul", result, apply(fusion, "add", scale, 1.0) if twice else scale)
    add_output(fusion, result)
    if alias:
        add_output(fusion, result, y)
    fusion.unify_extents()
    return fusion


def test_names_and_numbers_make_no_difference() -> None:
    first, second = fusion_description(_graph()), fusion_description(_graph(before=3))
    assert first.text == second.text
    assert [v.name for v in first.values] != [v.name for v in second.values]
    assert first.sizes != second.sizes and len(first.sizes) == len(second.sizes)


def test_structure_makes_a_difference() -> None:
    changes: list[dict[str, bool]] = [{}, {"swapped": True}, {"alias": True}, {"twice": True}]
    assert len({fusion_description(_graph(**change)).text for change in changes}) == len(changes)
    ranged, multiple = _graph(), _graph()
    ranged.ranges[fusion_description(ranged).sizes[0]] = (1, 8)
    multiple.multiples[fusion_description(multiple).sizes[0]] = 8
    texts = {fusion_description(f).text for f in (_graph(), ranged, multiple)}
    assert len(texts) == 3


def test_rows_and_classes_of_equal_names_differ() -> None:
    """A row, or a kind of node, of the user's own is another even if its name is that of a built-in one."""

    class Pointwise(node.Pointwise):
        __slots__ = ()

    def text(op: Any, cls: type[node.Pointwise] = node.Pointwise) -> str:
        pair = [TensorView(i, DataType.Float, [IterDomain(i, N)]) for i in range(2)]
        return _text(cls(op, pair[:1], pair[1]))

    other = replace(ADD)
    assert other.name == ADD.name and text(other) != text(ADD)
    assert text(other) == text(other) and text(ADD, Pointwise) != text(ADD)


def test_what_has_no_text_equals_nothing() -> None:
    def text(value: object) -> str:
        pair = [TensorView(i, DataType.Float, [IterDomain(i, N)]) for i in range(2)]
        return _text(node.LibraryCall(ADD, pair[:1], pair[1:], {"key": value}))  # type: ignore[arg-type]

    value = object()
    assert text(value) != text(value) and text("50%s") == text("50%s")
