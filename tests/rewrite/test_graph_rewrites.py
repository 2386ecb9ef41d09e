"""What a definition is before it is cut into kernels: no more nodes than it needs, and the same results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.dtype import represents
from fusewright.ir import LibraryCall
from fusewright.ops.evaluate import evaluate_fusion
from fusewright.rewrite import simplified

BF16, F32, F64, HALF = DataType.BFloat16, DataType.Float, DataType.Double, DataType.Half
ROWS, COLUMNS = 6, 8
Build = Callable[[FusionDefinition, Any, Any], None]


def _outputs(*builds: Callable[[Any, Any, Any], Any]) -> Build:
    def build(fd: FusionDefinition, x: Any, y: Any) -> None:
        for one in builds:
            fd.add_output(one(fd.ops, x, y))

    return build


def _chain(o: Any, x: Any, *dtypes: DataType) -> Any:
    for dtype in dtypes:
        x = o.cast(x, dtype)
    return x


def _look_back(o: Any, x: Any) -> Any:
    x = o.squeeze(o.broadcast(o.set(x), [False, True, False]), [1])
    x = o.permute(o.permute(x, [1, 0]), [1, 0])
    x = o.reshape(o.reshape(x, [ROWS * COLUMNS]), [ROWS, COLUMNS])
    return o.slice(o.pad(x, [1, 1]), [0, 1], [ROWS, COLUMNS + 1])


def _normalized(o: Any, x: Any, dim: int = 1) -> Any:
    return o.softmax(x, dim)


def _windows(o: Any, x: Any, rest: int = 2) -> Any:
    """Windows of 8 + rest elements every 8 of x, joined of whole steps and the beginning of the next."""
    ahead = o.slice(x, [1, 0], [ROWS, rest])
    return o.cat([o.slice(x, [0, 0], [ROWS - 1, COLUMNS]), ahead], 1)


def _halves(o: Any, x: Any) -> Any:
    return o.cat([o.slice(x, [0, 0], [ROWS, 3]), o.slice(x, [0, 3], [ROWS, COLUMNS])], 1)


def _first(o: Any, x: Any) -> Any:
    return o.slice(x, [0, 0], [2, COLUMNS])


def _weighted(o: Any, x: Any, y: Any) -> Any:
    """Softmax of x as [2, 3, 8], each row of which has a row of y."""
    weights = o.broadcast(o.slice(y, [0, 0], [3, COLUMNS]), [True, False, False])
    return o.softmax(o.reshape(x, [2, 3, COLUMNS]), 2) * weights


def _twice_drawn(o: Any, x: Any, y: Any) -> Any:
    return o.rand_like(x) + o.rand_like(x)


#: what is built of x [6, 8] and y [6, 8], and the nodes of the simplified graph by label, scalars aside
CASES: dict[str, tuple[Build, dict[str, int]]] = {
    "casts to wider types and back": (
        _outputs(lambda o, x, y: o.exp(_chain(o, o.exp(x), F64, F32, F64, F32))),
        {"exp": 2},
    ),
    "one cast of a chain": (_outputs(lambda o, x, y: _chain(o, o.cast(x, BF16), F32, F64)), {"cast": 2}),
    "casts that round": (_outputs(lambda o, x, y: o.exp(_chain(o, x, BF16, F32))), {"cast": 2, "exp": 1}),
    "floats to integers": (_outputs(lambda o, x, y: _chain(o, x, F64, DataType.Int)), {"cast": 2}),
    "integers": (
        _outputs(lambda o, x, y: _chain(o, o.cast(x, DataType.Int32), DataType.Int, DataType.Int32) + 1),
        {"cast": 1, "add": 1},
    ),
    "round trips": (_outputs(lambda o, x, y: o.exp(_look_back(o, o.exp(x)))), {"exp": 2}),
    "a pad that is read": (
        _outputs(lambda o, x, y: o.exp(o.slice(o.pad(x, [1, 1]), [0, 0], [ROWS, COLUMNS]))),
        {"Pad": 1, "Slice": 1, "exp": 1},
    ),
    "a stated order": (
        _outputs(lambda o, x, y: o.exp(o.stride_order(o.segment_set(x), [0, 1]))),
        {"SegmentSet": 1, "Set": 1, "exp": 1},
    ),
    "one part of a join": (
        _outputs(lambda o, x, y: o.exp(o.slice(o.cat([x, o.exp(y)], 0), [0, 0], [ROWS, COLUMNS]))),
        {"exp": 1},
    ),
    "elements of both parts": (
        _outputs(lambda o, x, y: o.slice(o.cat([x, y], 0), [1, 0], [ROWS + 1, COLUMNS])),
        {"Pad": 2, "Choose": 1, "Slice": 1},
    ),
    "parts that are joined as they lie": (_outputs(lambda o, x, y: o.exp(_halves(o, o.exp(x)))), {"exp": 2}),
    "joined parts behind another tensor": (
        _outputs(lambda o, x, y: o.exp(o.cat([y, _halves(o, x)], 1))),
        {"Pad": 2, "Choose": 1, "exp": 1},
    ),
    "windows of two parts": (
        _outputs(lambda o, x, y: o.exp(_windows(o, o.reshape(o.reshape(o.exp(x), [48]), [ROWS, COLUMNS])))),
        {"Reshape": 1, "Join": 1, "exp": 2},
    ),
    "parts that are joined in another order": (
        _outputs(
            lambda o, x, y: o.exp(o.cat([o.slice(x, [0, 3], [ROWS, 6]), o.slice(x, [0, 0], [ROWS, 3])], 1))
        ),
        {"Slice": 2, "Pad": 2, "Choose": 1, "exp": 1},
    ),
    "an output that is joined, of memory of its own": (
        _outputs(lambda o, x, y: o.permute(_halves(o, x), [1, 0])),
        {"Slice": 2, "Pad": 2, "Choose": 1, "Permute": 1},
    ),
    "equal expressions": (
        _outputs(lambda o, x, y: o.exp(x * y + 1.0) * o.sin(o.exp(1.0 + y * x))),
        {"mul": 2, "add": 1, "exp": 1, "sin": 1},
    ),
    "expressions that are not equal": (
        _outputs(lambda o, x, y: o.exp(x - y) + o.exp(y - x) + o.exp(x - 0.0) + o.exp(x - -0.0)),
        {"sub": 4, "exp": 4, "add": 3},
    ),
    "equal outputs": (
        _outputs(lambda o, x, y: o.exp(x), lambda o, x, y: o.exp(x)),
        {"exp": 1, "Set": 1},
    ),
    "equal reductions and calls": (
        _outputs(
            lambda o, x, y: o.sum(x * y, [1]) * o.sum(y * x, [1]),
            lambda o, x, y: o.linear(x, y) + o.linear(x, y),
        ),
        {"mul": 2, "sum": 1, "linear": 1, "add": 1},
    ),
    "no two draws": (_outputs(_twice_drawn), {"uniform_float": 2, "add": 1}),
    "kernel boundaries": (
        _outputs(lambda o, x, y: o.exp(o.segment_set(x)) + o.sin(o.segment_set(x))),
        {"SegmentSet": 2, "exp": 1, "sin": 1, "add": 1},
    ),
    "slices of rows": (
        _outputs(lambda o, x, y: _first(o, _normalized(o, x))),
        {"Slice": 1, "max": 1, "Broadcast": 2, "sub": 1, "exp": 1, "sum": 1, "truediv": 1, "Set": 1},
    ),
    "a row": (
        _outputs(lambda o, x, y: o.select(_normalized(o, x), -1, 0)),
        {"Slice": 1, "max": 1, "Broadcast": 2, "sub": 1, "exp": 1, "sum": 1, "truediv": 1, "Relabel": 1},
    ),
    "a row of rows, and its weights": (
        _outputs(lambda o, x, y: o.select(_weighted(o, x, y), 1, 1)),
        {
            "Reshape": 1,
            "Slice": 3,
            "max": 1,
            "sub": 1,
            "exp": 1,
            "sum": 1,
            "truediv": 1,
            "Broadcast": 3,
            "mul": 1,
            "Relabel": 1,
        },
    ),
    "a place along what is reduced": (
        _outputs(lambda o, x, y: o.select(_normalized(o, x, 0), 0, 0)),
        {"max": 1, "Broadcast": 2, "sub": 1, "exp": 1, "sum": 1, "truediv": 1, "Select": 1},
    ),
    "slices along what is reduced": (
        _outputs(lambda o, x, y: _first(o, _normalized(o, x, 0))),
        {"max": 1, "Broadcast": 2, "sub": 1, "exp": 1, "sum": 1, "truediv": 1, "Slice": 1},
    ),
    "the first of what is scanned": (
        _outputs(lambda o, x, y: o.slice(o.cumsum(o.exp(x), 1), [0, 0], [ROWS, 2])),
        {"Slice": 1, "exp": 1, "Scan": 1, "Set": 1},
    ),
    "others of what is scanned": (
        _outputs(lambda o, x, y: o.slice(o.cumsum(o.exp(x), 1), [0, 1], [ROWS, COLUMNS])),
        {"exp": 1, "Scan": 1, "Slice": 1},
    ),
    "slices beside other readers": (
        _outputs(lambda o, x, y: o.sum(x, [1]), lambda o, x, y: o.slice(o.sum(x, [1]), [0], [2])),
        {"sum": 1, "Slice": 1},
    ),
    "an output that is a view, too": (
        _outputs(lambda o, x, y: o.permute(x, [1, 0]), lambda o, x, y: o.exp(o.permute(x, [1, 0]))),
        {"Permute": 2, "exp": 1},
    ),
}


def _definition(build: Build) -> FusionDefinition:
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([ROWS, COLUMNS], contiguity=True) for _ in range(2))
        build(fd, x, y)
    return fd


@pytest.mark.parametrize("name", CASES)
def test_a_graph_has_no_more_nodes_than_it_needs(name: str) -> None:
    build, expected = CASES[name]
    fusion = _definition(build)._finished().fusion
    before = str(fusion)
    simple = simplified(fusion)
    labels = Counter(node.label for node in simple.ordered_nodes() if not node.is_scalar)
    assert labels == expected
    assert str(fusion) == before
    inputs = [torch.randn(ROWS, COLUMNS) * 3 for _ in range(2)]
    ours, theirs = (evaluate_fusion(f, inputs, lambda: (1, 0)) for f in (simple, fusion))
    for ours_, theirs_ in zip(ours, theirs, strict=True):
        assert torch.equal(ours_, theirs_) and ours_.dtype is theirs_.dtype


def test_a_library_reads_from_as_far_as_strides_tell() -> None:
    """Heads that are merged again are moved once, and the product reads what that makes as a matrix."""
    with FusionDefinition() as fd:
        x, w = fd.define_tensor([2, 4, 8, 16], True), fd.define_tensor([64, 32], True)
        merged = fd.ops.reshape(fd.ops.permute(fd.ops.exp(x), [0, 2, 1, 3]), [2, 8, 64])
        fd.add_output(fd.ops.matmul(fd.ops.reshape(merged, [16, 64]), w))
    simple = simplified(fd._finished().fusion)
    (call,) = (node for node in simple.nodes if isinstance(node, LibraryCall))
    moved = call.tensor_inputs[0]
    assert [node.label for node in call.views[0]] == ["Reshape"] * len(call.views[0]) != []
    assert moved.definition is not None and moved.definition.label == "Permute"


def test_symbolic_sizes_are_enough_where_they_are_the_same() -> None:
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1, -1], contiguity=True) for _ in range(2))
        rows, columns = fd.ops.size(x, 0), fd.ops.size(x, 1)
        fd.add_output(fd.ops.exp(fd.ops.slice(fd.ops.cat([x, y], 0), [0, 0], [rows, columns])))
    simple = simplified(fd._finished().fusion)
    assert [node.label for node in simple.ordered_nodes() if not node.is_scalar] == ["exp"]


@pytest.mark.parametrize(
    "wide, narrow",
    [
        *((F32, BF16), (F32, HALF), (F64, F32), (HALF, DataType.Float8_e5m2), (F32, DataType.Bool)),
        *((HALF, DataType.Float8_e4m3fn), (F64, DataType.Int32), (DataType.Int, DataType.Int32)),
        *((F32, DataType.Float8_e8m0fnu), (DataType.Float8_e4m3fn, DataType.Float4_e2m1fn)),
    ],
)
def test_every_value_of_a_type_is_one_of_a_wider_type(wide: DataType, narrow: DataType) -> None:
    assert represents(wide, narrow) and not represents(narrow, wide)


@pytest.mark.parametrize(
    "a, b",
    [
        *((HALF, BF16), (F32, DataType.Int32), (F64, DataType.Int), (DataType.Int, DataType.UInt64)),
        *((DataType.Bool, DataType.Float8_e8m0fnu), (DataType.ComplexFloat, F32)),
    ],
)
def test_types_that_have_values_apart(a: DataType, b: DataType) -> None:
    assert not represents(a, b) and not represents(b, a)


# ---- what is run -------------------------------------------------------------------------------------------


def _run(fd: FusionDefinition, *inputs: torch.Tensor) -> tuple[list[torch.Tensor], int]:
    made = fd.validate(list(inputs))
    return made, len(fd._finished().executor.last_program.kernels)


def test_outputs_share_memory_where_one_is_a_view_of_another(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        y = fd.ops.exp(x)
        turned = fd.ops.permute(y, [1, 0])
        for out in (fd.ops.reshape(turned, [-1]), turned, fd.ops.sin(turned), y):
            fd.add_output(out)
    given = torch.randn(4, 6, device=target)
    (flat, turned, sines, y), kernels = _run(fd, given)
    assert kernels == 1
    assert turned.data_ptr() == y.data_ptr() and turned.stride() == (1, 6)
    assert flat.data_ptr() != y.data_ptr() and flat.stride() == (1,)
    assert sines.is_contiguous()


def test_outputs_without_elements_take_no_kernel(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        fd.add_output(fd.ops.softmax(x, 1))
    for rows, expected in ((0, 0), (3, 1), (0, 0)):
        (made,), kernels = _run(fd, torch.randn(rows, 4, device=target))
        assert kernels == expected and made.shape == (rows, 4)


def test_equal_work_of_several_kernels_is_done_once(target: torch.device) -> None:
    """Two softmaxes, a join of which a product reads either part, and casts around what a library reads."""
    with FusionDefinition() as fd:
        x, w = (fd.define_tensor([16, 16], contiguity=True, dtype=BF16) for _ in range(2))
        o = fd.ops
        first, second = (o.cast(o.softmax(o.cast(x, F32), 1), BF16) for _ in range(2))
        joined = o.cat([first, o.cast(o.cast(w, F32), BF16)], 0)
        a, b = o.slice(joined, [0, 0], [16, 16]), o.slice(joined, [16, 0], [32, 16])
        fd.add_output(o.matmul(a, b))
        fd.add_output(o.matmul(x, second))
    _, kernels = _run(fd, *(torch.randn(16, 16, device=target).bfloat16() for _ in range(2)))
    assert kernels == 1
