"""Four-bit floats, which lie in memory in pairs, and quantization of blocks, against torch."""

from __future__ import annotations

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import DtypeError, RankError, ShapeError, UnsupportedHardwareError

PAIRS = torch.float4_e2m1fn_x2
MAGNITUDES = torch.tensor([0.0, 0.5, 1, 1.5, 2, 3, 4, 6])
VALUES = torch.cat([MAGNITUDES, -MAGNITUDES])
FP4, FP4_X2, E4M3 = DataType.Float4_e2m1fn, DataType.Float4_e2m1fn_x2, DataType.Float8_e4m3fn


def elements(pairs: torch.Tensor) -> torch.Tensor:
    """The floats of pairs, twice as many along the last dimension."""
    bits = pairs.view(torch.uint8).int()
    return VALUES.to(bits.device)[torch.stack([bits % 16, bits // 16], -1).flatten(-2)]


def every_pair(target: str) -> torch.Tensor:
    return torch.arange(256, dtype=torch.uint8, device=target).view(PAIRS)


@pytest.mark.parametrize("rows, shape", [(1, [-1, -1]), (4, [-1, -1]), (256, [-1, -1]), (4, [4, 64])])
def test_elements_of_pairs_and_back(target, rows, shape):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape, contiguity=[None if s == 1 else True for s in shape], dtype=FP4_X2)
        y = fd.ops.cast(x, dtype=DataType.Float)
        fd.add_output(y)
        fd.add_output(fd.ops.cast(y * 1.25, dtype=FP4))
        fd.add_output(fd.ops.neg(x))
        fd.add_output(x)
    pairs = every_pair(target).view(rows, -1)
    wide, scaled, negated, again = fd.execute([pairs])
    assert torch.equal(wide, elements(pairs)) and torch.equal(negated, -elements(pairs))
    assert scaled.dtype is again.dtype is PAIRS
    assert torch.equal(again.view(torch.uint8), pairs.view(torch.uint8))
    # Ties go to even bits: 1.25 to 1, 2.5 to 2, 5 to 4. 1.875 and 3.75 are nearer to 2 and 4; 7.5 saturates.
    rounded = torch.tensor([0, 0.5, 1, 2, 2, 4, 4, 6], device=target)
    assert torch.equal(elements(scaled).abs(), rounded[torch.searchsorted(MAGNITUDES.to(target), wide.abs())])
    fd.validate([pairs])


def test_pairs_lie_along_the_dimension_that_is_innermost_in_memory(target):
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], [True, True], FP4_X2, stride_order=[0, 1])
        fd.add_output(fd.ops.cast(x, dtype=DataType.Float))
        fd.add_output(x, stride_order=[0, 1])
    pairs = every_pair(target).view(16, 16).t()
    wide, again = fd.execute([pairs])
    assert torch.equal(wide, elements(pairs.t()).t())
    exec(fd.repro_script_for([pairs]), {})
    assert again.stride() == pairs.stride() and torch.equal(again.view(torch.uint8), pairs.view(torch.uint8))


def test_shapes_of_elements_count_elements(target):
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 6], contiguity=True, dtype=FP4)
        fd.add_output(fd.ops.sum(fd.ops.cast(x, dtype=DataType.Float), [1]))
    pairs = every_pair(target)[:63].view(21, 3)
    (out,) = fd.execute([pairs])
    assert torch.equal(out, elements(pairs).sum(1))
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.neg(fd.from_pytorch(pairs)))
    assert torch.equal(fd.execute([pairs])[0], -elements(pairs))


def test_every_power_of_two(target):
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], contiguity=True, dtype=DataType.Float8_e8m0fnu)
        y = fd.ops.cast(x, dtype=DataType.Float)
        fd.add_output(y)
        fd.add_output(fd.ops.cast(y, dtype=DataType.Float8_e8m0fnu))
    scales = torch.arange(256, dtype=torch.uint8, device=target).view(torch.float8_e8m0fnu)
    wide, again = fd.execute([scales])
    torch.testing.assert_close(wide, scales.float(), rtol=0, atol=0, equal_nan=True)
    assert torch.equal(again.view(torch.uint8), scales.view(torch.uint8))


# ---- errors ------------------------------------------------------------------------------------------------


def test_what_pairs_cannot_be():
    with FusionDefinition() as fd:
        with pytest.raises(ShapeError, match="packed in pairs along dimension 1"):
            fd.define_tensor([4, 3], contiguity=True, dtype=FP4)
        with pytest.raises(RankError, match="packed in pairs along a dimension"):
            fd.define_tensor([], dtype=FP4_X2)
        x = fd.define_tensor([-1, -1], contiguity=True)
        with pytest.raises(DtypeError, match=f"cast.*{FP4}"):
            fd.ops.cast(x, dtype=FP4_X2)
        with pytest.raises(DtypeError, match="constant"):
            fd.ops.full([4], 1.0, FP4_X2)
        with pytest.raises(DtypeError, match="beyond the range of DataType"):
            fd.ops.full([4], 7.0, FP4)
        fd.add_output(fd.ops.cast(x, dtype=FP4))
    with pytest.raises(ShapeError, match="packed in pairs along dimension 1, whose size must be even"):
        fd.execute([torch.zeros(4, 3)])
    assert fd.execute([torch.zeros(3, 4)])[0].shape == (3, 2)


