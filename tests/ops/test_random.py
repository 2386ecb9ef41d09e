"""Philox against the known answers of its authors, the distributions, and the device's text on the host."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import ArgumentTypeError, DefinitionError, DtypeError, InputError, ShapeError
from fusewright.core.op import ElementwiseOp
from fusewright.cuda import snippets
from fusewright.ops.random import BLOCK_BYTES, NORMAL, UNIFORM, philox
from tests.cuda.host import build, needs_compiler

ROWS = [(row, dtype) for rows in (UNIFORM, NORMAL) for dtype, row in rows.items()]

# What CUDA has and the host has not.
HOST_MATH = """
static inline void sincospi(double x, double* s, double* c) { sincos(x * M_PI, s, c); }
static inline void sincospif(float x, float* s, float* c) {
  double sine, cosine;
  sincos(x * M_PI, &sine, &cosine);
  *s = sine;
  *c = cosine;
}
"""


def _signed(low: int, high: int) -> torch.Tensor:
    value = high << 32 | low
    return torch.tensor(value - 2**64 if value >= 2**63 else value)


@pytest.mark.parametrize(
    "counter, key, expected",
    [  # kat_vectors of Random123, the authors' library: philox4x32, 10 rounds
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_known_answers(counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]) -> None:
    offset, block = _signed(*counter[:2]), _signed(*counter[2:])
    assert tuple(int(word) for word in philox(block, _signed(*key), offset)) == expected


def _numbers(row: ElementwiseOp, dtype: DataType, count: int, seed: int = 7) -> torch.Tensor:
    each = BLOCK_BYTES // dtype.size
    number = torch.arange(count)
    state = torch.tensor(seed), torch.tensor(0)
    return row.spelling(dtype).torch(number // each, number % each, *state)


@pytest.mark.parametrize("dtype", list(UNIFORM))
def test_uniform_numbers(dtype: DataType) -> None:
    """Kolmogorov and Smirnov: n numbers are off by less than 1.95 / sqrt(n) in 99.9% of all cases."""
    count = 1 << 16
    numbers = _numbers(UNIFORM[dtype], dtype, count).double()
    assert numbers.min() >= 0 and numbers.max() < 1
    steps = torch.arange(count + 1) / count
    ordered = numbers.sort().values
    distance = torch.maximum((ordered - steps[:-1]).abs(), (ordered - steps[1:]).abs()).max()
    assert distance < 1.95 / math.sqrt(count)


@pytest.mark.parametrize("dtype", list(NORMAL))
def test_normal_numbers(dtype: DataType) -> None:
    count = 1 << 16
    numbers = _numbers(NORMAL[dtype], dtype, count).double()
    ordered = torch.special.ndtr(numbers).sort().values
    steps = torch.arange(count + 1) / count
    distance = torch.maximum((ordered - steps[:-1]).abs(), (ordered - steps[1:]).abs()).max()
    assert distance < 1.95 / math.sqrt(count)
    neighbours = torch.corrcoef(numbers.reshape(-1, 2).T)[0, 1]
    assert abs(neighbours) < 4 / math.sqrt(count / 2)  # the two of a pair are independent


@needs_compiler
def test_the_device_text_gives_the_numbers_of_the_rows(tmp_path: Path) -> None:
    text = HOST_MATH + snippets.text("philox")
    for i, (row, dtype) in enumerate(ROWS):
        each = BLOCK_BYTES // dtype.size
        value = row.spelling(dtype).render([f"(n / {each})", f"(n % {each})", "seed", "offset"], dtype)
        text += f"""
        extern "C" void row_{i}({dtype.cuda}* to, long long seed, long long offset) {{
          for (long long n = 0; n < 1000; ++n) to[n] = {value};
        }}"""
    library = build(text, tmp_path)
    number, seed, offset = torch.arange(1000), torch.tensor(-(2**62) - 5), torch.tensor(2**33 + 3)
    for i, (row, dtype) in enumerate(ROWS):
        each = BLOCK_BYTES // dtype.size
        actual = torch.empty(1000, dtype=dtype.torch)
        library[f"row_{i}"](
            ctypes.c_void_p(actual.data_ptr()), ctypes.c_longlong(int(seed)), ctypes.c_longlong(int(offset))
        )
        expected = row.spelling(dtype).torch(number // each, number % each, seed, offset)
        torch.testing.assert_close(actual, expected, msg=row.name)


# ---- errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [DataType.Bool, DataType.Int, DataType.ComplexFloat])
@pytest.mark.parametrize("name", ["uniform", "normal", "rand_like", "randn_like"])
def test_only_floating_types(name: str, dtype: DataType) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], contiguity=True, dtype=dtype)
        fd.add_output(x)
        with pytest.raises(DtypeError, match="Random distributions only create floating point types"):
            if name.endswith("like"):
                getattr(fd.ops, name)(x)
            else:
                getattr(fd.ops, name)(0.0, 1.0, [5], dtype=dtype)


def test_seed_and_offset_go_together() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], contiguity=True)
        fd.add_output(x)
        with pytest.raises(DefinitionError, match=r"(?s)rng_seed and rng_offset go together.*rng_seed alone"):
            fd.ops.rand_like(x, rng_seed=3)
        with pytest.raises(DefinitionError, match="rng_offset alone"):
            fd.ops.uniform(0.0, 1.0, [3], rng_offset=3)
        with pytest.raises(DtypeError, match=r"rng_seed.*integer"):
            fd.ops.rand_like(x, rng_seed=3.5, rng_offset=0)
        with pytest.raises(ArgumentTypeError, match=r"rand_like\(\): incompatible function arguments"):
            fd.ops.rand_like(x, 3, 0)
        with pytest.raises(DtypeError, match="minval"):
            fd.ops.uniform(1j, 1.0, [3])
        with pytest.raises(ShapeError, match="The value -2 at index 1"):
            fd.ops.normal(0.0, 1.0, [3, -2])


def test_a_reference_of_numbers_from_a_generator_is_refused() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], contiguity=True)
        fd.add_output(fd.ops.rand_like(x))
    outputs = fd.execute([torch.zeros(3)])
    with pytest.raises(InputError, match="takes random numbers from a generator"):
        fd.validate_with_auto_inferred_outputs(outputs, [torch.zeros(3)])
