"""Products that a library adds to a tensor in its memory: which sums, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.host.program.ir import Evaluate
from fusewright.rewrite.graph import accumulated_products
from tests.integration.cases import random_tensor

Tensor = torch.Tensor
Define = Callable[..., Any]
ROWS, INNER = 24, 40
TYPES = [torch.bfloat16, torch.float32]
BOUNDS = {torch.bfloat16: 2**-7, torch.float32: 1e-5}


#: The operations below, of torch.
TORCH = SimpleNamespace(
    **{name: getattr(torch, name) for name in ("exp", "sin", "cos", "rsqrt", "mean", "sum", "matmul")},
    **{name: getattr(torch, name) for name in ("reshape", "permute")},
    linear=torch.nn.functional.linear,
    index_select=lambda x, rows, dim: x.index_select(dim, rows),
    cast=lambda x, dtype: x,
)


def _stored(o: Any, value: Any, dtype: torch.dtype) -> Any:
    return o.cast(value, DataType.BFloat16) if dtype is torch.bfloat16 else value


def _norm(o: Any, x: Any, dtype: torch.dtype) -> Any:
    wide = o.cast(x, DataType.Float)
    return _stored(o, wide * o.rsqrt(o.mean(wide * wide, [-1], keepdim=True) + 1.0), dtype)


def _sum(o: Any, dtype: torch.dtype, *parts: Any) -> Any:
    total = parts[0]
    for part in parts[1:]:
        total = _stored(o, total + part, dtype)
    return total


def _branch(o: Any, x: Any, w: Any, v: Any, dtype: torch.dtype, last: bool = False) -> tuple[Any, Any]:
    """A residual branch from exp(x): its input, and what is to be added to it."""
    c = _stored(o, o.exp(x), dtype)
    return c, o.matmul(o.matmul(_norm(o, c, dtype), w), v)


def residual(o: Any, x: Any, w: Any, v: Any, b: Any, rows: Any, dtype: torch.dtype) -> Any:
    c, p = _branch(o, x, w, v, dtype)
    return _sum(o, dtype, c, p)


def other_operand(o: Any, x: Any, w: Any, v: Any, b: Any, rows: Any, dtype: torch.dtype) -> Any:
    c, p = _branch(o, x, w, v, dtype)
    return _sum(o, dtype, p, c)


def norm_of_sum(o: Any, x: Any, w: Any, v: Any, b: Any, rows: Any, dtype: torch.dtype) -> Any:
    c, p = _branch(o, x, w, v, dtype)
    return _norm(o, _sum(o, dtype, c, p), dtype)


def two_layers(o: Any, x: Any, w: Any, v: Any, b: Any, rows: Any, dtype: torch.dtype) -> Any:
    c, p = _branch(o, x, w, v, dtype)
    c = _sum(o, dtype, c, p)
    return _sum(o, dtype, c, o.matmul(o.matmul(_norm(o, c, dtype), w), v))


def reshaped_rows(o: Any, x: Any, w: Any, v: Any, b: Any, rows: Any, dtype: torch.dtype) -> Any:
    """As AOTAutograd writes linear layers: rows of three dimensions, products of two."""
    c = o.reshape(_stored(o, o.exp(x), dtype), [4, ROWS // 4, INNER])
    h = o.reshape(_norm(o, c, dtype), [ROWS, INNER])
    p = o.reshape(o.matmul(o.matmul(h, w), v), [4, ROWS // 4, INNER])
    return _sum(o, dtype, c, p)


def one_image(o: Any, x: Any, w: Any, v: Any, b: Any, rows: Any, dtype: torch.dtype) -> Any:
    """The same with a batch of one."""
    c = o.reshape(_stored(o, o.exp(x), dtype), [1, ROWS, INNER])
    h = o.reshape(_norm(o, c, dtype), [ROWS, INNER])
    return _sum(o, dtype, c, o.reshape(o.matmul(o.matmul(h, w), v), [1, ROWS, INNER]))


def linear_layers(o: Any, x: Any, w: Any, v: Any, b: Any, rows: Any, dtype: torch.dtype) -> Any:
    c = o.reshape(_stored(o, o.exp(x), dtype), [4, ROWS // 4, INNER])
    return _sum(o, dtype, c, o.linear(o.linear(_norm(o, c, dtype), w), v))


def linear_with_bias(o: Any, x: Any, w: Any, v: Any, b: Any, rows: Any, dtype: torch.dtype) -> Any:
    """The bias is added to what the product is added to."""
    c = _stored(o, o.exp(x), dtype)
    return _sum(o, dtype, c, o.linear(o.linear(_norm(o, c, dtype), w, b), v, b))


def returned_beside_bias(o: Any, x: Any, w: Any, v: Any, b: Any, rows: Any, dtype: torch.dtype) -> Any:
    """The addend is read later as well, which its sum with the bias is not."""
    c = _stored(o, o.exp(x), dtype)
    total = _sum(o, dtype, c, o.linear(_norm(o, c, dtype), w, b))
    return total, c, _stored(o, c * o.sum(o.cast(total, DataType.Float), [1], keepdim=True), dtype)


def two_products(o: Any, x: Any, w: Any, v: Any, b: Any, rows: Any, dtype: torch.dtype) -> Any:
    return _norm(o, _sum(o, dtype, o.matmul(x, w), o.matmul(x, v)), dtype)


def three_products(o: Any, x: Any, w: Any, v: Any, b: Any, rows: Any, dtype: torch.dtype) -> Any:
    shape = [2, ROWS // 2, INNER]
    y = _stored(o, o.sin(x), dtype)
    parts = [o.reshape(o.matmul(a, m), shape) for a, m in ((x, w), (x, v), (y, w))]
    return _norm(o, _sum(o, dtype, *parts), dtype)


def gathered(o: Any, x: Any, w: Any, v: Any, b: Any, rows: Any, dtype: torch.dtype) -> Any:
    """The rows of an embedding."""
    c = o.index_select(x, rows, 0)
    return _sum(o, dtype, c, o.matmul(_norm(o, c, dtype), w))


def biased(o: Any, x: Any, w: Any, v: Any, b: Any, rows: Any, dtype: torch.dtype) -> Any:
    """The sum of an input and a bias takes the product."""
    return x + o.matmul(o.matmul(_norm(o, x, dtype), w), v) + b


def biased_layers(o: Any, x: Any, w: Any, v: Any, b: Any, rows: Any, dtype: torch.dtype) -> Any:
    for _ in range(3):
        x = x + o.matmul(o.matmul(_norm(o, x, dtype), w), v) + b
    return x


def biased_linear(o: Any, x: Any, w: Any, v: Any, b: Any, rows: Any, dtype: torch.dtype) -> Any:
    return _sum(o, dtype, x, o.linear(_norm(o, x, dtype), w, b))


ACCUMULATED: list[tuple[Define, int]] = [
    (residual, 1),
    (other_operand, 1),
    (norm_of_sum, 1),
    (two_layers, 2),
    (reshaped_rows, 1),
    (one_image, 1),
    (linear_layers, 1),
    (two_products, 1),
    (three_products, 2),
    (gathered, 1),
]
WIDE: list[tuple[Define, int]] = [(biased, 1), (biased_layers, 3), (biased_linear, 1)]
WIDE += [(linear_with_bias, 1), (returned_beside_bias, 1)]


def of_input(o: Any, x: Any, w: Any, v: Any, b: Any, rows: Any, dtype: torch.dtype) -> Any:
    return _sum(o, dtype, x, o.matmul(_norm(o, x, dtype), w))


def returned_too(o: Any, x: Any, w: Any, v: Any, b: Any, rows: Any, dtype: torch.dtype) -> Any:
    c, p = _branch(o, x, w, v, dtype)
    return _sum(o, dtype, c, p), c


def product_returned(o: Any, x: Any, w: Any, v: Any, b: Any, rows: Any, dtype: torch.dtype) -> Any:
    c, p = _branch(o, x, w, v, dtype)
    return _sum(o, dtype, c, p), p


def product_read_twice(o: Any, x: Any, w: Any, v: Any, b: Any, rows: Any, dtype: torch.dtype) -> Any:
    c, p = _branch(o, x, w, v, dtype)
    return _sum(o, dtype, c, p), _stored(o, p * 0.5, dtype)


def read_later(o: Any, x: Any, w: Any, v: Any, b: Any, rows: Any, dtype: torch.dtype) -> Any:
    c, p = _branch(o, x, w, v, dtype)
    total = _sum(o, dtype, c, p)
    return total, _stored(o, c * o.sum(o.cast(total, DataType.Float), [1], keepdim=True), dtype)


def computed_from_later(o: Any, x: Any, w: Any, v: Any, b: Any, rows: Any, dtype: torch.dtype) -> Any:
    """What is computed from the addend is read later, so that a kernel may compute it again."""
    c = _stored(o, o.exp(x), dtype)
    narrow = o.sin(c)
    p = o.matmul(o.matmul(_stored(o, narrow * 0.5, dtype), w), v)
    total = _sum(o, dtype, c, p)
    return total, _stored(o, o.cos(narrow) * o.sum(o.cast(total, DataType.Float), [1], keepdim=True), dtype)


def read_beside(o: Any, x: Any, w: Any, v: Any, b: Any, rows: Any, dtype: torch.dtype) -> Any:
    """Another product reads the addend, which may come after the sum."""
    c, p = _branch(o, x, w, v, dtype)
    return _sum(o, dtype, c, p), o.matmul(c, w)


def added_to_itself(o: Any, x: Any, w: Any, v: Any, b: Any, rows: Any, dtype: torch.dtype) -> Any:
    p = o.matmul(x, w)
    return _sum(o, dtype, p, p)


def of_a_row(o: Any, x: Any, w: Any, v: Any, b: Any, rows: Any, dtype: torch.dtype) -> Any:
    return _sum(o, dtype, o.matmul(x, w), b)


def batched(o: Any, x: Any, w: Any, v: Any, b: Any, rows: Any, dtype: torch.dtype) -> Any:
    """Products of several matrices."""
    a = o.reshape(x, [2, ROWS // 2, INNER])
    b = _stored(o, o.sin(a), dtype)
    return _sum(o, dtype, *(o.matmul(y, o.permute(y, [0, 2, 1])) for y in (a, b)))


SEPARATE: list[Define] = [
    of_input,
    returned_too,
    product_returned,
    product_read_twice,
    read_later,
    computed_from_later,
    read_beside,
    added_to_itself,
    of_a_row,
    batched,
]


def _run(define: Define, dtype: torch.dtype, device: torch.device, fixed: bool = True) -> tuple[int, int]:
    """Executes a definition, of fixed or of open sizes, and compares it with torch in double.

    Returns how many products were added to another tensor, and how many of these in its memory.
    """
    generator = torch.Generator().manual_seed(3)
    shapes = ((ROWS, INNER), (INNER, INNER), (INNER, INNER), (INNER,))
    inputs = [(random_tensor(shape, dtype, generator) / 4).to(device) for shape in shapes]
    inputs.append(torch.randint(ROWS, (ROWS,), generator=generator).to(device))
    kept = [x.clone() for x in inputs]
    with FusionDefinition() as fd:
        operands = [fd.from_pytorch(x, static_sizes=fixed) for x in inputs]
        results = define(fd.ops, *operands, dtype)
        for result in results if isinstance(results, tuple) else (results,):
            fd.add_output(result)
    first = fd.execute(inputs)
    again = fd.execute(inputs)
    assert all(torch.equal(a, b) for a, b in zip(first, again)), "a call changed what the next one reads"
    assert all(torch.equal(a, b) for a, b in zip(inputs, kept))
    doubles = [x.cpu() if x.dtype is torch.int64 else x.cpu().double() for x in inputs]
    expected = define(TORCH, *doubles, torch.float64)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for made, right in zip(first, expected, strict=True):
        scale = right.abs().max().item()
        assert (made.double() - right.to(made.device)).abs().max().item() <= BOUNDS[dtype] * scale
    program = fd._finished().executor.last_program
    assert program is not None
    steps = [step for step in program.program.operations if isinstance(step, Evaluate)]
    return sum(step.overwritable is not None for step in steps), sum(step.over is not None for step in steps)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(("define", "count"), ACCUMULATED, ids=lambda v: getattr(v, "__name__", ""))
def test_products_are_added_in_memory(
    define: Define, count: int, dtype: torch.dtype, target: torch.device
) -> None:
    assert _run(define, dtype, target) == (count, count)


@pytest.mark.parametrize("define", [residual, norm_of_sum, linear_layers, two_products, gathered])
def test_of_open_sizes(define: Define, target: torch.device) -> None:
    assert _run(define, torch.bfloat16, target, fixed=False) == (1, 1)


def test_a_bias_of_another_size_is_left_to_torch(target: torch.device) -> None:
    """One of a single element, where sizes are open: torch broadcasts it."""
    x, w = torch.randn(ROWS, INNER, device=target), torch.randn(INNER, INNER, device=target)
    with FusionDefinition() as fd:
        h, m, b = (fd.from_pytorch(t) for t in (x, w, torch.ones(INNER, device=target)))
        c = fd.ops.exp(h)
        fd.add_output(c + fd.ops.linear(_norm(fd.ops, c, torch.float32), m, b))
    assert len(fd.kernels_for([x, w, torch.ones(INNER, device=target)])) == 3
    one = torch.full((1,), 0.5, device=target)
    c = x.exp()
    norm = c * (c.square().mean(-1, keepdim=True) + 1).rsqrt()
    torch.testing.assert_close(fd.execute([x, w, one])[0], c + norm @ w.t() + 0.5, rtol=1e-4, atol=1e-4)


def test_a_bias_that_cancels_the_product_is_added_before_rounding() -> None:
    generator = torch.Generator().manual_seed(11)
    x = (0.5 * torch.randn(32, 64, generator=generator)).bfloat16()
    w = torch.rand(64, 64, generator=generator).bfloat16()
    b = (-8 * w.float().sum(1)).bfloat16()

    def of(o: Any, x: Any, w: Any, b: Any, dtype: torch.dtype) -> Any:
        c = _stored(o, x * 0.5, dtype)
        return _sum(o, dtype, c, o.linear(_stored(o, c + 8.0, dtype), w, b))

    with FusionDefinition() as fd:
        fd.add_output(of(fd.ops, *(fd.from_pytorch(t, True) for t in (x, w, b)), torch.bfloat16))
    exact = of(TORCH, *(t.double() for t in (x, w, b)), torch.float64)
    of_torch = of(TORCH, x, w, b, torch.bfloat16)
    errors = [(made.double() - exact).square().mean().item() for made in (fd.execute([x, w, b])[0], of_torch)]
    assert errors[0] <= 1.1 * errors[1]


def test_work_that_branches_and_joins_is_followed_once() -> None:
    x, w = torch.randn(8, 16), torch.randn(16, 16)
    with FusionDefinition() as fd:
        c = y = fd.ops.exp(fd.from_pytorch(x))
        for _ in range(60):
            y = y * fd.ops.sin(y)
        fd.add_output(c + fd.ops.matmul(y, fd.from_pytorch(w)))
    assert fd.kernels_for([x, w])[-1].name == "addmm"


@pytest.mark.parametrize("fixed", [True, False], ids=["fixed", "open"])
@pytest.mark.parametrize(
    ("shapes", "define"),
    [
        (
            ((1, 8), (8, 8), (8, 8)),
            lambda o, x, w, v: o.squeeze(o.matmul(x, w), [0]) + o.squeeze(o.matmul(x, v), [0]),
        ),
        (
            ((1, 8), (8, 1), (8, 1)),
            lambda o, x, w, v: o.squeeze(o.matmul(x, w), [0, 1]) + o.squeeze(o.matmul(x, v), [0, 1]),
        ),
        (
            ((1, 8), (8, 8), (5, 1)),
            lambda o, x, w, b: o.exp(x) + o.matmul(o.exp(x) * o.sum(o.exp(x), [1], True), w) + b,
        ),
    ],
    ids=["one dimension", "none", "an enlarging bias"],
)
def test_sums_of_other_shapes(shapes: Any, define: Any, fixed: bool, target: torch.device) -> None:
    inputs = [torch.randn(shape, device=target) for shape in shapes]
    with FusionDefinition() as fd:
        fd.add_output(define(fd.ops, *(fd.from_pytorch(t, fixed) for t in inputs)))
    squeezing = SimpleNamespace(**vars(TORCH), squeeze=lambda x, dims: x.squeeze(tuple(dims)))
    torch.testing.assert_close(fd.execute(inputs)[0], define(squeezing, *inputs), rtol=1e-4, atol=1e-4)


def test_an_addend_in_columns_is_left_apart(target: torch.device) -> None:
    """A library would copy it into rows."""
    x, w = torch.randn(INNER, ROWS, device=target).t(), torch.randn(INNER, INNER, device=target)
    with FusionDefinition() as fd:
        operands = [fd.from_pytorch(t, True) for t in (x, w, w)]
        fd.add_output(residual(fd.ops, *operands, None, None, torch.float32))
    assert "addmm" not in [kernel.name for kernel in fd.kernels_for([x, w, w])]
    expected = residual(TORCH, x.double(), w.double(), w.double(), None, None, torch.float64)
    torch.testing.assert_close(fd.execute([x, w, w])[0].double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("define", "count"), WIDE, ids=lambda v: getattr(v, "__name__", ""))
def test_a_bias_is_added_before_the_product(define: Define, count: int, target: torch.device) -> None:
    assert _run(define, torch.float32, target) == (count, count)


@pytest.mark.parametrize(("define", "count"), WIDE, ids=lambda v: getattr(v, "__name__", ""))
def test_roundings_to_a_reduced_type_keep_their_order(
    define: Define, count: int, target: torch.device
) -> None:
    del count
    assert _run(define, torch.bfloat16, target)[0] == 0


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("define", SEPARATE, ids=lambda v: v.__name__)
def test_products_that_stay_apart(define: Define, dtype: torch.dtype, target: torch.device) -> None:
    assert _run(define, dtype, target) == (0, 0)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("define", [of_input, returned_too, read_later, computed_from_later, read_beside])
def test_a_tensor_that_is_needed_is_not_overwritten(
    define: Define, dtype: torch.dtype, target: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program decides by itself, whatever the rewrite took to be free."""
    monkeypatch.setattr(accumulated_products, "_is_free_after", lambda *_: True)
    calls, in_memory = _run(define, dtype, target)
    assert calls == 1
    assert in_memory == 0 or define is read_beside  # where the other reader happens to come first


def test_no_kernel_is_left_for_the_sum() -> None:
    """The kernel of the norm stores what the product is added to."""
    x, w = torch.randn(ROWS, INNER).bfloat16(), torch.randn(INNER, INNER).bfloat16()
    with FusionDefinition() as fd:
        operands = [fd.from_pytorch(t) for t in (x, w, w)]
        fd.add_output(residual(fd.ops, *operands, None, None, torch.bfloat16))
    made, *products = fd.kernels_for([x, w, w])
    assert [tuple(t.shape) for t in made.tensors if t.is_written] == [(ROWS, INNER)] * 2
    assert [each.name for each in products] == ["matmul", "addmm"]
