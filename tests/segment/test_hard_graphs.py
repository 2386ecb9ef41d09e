"""Graphs that have been hard for systems that fuse: right, and in few kernels, for reasons that are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fusewright import DataType, FusionDefinition
from fusewright.analyze import parameters
from fusewright.core.errors import CompileError, ScheduleError
from fusewright.core.hardware import MAX_PARAMETER_BYTES
from fusewright.core.once import clear_shared_caches
from fusewright.cuda.nvrtc import NvrtcOptions, compile_cubin
from fusewright.lower import lowering
from tests.integration.tolerance import assert_close

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Hard:
    """A graph at one size.

    Attributes:
        define: the outputs, given the definition and the handles of its inputs.
        reference: the same in torch, of float64 inputs.
        steps: what computes each segment, in order: schedulers' names, and the labels of what torch computes.
        reduced: the terms of its longest sum.
        stated: whether the definition states the sizes of the inputs.
        launches: of kernels; None: one for each segment that torch does not compute.
    """

    name: str
    define: Callable[..., Any]
    reference: Callable[..., Any]
    shapes: tuple[Shape, ...]
    steps: tuple[str, ...]
    reduced: int = 1
    stated: bool = False
    launches: int | None = None

    def definition(self) -> FusionDefinition:
        with FusionDefinition() as fd:
            inputs = [
                fd.define_tensor(list(s), True) if self.stated else define_like(fd, s) for s in self.shapes
            ]
            for out in listed(self.define(fd, *inputs)):
                fd.add_output(out)
        return fd


def listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def define_like(fd: FusionDefinition, shape: Shape) -> Any:
    return fd.define_tensor([1 if size == 1 else -1 for size in shape], True)


def steps(fd: FusionDefinition) -> list[str]:
    """What computes each segment of the latest call."""
    plans = fd._last_program().plans
    segments = [part.segment for plan in plans for part in getattr(plan, "parts", (plan,))]
    return [
        segment.evaluated.label if segment.evaluated is not None else segment.scheduler.type.name
        for segment in segments
    ]


def values(shapes: Sequence[Shape], device: torch.device) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).to(device) for shape in shapes]


# ---- reductions and what follows them ----------------------------------------------------------------------


def view_before_epilogue(fd: FusionDefinition, x: Any, bias: Any) -> Any:
    """Row sums of heads, flattened before what is computed of them."""
    total = fd.ops.sum(x, [2])
    return fd.ops.tanh(fd.ops.reshape(total, [total.size(0) * total.size(1)]) + bias)


def both_axes(fd: FusionDefinition, x: Any) -> Any:
    return x / (fd.ops.sum(x * x, [1], keepdim=True) + fd.ops.sum(x * x, [0], keepdim=True))


def to_a_scalar_and_back(fd: FusionDefinition, x: Any, y: Any) -> Any:
    """The norm of a tensor scales everything."""
    norm = fd.ops.rsqrt(fd.ops.sum(x * x, [0, 1]))
    return [x * norm, y * norm, norm]


def cat_of_reductions(fd: FusionDefinition, x: Any) -> Any:
    return fd.ops.cat([fd.ops.sum(x, [1]), fd.ops.max(x, [1]), fd.ops.mean(x, [1])], 0)


def expanded_sum(fd: FusionDefinition, x: Any, y: Any) -> Any:
    """A column that is copied along a dimension, which is summed with what has that dimension and without."""
    wide = fd.ops.expand(x, [x.size(0), y.size(1)])
    return [fd.ops.sum(wide, [1]), fd.ops.sum(wide * y, [1])]


def after_a_scan(fd: FusionDefinition, x: Any) -> Any:
    running = fd.ops.cumsum(x, 1)
    return [fd.ops.max(running, [1]), running - fd.ops.mean(running, [1], keepdim=True)]


# ---- uses and ways through memory --------------------------------------------------------------------------


def residual_stream(fd: FusionDefinition, x: Any, *weights: Any) -> Any:
    """Each layer reads the stream and adds to it; the end reads all of it."""
    read = []
    for weight in weights:
        mean_square = fd.ops.mean(x * x, [1], keepdim=True)
        normal = x * fd.ops.rsqrt(mean_square + 1e-5) * weight
        x = x + fd.ops.silu(normal)
        read.append(x)
    return [x, sum(read[1:], read[0])]


def torch_residual_stream(x: Tensor, *weights: Tensor) -> list[Tensor]:
    read = []
    for weight in weights:
        x = x + F.silu(x * (x.square().mean(1, keepdim=True) + 1e-5).rsqrt() * weight)
        read.append(x)
    return [x, sum(read[1:], read[0])]


def diamond(fd: FusionDefinition, x: Any, y: Any) -> Any:
    """One side goes through a transpose and back, another through one that stays."""
    base = fd.ops.exp(x)
    there = fd.ops.tanh(fd.ops.permute(base, [1, 0])) + y
    return [base * fd.ops.permute(there, [1, 0]), there]


def transposes(fd: FusionDefinition, x: Any) -> Any:
    for i in range(9):
        x = fd.ops.permute(fd.ops.sin(x) + 0.1 * i, [1, 0])
    return x


def torch_transposes(x: Tensor) -> Tensor:
    for i in range(9):
        x = (x.sin() + 0.1 * i).T
    return x


def rope(fd: FusionDefinition, product: Any, cos: Any, sin: Any) -> Any:
    """q and k of one product are rotated, v is taken as it is; all per head."""
    batch, length, heads, size = product.size(0), product.size(1), 2, 8
    parts = [fd.ops.slice(product, [0, 0, 16 * i], [batch, length, 16 * i + 16]) for i in range(3)]

    def by_head(part: Any) -> Any:
        return fd.ops.permute(fd.ops.reshape(part, [batch, length, heads, size]), [0, 2, 1, 3])

    def rotated(part: Any) -> Any:
        low, high = fd.ops.split(by_head(part), 4, 3)
        return by_head(part) * cos + fd.ops.cat([-high, low], 3) * sin

    return [rotated(parts[0]), rotated(parts[1]), by_head(parts[2])]


def torch_rope(product: Tensor, cos: Tensor, sin: Tensor) -> list[Tensor]:
    q, k, v = (part.reshape(*part.shape[:2], 2, 8).permute(0, 2, 1, 3) for part in product.chunk(3, 2))

    def rotated(part: Tensor) -> Tensor:
        low, high = part.chunk(2, 3)
        return part * cos + torch.cat([-high, low], 3) * sin

    return [rotated(q), rotated(k), v]


def halves(fd: FusionDefinition, x: Any, y: Any) -> Any:
    """Nothing relates the two."""
    return [fd.ops.softmax(x, 1), fd.ops.sum(fd.ops.exp(y), [0])]


# ---- recurrences -------------------------------------------------------------------------------------------


def elementwise_recurrence(fd: FusionDefinition, x: Any, w: Any) -> Any:
    h = fd.ops.zeros_like(fd.ops.select(x, 0, 0))
    states = []
    for t in range(32):
        h = fd.ops.tanh(w * h + fd.ops.select(x, t, 0))
        states.append(h)
    return [fd.ops.stack(states, 0), h]


def torch_elementwise_recurrence(x: Tensor, w: Tensor) -> list[Tensor]:
    h = torch.zeros_like(x[0])
    states = []
    for step in x:
        h = torch.tanh(w * h + step)
        states.append(h)
    return [torch.stack(states), h]


def recurrence(fd: FusionDefinition, x: Any, w: Any, h: Any) -> Any:
    for t in range(32):
        h = fd.ops.tanh(fd.ops.matmul(h, w) + fd.ops.select(x, t, 0))
    return h


def torch_recurrence(x: Tensor, w: Tensor, h: Tensor) -> Tensor:
    for step in x:
        h = torch.tanh(h @ w + step)
    return h


HARD = [
    Hard(
        "view before an epilogue",
        view_before_epilogue,
        lambda x, bias: torch.tanh(x.sum(2).reshape(-1) + bias),
        ((3, 5, 64), (15,)),
        ("reduction",),
        64,
    ),
    Hard(
        "two reductions over different axes",
        both_axes,
        lambda x: x / ((x * x).sum(1, keepdim=True) + (x * x).sum(0, keepdim=True)),
        ((24, 40),),
        ("inner_outer", "pointwise"),
        40,
    ),
    Hard(
        "to a scalar and back",
        to_a_scalar_and_back,
        lambda x, y: [x / x.norm(), y / x.norm(), 1 / x.norm()],
        ((24, 40), (24, 40)),
        ("inner_persistent", "pointwise"),  # y is no part of the row that the first one holds
        960,
    ),
    Hard(
        "cat of reductions",
        cat_of_reductions,
        lambda x: torch.cat([x.sum(1), x.amax(1), x.mean(1)]),
        ((24, 40),),
        ("reduction", "Join"),  # three places of the result in memory for one row
        40,
    ),
    Hard(
        "expanded sum",
        expanded_sum,
        lambda x, y: [x[:, 0] * y.shape[1], (x * y).sum(1)],
        ((24, 1), (24, 40)),
        ("reduction",),
        40,
    ),
    Hard(
        "after a scan",
        after_a_scan,
        lambda x: [x.cumsum(1).amax(1), x.cumsum(1) - x.cumsum(1).mean(1, keepdim=True)],
        ((6, 300),),
        ("inner_persistent",),
        600,
    ),
    Hard(
        "residual stream",
        residual_stream,
        torch_residual_stream,
        ((12, 64), *[(64,)] * 6),
        ("inner_persistent",) * 2,  # one would compute what it does not hold for each of six reductions
        64,
    ),
    Hard(
        "diamond with transposes",
        diamond,
        lambda x, y: [x.exp() * (x.exp().T.tanh() + y).T, x.exp().T.tanh() + y],
        ((40, 72), (72, 40)),
        ("transpose",),
    ),
    Hard("alternating transposes", transposes, torch_transposes, ((40, 72),), ("transpose",)),
    Hard(
        "rope",
        rope,
        torch_rope,
        ((2, 5, 48), (5, 8), (5, 8)),
        ("pointwise",),  # of q and k; v is a view of the product
        stated=True,
        launches=1,
    ),
    Hard(
        "independent halves",
        halves,
        lambda x, y: [x.softmax(1), y.exp().sum(0)],
        ((12, 64), (30, 20)),
        ("inner_persistent", "reduction"),
        64,
    ),
    Hard(
        "elementwise recurrence",
        elementwise_recurrence,
        torch_elementwise_recurrence,
        ((32, 4, 16), (4, 16)),
        ("pointwise", "Join"),  # each state where it lies in their stack
    ),
    Hard(
        "recurrence",
        recurrence,
        torch_recurrence,
        ((32, 4, 16), (16, 16), (4, 16)),
        ("matmul", "pointwise") * 32,
        32 * 32,  # each step hands on the roundings of those before it
    ),
]


@pytest.mark.parametrize("hard", HARD, ids=lambda hard: hard.name)
def test_hard_graph(hard: Hard, target: torch.device) -> None:
    fd = hard.definition()
    inputs = values(hard.shapes, target)
    outputs = fd.execute(inputs)
    expected = listed(hard.reference(*[x.double() for x in inputs]))
    for out, wanted in zip(outputs, expected, strict=True):
        assert_close(out, wanted, hard.reduced)
    assert steps(fd) == list(hard.steps)
    kernels = sum(step not in ("matmul", "Join") for step in hard.steps)
    assert len(fd._last_kernels()) == (kernels if hard.launches is None else hard.launches)


# ---- what is no table row ----------------------------------------------------------------------------------


def test_layer_norm_dropout_and_add_are_one_kernel(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x, residual, weight, bias = (define_like(fd, shape) for shape in ((-1, -1),) * 2 + ((-1,),) * 2)
        normal, *_ = fd.ops.layer_norm(x, [x.size(1)], weight, bias)
        dropped, mask = fd.ops.dropout(normal, 0.25)
        fd.add_output(dropped + residual)
        fd.add_output(mask)
    inputs = values([(12, 64), (12, 64), (64,), (64,)], target)
    out, mask = fd.execute(inputs)
    rows, added, *affine = (t.double() for t in inputs)
    assert_close(out, torch.where(mask, F.layer_norm(rows, (64,), *affine) / 0.75, 0) + added, 64)
    assert 0.5 < mask.double().mean() < 0.95
    assert steps(fd) == ["inner_persistent"]


def layers(count: int) -> FusionDefinition:
    with FusionDefinition() as fd:
        x, *weights = (define_like(fd, (-1, -1)) for _ in range(count + 1))
        for weight in weights:
            normal, *_ = fd.ops.layer_norm(x, [x.size(1)])
            x = x + fd.ops.gelu(fd.ops.matmul(normal, weight))
        fd.add_output(x)
    return fd


def test_equal_layers_are_compiled_once(target: torch.device) -> None:
    """However many: the first, those between and the last."""
    inputs = values([(6, 16)] + [(16, 16)] * 30, target)
    few, many = layers(3), layers(30)
    few.execute(inputs[:4])
    (out,) = many.execute(inputs)
    x, *weights = (t.double() for t in inputs)
    for weight in weights:
        x = x + F.gelu(F.layer_norm(x, (16,)) @ weight)
    assert_close(out, x, 16 * 30)
    assert len(many._last_kernels()) == 31
    assert set(many._last_kernels()) == set(few._last_kernels())


def test_outputs_in_the_memory_of_inputs_that_others_read(target: torch.device) -> None:
    """Segments that torch's product keeps apart read a state before and after it is updated."""
    with FusionDefinition() as fd:
        state, x, w = (define_like(fd, (-1, -1)) for _ in range(3))
        moved = 0.9 * state + 0.1 * fd.ops.tanh(x)
        fd.add_output(moved, state)  # written while other segments are to read the old one
        product = fd.ops.matmul(moved, w)
        fd.add_output(fd.ops.exp(product) - state)
        fd.add_output(fd.ops.sum(moved * product, [1]))
        fd.add_output(x + product, x)  # an input that two segments before it read
    state, x, w = inputs = values([(6, 16), (6, 16), (16, 16)], target)
    old, x_, w_ = (t.double() for t in inputs)
    out, total = fd.execute(inputs)
    moved = 0.9 * old + 0.1 * x_.tanh()
    assert_close(state, moved)
    assert_close(out, (moved @ w_).exp() - old, 16)
    assert_close(total, (moved * (moved @ w_)).sum(1), 32)
    assert_close(x, x_ + moved @ w_, 16)


