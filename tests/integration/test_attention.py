"""Attention, and products in groups or of scaled matrices, against their formulas."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import (
    ArgumentTypeError,
    DefinitionError,
    DtypeError,
    RankError,
    ShapeError,
    UnsupportedHardwareError,
)
from fusewright.ops.library import LIBRARY

Tensor = torch.Tensor
HALF = DataType.Half


def defined(define: Callable[..., Any], *inputs: Tensor) -> FusionDefinition:
    with FusionDefinition() as fd:
        results = define(fd.ops, *[fd.from_pytorch(x) for x in inputs])
        for result in results if isinstance(results, tuple) else (results,):
            if result is not None:
                fd.add_output(result)
    return fd


def drawn(device: torch.device, dtype: torch.dtype, *shapes: Sequence[int]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(shape, generator=generator).to(device, dtype) for shape in shapes]


# ---- attention ---------------------------------------------------------------------------------------------


# [N, H, L, E], S and Ev: a head that is padded, values of another width, and rows of another number.
SIZES = [((2, 3, 16, 32), 16, 32), ((2, 2, 7, 12), 7, 12), ((1, 2, 5, 8), 9, 4)]


@pytest.mark.parametrize(("shape", "columns", "width"), SIZES, ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_attention_and_its_gradients(
    shape: tuple[int, ...], columns: int, width: int, causal: bool, dtype: torch.dtype, target: torch.device
) -> None:
    *batch, rows, head = shape
    shapes = [shape, (*batch, columns, head), (*batch, columns, width), (*batch, rows, width)]
    q, k, v, grad = drawn(target, dtype, *shapes)
    scale = None if causal else 0.5
    forward = defined(lambda ops, q, k, v: ops.sdpfa_fwd(q, k, v, is_causal=causal, scale=scale), q, k, v)
    out, logsumexp, seed, offset = forward.execute([q, k, v])

    seen = torch.ones(rows, columns, dtype=torch.bool, device=target).tril(columns - rows) if causal else None
    wide = [t.double().requires_grad_() for t in (q, k, v)]
    expected = F.scaled_dot_product_attention(*wide, attn_mask=seen, scale=scale)
    scores = wide[0] @ wide[1].mT * (scale or head**-0.5)
    scores = scores if seen is None else scores.masked_fill(~seen, -math.inf)
    bounds = {"rtol": 0.02, "atol": 0.02} if dtype is torch.bfloat16 else {"rtol": 3e-3, "atol": 3e-3}
    assert (out.dtype, logsumexp.dtype, seed.dtype, offset.dtype) == (
        dtype,
        torch.float32,
        torch.uint64,
        torch.uint64,
    )
    assert (seed.shape, offset.shape) == ((2,), ())
    torch.testing.assert_close(out.double(), expected, **bounds)
    torch.testing.assert_close(logsumexp.double(), scores.logsumexp(-1), **bounds)
    forward.validate([q, k, v])

    inputs = [grad, q, k, v, out, logsumexp, seed, offset]

    def backward(
        ops: Any, grad: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, seed: Any, offset: Any
    ) -> Any:
        return ops.sdpfa_bwd(grad, q, k, v, out, lse, 0.0, causal, seed, offset, scale)

    fd = defined(backward, *inputs)
    for ours, theirs in zip(
        fd.execute(inputs), torch.autograd.grad(expected, wide, grad.double()), strict=True
    ):
        torch.testing.assert_close(ours.double(), theirs, rtol=0.05, atol=4 * bounds["atol"])
    exec(repr(fd), {"DataType": DataType, "FusionDefinition": FusionDefinition})


def test_a_bias_and_a_mask_are_broadcast(target: torch.device) -> None:
    q, k, v, bias = drawn(
        target, torch.float16, (1, 2, 2, 5, 8), (1, 2, 2, 6, 8), (1, 2, 2, 6, 8), (1, 2, 1, 5, 6)
    )
    mask = torch.rand(1, 1, 2, 5, 6, device=target) < 0.7
    mask[..., 0] = True
    fd = defined(lambda ops, *args: ops.sdpfa_fwd(*args), q, k, v, bias, mask)
    expected = F.scaled_dot_product_attention(
        q.double(), k.double(), v.double(), attn_mask=bias.double().masked_fill(~mask, -math.inf)
    )
    torch.testing.assert_close(fd.execute([q, k, v, bias, mask])[0].double(), expected, rtol=3e-3, atol=3e-3)


def test_calls_of_torchs_kernels_by_their_shapes() -> None:
    """What a GPU runs, on tensors without memory."""
    q, k, v = (
        torch.empty(2, 3, n, e, dtype=torch.half, device="meta") for n, e in ((7, 12), (9, 12), (9, 4))
    )
    scalars = 0.0, True, None
    forward = LIBRARY["sdpfa_fwd"].function("cuda", terms=0, scaled=True)
    backward = LIBRARY["sdpfa_bwd"].function("cuda", scaled=True)
    out, logsumexp, seed, offset = forward(q, k, v, *scalars)
    assert out.shape == (2, 3, 7, 4) and logsumexp.shape == (2, 3, 7)
    assert (seed.shape, offset.shape) == ((2,), ()) and seed.dtype == offset.dtype == torch.uint64
    grads = backward(out, q, k, v, out, logsumexp, *scalars[:2], seed, offset, None)
    assert [g.shape for g in grads] == [q.shape, k.shape, v.shape]
    biased = LIBRARY["sdpfa_fwd"].function("cuda", terms=1, scaled=True)
    out, logsumexp, seed, offset = biased(q, k, v, q.new_empty(1, 3, 7, 9), *scalars)
    assert out.shape == (2, 3, 7, 4) and logsumexp.shape == (2, 3, 7) and seed.shape == (2,)


def test_what_was_dropped_follows_from_the_seed(target: torch.device) -> None:
    """With values of 1 an element is the sum of the weights that stayed over 1 - p, as gradients see them."""
    q, k = drawn(target, torch.float16, (1, 1, 64, 32), (1, 1, 64, 32))
    ones = torch.ones_like(q)
    with FusionDefinition() as fd:
        x, y, z, p = *[fd.from_pytorch(t) for t in (q, k, ones)], fd.define_scalar(DataType.Double)
        out, lse, seed, offset = fd.ops.sdpfa_fwd(x, y, z, dropout_p=p)
        grads = fd.ops.sdpfa_bwd(z, x, y, z, out, lse, p, None, seed, offset, None)
        for t in (out, seed, grads[2]):
            fd.add_output(t)
    torch.manual_seed(0)
    first, seed, value_grad = fd.execute([q, k, ones, 0.5])
    other, *_ = fd.execute([q, k, ones, 0.5])
    torch.manual_seed(0)
    again, *_ = fd.execute([q, k, ones, 0.5])
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert abs(first.mean().item() - 1) < 0.2
    torch.testing.assert_close(value_grad.sum().double(), first.sum().double(), rtol=0.02, atol=0.1)


def test_attention_refuses() -> None:
    with FusionDefinition() as fd:
        q, x = (fd.define_tensor([-1] * 4, dtype=dtype) for dtype in (HALF, DataType.Float))
        flat, seen = fd.define_tensor([-1] * 3, dtype=HALF), fd.define_tensor([-1] * 4, dtype=DataType.Bool)
        narrow, wide = fd.define_tensor([2, 2, 4, 8], dtype=HALF), fd.define_tensor([2, 2, 4, 16], dtype=HALF)
        for error, match, call in (
            (DtypeError, "query of sdpfa_fwd to have dtype one of", lambda ops: ops.sdpfa_fwd(x, x, x)),
            (DtypeError, "key of sdpfa_fwd", lambda ops: ops.sdpfa_fwd(q, x, q)),
            (DtypeError, "bias of sdpfa_fwd", lambda ops: ops.sdpfa_fwd(q, q, q, x)),
            (DtypeError, "mask of sdpfa_fwd", lambda ops: ops.sdpfa_fwd(q, q, q, None, q)),
            (RankError, "query of sdpfa_fwd to have 4 or 5", lambda ops: ops.sdpfa_fwd(flat, flat, flat)),
            (RankError, "value of sdpfa_fwd", lambda ops: ops.sdpfa_fwd(q, q, flat)),
            (ShapeError, "query and key", lambda ops: ops.sdpfa_fwd(narrow, wide, wide)),
            (ArgumentTypeError, "philox_seed", lambda ops: ops.sdpfa_bwd(q, q, q, q, q, flat)),
        ):
            with pytest.raises(error, match=match):
                call(fd.ops)
        fd.add_output(fd.ops.sdpfa_fwd(q, q, q, mask=seen)[0])


# ---- products in groups, and of scaled matrices ------------------------------------------------------------

GROUPS = [((8, 16), (16, 32)), ((2, 8, 16), (16, 32)), ((8, 16), (2, 16, 32)), ((5, 7), (2, 7, 3))]
ENDS = {0: 11, 1: 20, 2: 3, 3: 2}


def by_group(a: Tensor, b: Tensor, end: int) -> Tensor:
    """The product of two groups, of which the first ends at `end`."""
    if a.ndim == b.ndim:
        return torch.stack([a[:, :end] @ b[:end], a[:, end:] @ b[end:]])
    if a.ndim == 3:
        return torch.cat([a[0] @ b[:, :end], a[1] @ b[:, end:]], 1)
    return torch.cat([a[:end] @ b[0], a[end:] @ b[1]])


@pytest.mark.parametrize("case", range(len(GROUPS)))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_grouped_products(case: int, dtype: torch.dtype, target: torch.device) -> None:
    a, b = drawn(target, dtype, *GROUPS[case])
    last = {0: a.shape[-1], 1: b.shape[-1]}.get(case, a.shape[0])
    offsets = torch.tensor([ENDS[case], last], dtype=torch.int32, device=target)
    (out,) = defined(lambda ops, *args: ops.grouped_mm(*args), a, b, offsets).execute([a, b, offsets])
    expected = by_group(a.double(), b.double(), ENDS[case])
    bounds = {"rtol": 0.02, "atol": 0.1} if dtype is torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-4}
    assert out.dtype == dtype and out.is_contiguous()
    torch.testing.assert_close(out.double(), expected, **bounds)


@pytest.mark.parametrize("case", range(len(GROUPS)))
@pytest.mark.parametrize("transposed", [False, True])
def test_groups_begin_at_aligned_addresses(
    case: int, transposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU torch asserts it: so no group begins within a row, whatever the order in memory."""
    made = torch._grouped_mm
    called = []

    def grouped(a: Tensor, b: Tensor, offs: Tensor) -> Tensor:
        cut = [(a, -1), (b, -2)] if a.ndim == b.ndim else [(a, -2)]
        for matrix, dim in cut:
            assert matrix.stride(dim) * matrix.element_size() % 16 == 0
        assert a.ndim <= b.ndim and a.data_ptr() % 16 == 0 and b.data_ptr() % 16 == 0
        called.append(offs.dtype)
        return made(a, b, offs=offs)

    monkeypatch.setattr(torch, "_grouped_mm", grouped)
    a, b = drawn(torch.device("cpu"), torch.bfloat16, *GROUPS[case])
    if transposed:
        a, b = a.mT.contiguous().mT, b.mT.contiguous().mT
    ends = torch.tensor([ENDS[case], {0: a.shape[-1], 1: b.shape[-1]}.get(case, a.shape[0])])
    out = LIBRARY["grouped_mm"].function("cuda")(a, b, ends)
    assert called == [torch.int32]
    torch.testing.assert_close(
        out.double(), by_group(a.double(), b.double(), ENDS[case]), rtol=0.02, atol=0.1
    )