# ---- blocks ------------------------------------------------------------------------------------------------


def quantization(given, has_scale, **options):
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=given)
        scale = fd.define_tensor([], dtype=DataType.Float) if has_scale else None
        for out in fd.ops.nv_block_quantize(x, scale, **options):
            fd.add_output(out)
    return fd


@pytest.mark.parametrize("has_scale", [False, True])
def test_blocks_of_four_bits(target, has_scale):
    x = torch.randn(5, 64, device=target).bfloat16()
    x[1, :16], x[2, 3] = 0, 3000.0
    given = torch.tensor(448 * 6 / x.abs().max().item() if has_scale else 1.0, device=target)
    fd = quantization(DataType.BFloat16, has_scale)
    quantized, scales = fd.execute([x, given] if has_scale else [x])
    blocks = x.float().view(5, 4, 16)
    expected = (blocks.abs().amax(-1) / 6 * given).clamp(2.0**-6, 448).to(torch.float8_e4m3fn)
    assert torch.equal(scales.view(torch.uint8), expected.view(torch.uint8))
    quotient = (blocks / (expected.float() / given)[..., None]).clamp(-6, 6).view(5, 64)
    got = elements(quantized)
    assert quantized.shape == (5, 32) and quantized.dtype is PAIRS
    # The nearest value, which of two as near is tested where values are rounded.
    nearest = (quotient[..., None] - VALUES.to(target)).abs().amin(-1)
    torch.testing.assert_close((got - quotient).abs(), nearest, rtol=1e-5, atol=1e-6)


def test_blocks_of_eight_bits_have_the_least_power_of_two_that_none_exceeds(target):
    x = torch.randn(3, 96, device=target)
    top = torch.tensor([448.0, 449.0, 0.0, 7.0, 7.0 + 2**-10, 1e-30, 3e38, 224.0, 1.0], device=target)
    x.view(9, 32)[:] = x.view(9, 32).clamp(-1, 1) * top[:, None]
    x.view(9, 32)[:, 5] = top
    fd = quantization(DataType.Float, False, block_size=32, dtype=E4M3)
    quantized, scales = fd.execute([x])
    # log2 of a power of two may be rounded up.
    mantissa, exponents = torch.frexp(top.double() / 448)
    exponents = torch.where(mantissa == 0, -126, exponents - (mantissa == 0.5).int()).clamp(-126, 127)
    assert torch.equal(scales.view(9).float(), torch.exp2(exponents.double()).float())
    expected = (x.view(9, 32) / scales.view(9).float()[:, None]).to(torch.float8_e4m3fn)
    assert torch.equal(quantized.float().view(9, 32), expected.float())


def test_a_product_of_quantized_matrices(target):
    with FusionDefinition() as fd:
        a, b = (fd.define_tensor([-1, -1], contiguity=True) for _ in "ab")
        quantized = [fd.ops.nv_block_quantize(x) for x in (a, b)]
        turned = [fd.ops.permute(x, [1, 0]) for x in quantized[1]]
        fd.add_output(
            fd.ops.scaled_mm(quantized[0][0], turned[0], quantized[0][1], turned[1], dtype=DataType.Float)[0]
        )
        for part in (*quantized[0], *quantized[1]):
            fd.add_output(part)
    left, right = torch.randn(8, 64, device=target), torch.randn(24, 64, device=target)
    out, q, s, w, t = fd.execute([left, right])
    wide = [elements(x) * scale.float().repeat_interleave(16, 1) for x, scale in ((q, s), (w, t))]
    torch.testing.assert_close(out, wide[0] @ wide[1].t(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    "options, error, text",
    [
        ({"block_size": 32}, ShapeError, "nv_block_quantize: the block size of DataType.Float4_e2m1fn"),
        ({"dtype": DataType.Half}, DtypeError, "the result of nv_block_quantize"),
        ({"swizzle_block_scales": True}, UnsupportedHardwareError, r"swizzled .* needs .*\(sm_100\)"),
    ],
)
def test_blocks_that_are_refused(options, error, text):
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        with pytest.raises(error, match=text):
            fd.ops.nv_block_quantize(x, **options)
        with pytest.raises(DtypeError, match="the input of nv_block_quantize"):
            fd.ops.nv_block_quantize(fd.ops.cast(x, dtype=DataType.Double))
        with pytest.raises(UnsupportedHardwareError, match=r"nv_grouped_block_quantize.* needs .*Blackwell"):
            fd.ops.nv_grouped_block_quantize(x, x, x)
        with pytest.raises(UnsupportedHardwareError, match=r"preprocess_grouped.* needs .*Blackwell"):
            fd.ops.preprocess_grouped_matmul_input_sf(x, x, x)
        fd.add_output(fd.ops.nv_block_quantize(x)[1])
    with pytest.raises(ShapeError, match="must be a multiple of 16"):
        fd.execute([torch.zeros(2, 24)])