def test_rows_by_index_are_summed(target: torch.device) -> None:
    """A bag of embeddings, and the same of rows that a pointwise kernel computes."""
    with FusionDefinition() as fd:
        table, index = define_like(fd, (-1, -1)), fd.define_tensor([-1, -1], True, DataType.Int)
        scale = fd.define_scalar()
        flat = fd.ops.reshape(index, [index.size(0) * index.size(1)])
        rows = fd.ops.index_select(fd.ops.sigmoid(table) * scale, flat, 0)
        bags = fd.ops.reshape(rows, [index.size(0), index.size(1), table.size(1)])
        fd.add_output(fd.ops.sum(bags, [1]))
        fd.add_output(fd.ops.max(bags, [2]))
    (weight,) = values([(50, 16)], target)
    bag = torch.arange(24, device=target).reshape(4, 6) * 7 % 50
    total, largest = fd.execute([weight, bag, 2.0])
    picked = (2 * weight.double().sigmoid())[bag]
    assert_close(total, picked.sum(1), 6)
    assert_close(largest, picked.amax(2))
    assert len(steps(fd)) <= 2


def sum_of(count: int) -> FusionDefinition:
    with FusionDefinition() as fd:
        terms = [define_like(fd, (-1, -1)) for _ in range(count)]
        while len(terms) > 1:
            terms = [sum(terms[i + 1 : i + 8], terms[i]) for i in range(0, len(terms), 8)]
        fd.add_output(terms[0])
    return fd