@pytest.mark.parametrize("case", range(3))
def test_scaled_grouped_products(case: int, target: torch.device) -> None:
    """A scale a row on the left and one a column on the right, of each group; alpha, and a scaled bias."""
    shapes = GROUPS[case]
    a, b = (t.to(torch.float8_e4m3fn) for t in drawn(target, torch.float32, *shapes))
    grouped = case == 0
    left = torch.rand((2, 8, 1) if grouped else (*shapes[0][:-1], 1), device=target)
    right = torch.rand((2, 1, 32) if grouped else (*shapes[1][:-2], 1, 32), device=target)
    alpha, bias, beta = (
        torch.tensor(2.0, device=target),
        torch.rand(8, 32, device=target),
        torch.tensor(0.5, device=target),
    )
    last = {0: 16, 1: 32}.get(case, 8)
    offsets = torch.tensor([ENDS[case], last], device=target)
    inputs = [a, b, offsets, left, right, alpha, bias, beta]

    def define(ops: Any, *args: Any) -> Any:
        out, scale, gamma = ops.grouped_mm(*args, dtype=DataType.Float)
        assert scale is None and gamma is None
        return out

    with FusionDefinition() as fd:
        handles = [fd.define_tensor([-1] * t.ndim, dtype=_TYPES[t.dtype]) for t in inputs]
        fd.add_output(define(fd.ops, *handles))
    (out,) = fd.execute(inputs)
    wide_a, wide_b = a.double(), b.double()
    if grouped:
        product = by_group(wide_a, wide_b, ENDS[case]) * left * right
    else:
        product = by_group(wide_a * left, wide_b * right, ENDS[case])
    torch.testing.assert_close(out.double(), 2 * product + 0.5 * bias.double(), rtol=1e-4, atol=1e-4)
    exec(repr(fd), {"DataType": DataType, "FusionDefinition": FusionDefinition})


