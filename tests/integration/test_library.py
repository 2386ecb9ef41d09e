"""Operations that torch computes as a whole, and the kernels around them, against torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import (
    DtypeError,
    LibraryError,
    NoSchedulerError,
    RankError,
    ShapeError,
    UserError,
)
from tests.integration.cases import random_tensor
from tests.integration.tolerance import assert_close

Tensor = torch.Tensor


def defined(define: Callable[..., Any], *inputs: Any, **kwargs: Any) -> FusionDefinition:
    """A definition with inputs like these (`from_pytorch`), and as outputs what `define` returns."""
    with FusionDefinition() as fd:
        results = define(fd.ops, *[fd.from_pytorch(x) if isinstance(x, Tensor) else x for x in inputs])
        for result in results if isinstance(results, tuple) else (results,):
            fd.add_output(result)
    return fd


def tensors(device: torch.device, dtype: torch.dtype, *shapes: Sequence[int]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [random_tensor(tuple(shape), dtype, generator).to(device) for shape in shapes]


# ---- contractions ------------------------------------------------------------------------------------------

PRODUCTS = [
    ((5,), (5,)),
    ((5,), (5, 3)),
    ((4, 5), (5,)),
    ((4, 5), (5, 3)),
    ((5,), (2, 5, 3)),
    ((2, 4, 5), (5,)),
    ((2, 4, 5), (5, 3)),
    ((4, 5), (2, 5, 3)),
    ((2, 1, 4, 5), (3, 5, 6)),
    ((7, 2, 1, 4, 5), (3, 5, 6)),
    ((4, 0), (0, 3)),
    ((0, 5), (5, 3)),
    ((1, 1), (1, 1)),
]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]


@pytest.mark.parametrize("shapes", PRODUCTS, ids=str)
def test_matmul(shapes: tuple[Sequence[int], ...], target: torch.device) -> None:
    a, b = tensors(target, torch.float32, *shapes)
    fd = defined(lambda ops, a, b: a @ b, a, b)
    (out,) = fd.execute([a, b])
    assert_close(out, a.double() @ b.double(), a.shape[-1])
    fd.validate([a, b])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 3, 5)], ids=str)
def test_linear(dtype: torch.dtype, shape: Sequence[int], target: torch.device) -> None:
    x, w, bias = tensors(target, dtype, shape, (6, 5), (6,))
    wide = torch.complex128 if dtype.is_complex else torch.float64
    for inputs in ((x, w), (x, w, bias)):
        fd = defined(lambda ops, *args: ops.linear(*args), *inputs)
        (out,) = fd.execute(inputs)
        assert out.dtype == dtype
        assert_close(out, F.linear(*[i.to(wide) for i in inputs]), 5)
        fd.validate(inputs)


def test_operands_lie_anyhow_in_memory(target: torch.device) -> None:
    a, b = tensors(target, torch.float32, (5, 8), (6, 1, 5))
    a, b = a.t()[::2], b.permute(0, 2, 1).expand(6, 5, 3)
    assert_close(
        defined(lambda ops, a, b: ops.matmul(a, b), a, b).execute([a, b])[0], a.double() @ b.double(), 5
    )


# ---- sorting -----------------------------------------------------------------------------------------------

ORDERED = [torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]


def distinct(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Different values, so that there is one order only."""
    count = torch.Size(shape).numel()
    return (
        torch.randperm(count, generator=torch.Generator().manual_seed(2)).to(dtype).reshape(shape).to(device)
    )


@pytest.mark.parametrize("dtype", ORDERED, ids=str)
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("up", [False, True])
def test_sorts(dtype: torch.dtype, dim: int, up: bool, target: torch.device) -> None:
    x = distinct((3, 8, 5), dtype, target).permute(2, 0, 1)

    def define(ops: Any, x: Any) -> Any:
        chosen = ops.topk(x, 2, dim, up, True)
        return (ops.argsort(x, dim, up, stable=True), *ops.sort(x, dim, descending=up), *chosen)

    outputs = defined(define, x).execute([x])
    expected = [
        x.argsort(dim, up),
        *x.sort(dim, up),
        *x.topk(2, dim, up, True),
    ]
    for ours, theirs in zip(outputs, expected, strict=True):
        assert ours.is_contiguous()
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)


def test_a_tensor_of_rank_0_is_sorted(target: torch.device) -> None:
    x = torch.tensor(2.5, device=target)
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.argsort(fd.define_tensor([]), dim=-1))
    (out,) = fd.execute([x])
    assert out.shape == () and out.item() == 0 and out.device.type == target.type