def test_more_inputs_than_4_kilobytes_of_pointers(target: torch.device) -> None:
    fd = sum_of(520)
    inputs = values([(3, 5)] * 520, target)
    (out,) = fd.execute(inputs)
    assert_close(out, torch.stack(inputs).double().sum(0), 520)
    assert steps(fd) == ["pointwise"]


def test_more_inputs_than_a_kernel_has_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which NVRTC counts as we do."""
    text = 'struct Many {{ char bytes[{}]; }}; extern "C" __global__ void kernel(Many many) {{}}'
    compile_cubin(text.format(MAX_PARAMETER_BYTES), NvrtcOptions("sm_80"))
    with pytest.raises(CompileError, match="parameter space overflowed"):
        compile_cubin(text.format(MAX_PARAMETER_BYTES + 1), NvrtcOptions("sm_80"))
    monkeypatch.setattr(parameters, "MAX_PARAMETER_BYTES", 512)
    monkeypatch.setattr(lowering, "MAX_PARAMETER_BYTES", 512)
    clear_shared_caches()
    fd = sum_of(100)
    inputs = values([(3, 5)] * 100, torch.device("cpu"))
    (out,) = fd.execute(inputs)
    assert_close(out, torch.stack(inputs).double().sum(0), 100)
    assert steps(fd) == ["pointwise"] * 3
    assert "101 inputs and outputs take" in str(fd._complete().executor.segments().log())
    by_hand = FusionDefinition(fd.id())
    by_hand.schedule = lambda: by_hand.sched.inline_most()  # type: ignore[method-assign]
    with pytest.raises(ScheduleError, match="at most 512 bytes"):
        by_hand.execute(inputs)
    clear_shared_caches()


def test_a_tensor_that_many_segments_read(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x, *weights = (define_like(fd, (-1, -1)) for _ in range(65))
        hidden = fd.ops.silu(x)
        for weight in weights:
            fd.add_output(fd.ops.sum(fd.ops.matmul(hidden, weight) * hidden, [1]))
    inputs = values([(6, 16)] + [(16, 16)] * 64, target)
    outputs = fd.execute(inputs)
    hidden = F.silu(inputs[0].double())
    for out, weight in zip(outputs, inputs[1:], strict=True):
        assert_close(out, ((hidden @ weight.double()) * hidden).sum(1), 16 * 16)
    assert steps(fd).count("pointwise") == 1
    assert len(set(fd._last_kernels())) <= 3


def test_scalars_of_the_cpu_in_several_segments(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x, w = define_like(fd, (-1, -1)), define_like(fd, (-1, -1))
        scale = fd.define_tensor([], True, DataType.Double, is_cpu=True)
        power = fd.define_scalar(DataType.Int)
        hidden = fd.ops.exp(x * scale) + power
        fd.add_output(fd.ops.softmax(fd.ops.matmul(hidden, w) * (scale * power), 1))
    x, w = values([(6, 16), (16, 8)], target)
    (out,) = fd.execute([x, w, torch.tensor(0.25, dtype=torch.float64), 3])
    expected = (((0.25 * x.double()).exp() + 3) @ w.double() * 0.75).softmax(1)
    torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows, columns", [(0, 5), (5, 0), (0, 0)])
def test_empty_tensors_in_the_midst(rows: int, columns: int, target: torch.device) -> None:
    """Of which sums are 0, products are 0 and a join is the other part."""
    with FusionDefinition() as fd:
        x, w, other = (define_like(fd, (-1, -1)) for _ in range(3))
        hidden = fd.ops.exp(x)
        fd.add_output(fd.ops.cat([hidden, other], 0))
        product = fd.ops.matmul(hidden, w)
        fd.add_output(product + fd.ops.sum(hidden, [1], keepdim=True))
        fd.add_output(fd.ops.sum(product, [0]) + 1.0)
    inputs = values([(rows, columns), (columns, 7), (3, columns)], target)
    joined, shifted, total = fd.execute(inputs)
    x, w, other = (t.double() for t in inputs)
    assert_close(joined, torch.cat([x.exp(), other]))
    assert_close(shifted, x.exp() @ w + x.exp().sum(1, keepdim=True), 5)
    assert_close(total, (x.exp() @ w).sum(0) + 1, 25)