_TYPES = {
    torch.float8_e4m3fn: DataType.Float8_e4m3fn,
    torch.float32: DataType.Float,
    torch.int64: DataType.Int,
}


def test_block_scales(target: torch.device) -> None:
    a, b = (t.to(torch.float8_e4m3fn) for t in drawn(target, torch.float32, (8, 64), (64, 16)))
    left, right = (
        (2.0 ** torch.randint(-2, 3, shape)).to(torch.float8_e8m0fnu).to(target)
        for shape in ((8, 2), (2, 16))
    )
    fd = defined(lambda ops, *args: ops.scaled_mm(*args)[0], a, b, left, right)
    (out,) = fd.execute([a, b, left, right])
    expected = (a.double() * left.double().repeat_interleave(32, 1)) @ (
        b.double() * right.double().repeat_interleave(32, 0)
    )
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.double(), expected, rtol=0.01, atol=0.1)


def test_products_refuse() -> None:
    with FusionDefinition() as fd:
        m, g, ends = (
            fd.define_tensor([-1] * 2),
            fd.define_tensor([-1] * 3),
            fd.define_tensor([-1], dtype=DataType.Int),
        )
        small = fd.define_tensor([-1] * 2, dtype=DataType.Float8_e4m3fn)
        for error, match, call in (
            (RankError, "one of mat1 and mat2", lambda ops: ops.grouped_mm(g, g, ends)),
            (RankError, "offsets of grouped_mm", lambda ops: ops.grouped_mm(m, g, m)),
            (DtypeError, "offsets of grouped_mm", lambda ops: ops.grouped_mm(m, g, ops.sum(m, [1]))),
            (DtypeError, "without scales", lambda ops: ops.grouped_mm(small, small, ends)),
            (DefinitionError, "scale1 and scale2", lambda ops: ops.grouped_mm(m, g, ends, m)),
            (DefinitionError, "bias and beta", lambda ops: ops.grouped_mm(m, g, ends, bias=m)),
            (RankError, "scale1 of grouped_mm to have 3", lambda ops: ops.grouped_mm(m, m, ends, m, g)),
            (RankError, "mat1 of scaled_mm", lambda ops: ops.scaled_mm(g, m, m, m)),
            (DefinitionError, "beta needs a bias", lambda ops: ops.scaled_mm(m, m, m, m, beta=m)),
            (DefinitionError, "output_gamma needs", lambda ops: ops.scaled_mm(m, m, m, m, output_gamma=True)),
            (
                DefinitionError,
                "quantized outputs are not available",
                lambda ops: ops.scaled_mm(m, m, m, m, output_block_scale_size=16),
            ),
            (UnsupportedHardwareError, "Blackwell", lambda ops: ops.cutlass_nvfp4_grouped_mm(*[m] * 8)),
        ):
            with pytest.raises(error, match=match):
                call(fd.ops)
        fd.add_output(fd.ops.grouped_mm(m, g, ends))