def test_k_is_a_scalar_of_each_call(target: torch.device) -> None:
    """The sizes of what follows are known from it; a product of scalars is one, too."""
    with FusionDefinition() as fd:
        x, k = fd.define_tensor([-1, -1], True), fd.define_scalar(DataType.Int)
        values, _ = fd.ops.topk(x, k * 2, sorted=True)
        fd.add_output(fd.ops.sum(values * 2.0, [1]))
    given = torch.randn(4, 9, device=target)
    for half in (1, 3, 0):
        (out,) = fd.execute([given, half])
        assert_close(out, 2 * given.double().topk(2 * half).values.sum(1), 2 * half)
    with pytest.raises(LibraryError, match=r"k .* range"):
        fd.execute([given, 5])
    with pytest.raises(ShapeError, match="is used as a size"):
        fd.execute([given, -1])


# ---- what surrounds them -----------------------------------------------------------------------------------


def mlp(ops: Any, x: Any, w: Any, b: Any) -> Any:
    hidden = ops.relu(ops.linear(x * 2.0, w) + b)
    return ops.sum(hidden, [-1]), hidden, *ops.topk(hidden, 2, dim=1, sorted=True)


def torch_mlp(x: Tensor, w: Tensor, b: Tensor) -> list[Tensor]:
    hidden = F.relu(F.linear(x * 2, w) + b)
    return [hidden.sum(-1), hidden, *hidden.topk(2, 1)]


def test_kernels_before_and_after_are_fused_for_all_sizes(target: torch.device) -> None:
    inputs = tensors(target, torch.float32, (6, 5, 8), (7, 8), (7,))
    fd = defined(mlp, *inputs)
    kernels = set()
    for shapes in (((6, 5, 8), (7, 8), (7,)), ((2, 9, 4), (3, 4), (3,)), ((0, 2, 4), (3, 4), (3,))):
        inputs = tensors(target, torch.float32, *shapes)
        for ours, theirs in zip(fd.execute(inputs), torch_mlp(*[i.double() for i in inputs]), strict=True):
            assert_close(ours, theirs, shapes[1][0] * shapes[1][1])
        program = fd._leaf.executor.last_program
        kernels.update(program.kernels)
        names = [plan.segment.scheduler.type.name for plan in program.plans]
        # Without elements there is nothing to compute.
        assert names == (["pointwise", "expr_eval", "reduction", "expr_eval"] if shapes[0][0] else [])
    with pytest.raises(ShapeError, match="2 different sizes"):
        fd.execute(tensors(target, torch.float32, (6, 5, 8), (7, 9), (7,)))


def test_a_segment_that_torch_computes_is_profiled(target: torch.device) -> None:
    x, w = tensors(target, torch.float32, (4, 8), (6, 8))
    fd = defined(lambda ops, x, w: ops.linear(x, w) + 1.0, x, w)
    fd.execute([x, w], profile=True)
    first, second = fd.profile().kernel_profiles
    assert (first.name, first.scheduler, first.output_bytes) == ("linear", "expr_eval", 4 * 6 * 4)
    assert second.scheduler == "pointwise" and second.input_bytes == first.output_bytes


def test_results_are_written_where_outputs_belong(target: torch.device) -> None:
    """In place, in any order in memory, twice, and beside the inputs that they are made of."""
    a, b = tensors(target, torch.float32, (4, 4), (4, 4))
    kept = torch.empty(4, 4, device=target).t().copy_(b)
    with FusionDefinition() as fd:
        x, y = fd.from_pytorch(a), fd.from_pytorch(kept)
        product = x @ y
        fd.add_output(product, alias_input=y)
        fd.add_output(product)
        fd.add_output(product, stride_order=[0, 1])
        fd.add_output(fd.ops.sort(product + y)[0])
        fd.add_output(x)
    expected = a @ b
    first, second, third, fourth = fd.execute([a, kept])
    assert first.data_ptr() == kept.data_ptr() and fourth is a
    assert second.stride() == (1, 4)
    for ours, theirs in (
        (kept, expected),
        (first, expected),
        (second, expected),
        (third, (expected + b).sort()[0]),
    ):
        torch.testing.assert_close(ours, theirs)


def test_modes_of_torch_change_nothing(target: torch.device) -> None:
    """No gradients are recorded and autocast casts nothing, as in kernels; gradient mode stays as it was."""
    a, b = (t.requires_grad_() for t in tensors(target, torch.float32, (4, 4), (4, 4)))
    fd = defined(lambda ops, a, b: a @ b, a, b)
    with torch.autocast(target.type, torch.bfloat16):
        (out,) = fd.execute([a, b])
    assert out.dtype == torch.float32 and not out.requires_grad and torch.is_grad_enabled()
    with pytest.raises(LibraryError):
        sized = defined(lambda ops, x: ops.topk(x, 9), a)
        sized.execute([a])
    assert torch.is_grad_enabled()


def test_a_compiled_function_calls_one_operator(target: torch.device) -> None:
    inputs = tensors(target, torch.float32, (6, 5, 8), (7, 8), (7,))
    fd = defined(mlp, *inputs)
    expected = fd.execute(inputs)
    compiled = torch.compile(
        lambda *args: [out * 1 for out in fd.execute(args)], backend="aot_eager", fullgraph=True
    )
    for ours, theirs in zip(compiled(*inputs), expected, strict=True):
        torch.testing.assert_close(ours, theirs)


# ---- refusals ----------------------------------------------------------------------------------------------


def refused(
    error: type[Exception], match: str, define: Callable[..., Any], *ranks: int, **kwargs: Any
) -> None:
    with FusionDefinition() as fd, pytest.raises(error, match=match):
        define(fd.ops, *[fd.define_tensor([-1] * rank, **kwargs) for rank in ranks])
    # The failed call has left nothing behind.
    assert "matmul" not in repr(fd)


def test_wrong_ranks_types_and_dimensions() -> None:
    def mixed(ops: Any, a: Any, b: Any) -> Any:
        return ops.matmul(a, ops.cast(b, DataType.Half))

    refused(DtypeError, "b of matmul to have dtype DataType.Float, as a, but got DataType.Half", mixed, 2, 2)
    refused(DtypeError, "a of matmul", lambda ops, a: a @ a, 2, dtype=DataType.Int)
    refused(RankError, "b of matmul to have at least 1", lambda ops, a, b: a @ b, 2, 0)
    refused(RankError, "arg2 of linear to have 2", lambda ops, a, b: ops.linear(a, b), 2, 1)
    refused(RankError, "bias of linear to have 1", lambda ops, a, b: ops.linear(a, a, b), 2, 2)
    refused(
        ShapeError,
        "Tried to access out of boundary index 2. total index: 2",
        lambda ops, a: ops.argsort(a, 2),
        2,
    )
    refused(
        ShapeError, "Tried to access out of boundary index -1. total", lambda ops, a: ops.topk(a, 1, -3), 2
    )
    refused(ShapeError, "Invalid resized domain extent -5", lambda ops, a: ops.topk(a, -5), 1)
    refused(DtypeError, "k of topk", lambda ops, a: ops.topk(a, 2.0), 1)
    refused(DtypeError, "the input of topk", lambda ops, a: ops.topk(a, 1), 1, dtype=DataType.Bool)
    refused(DtypeError, "the input of sort", lambda ops, a: ops.sort(a), 1, dtype=DataType.ComplexFloat)
    with FusionDefinition() as fd, pytest.raises(ShapeError, match="2 different sizes"):
        fd.ops.matmul(fd.define_tensor([2, 3]), fd.define_tensor([4, 2]))
    with FusionDefinition() as fd, pytest.raises(ShapeError, match="k out of range"):
        fd.ops.topk(fd.define_tensor([2, 3]), 4)


def test_what_torch_refuses_at_a_call_names_the_operation(target: torch.device) -> None:
    x, w, bias = tensors(target, torch.float32, (4, 8), (1, 8), (256,))
    fd = defined(lambda ops, *args: ops.linear(*args), x, w, bias)
    with pytest.raises(
        LibraryError, match=r"linear: The expanded size of the tensor \(1\) must match the exist"
    ):
        fd.execute([x, w, bias])


def test_nothing_takes_a_product_that_is_kept_from_torch(target: torch.device) -> None:
    a, b = tensors(target, torch.float32, (4, 4), (4, 4))
    fd = defined(lambda ops, a, b: (a @ b, *ops.sort(a)), a, b)
    fd.execute([a, b])
    switches = {"_enable_options": ["fuse_matmul"], "_disable_options": ["matmul_expr_eval"]}
    with pytest.raises(
        NoSchedulerError, match="Can not find a scheduler to schedule fusion segment: T2 = matmul"
    ):
        fd.execute([a, b], **switches)
    torch.testing.assert_close(fd.execute([a, b])[0], a @ b)


def test_a_users_schedule_cannot_hold_them(target: torch.device) -> None:
    class Scheduled(FusionDefinition):
        def definition(self) -> None:
            x = self.define_tensor([-1, -1], True)
            self.add_output(x @ x)

        def schedule(self) -> None:
            pass

    with pytest.raises(UserError, match="torch computes"):
        Scheduled().execute([torch.ones(2, 2, device=target)])
