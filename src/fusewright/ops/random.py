"""Random numbers: the rows of the distributions, and Philox with torch's integers.

Number i of a tensor is a function of only i, the seed and the offset, so that no schedule changes it. The
counter-based generator Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1,
2, 3", SC 2011) makes 16 bytes from a 128-bit counter and a 64-bit key, the seed. The counter's lower half is
the offset, and its upper half counts blocks of 16 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import torch

from fusewright.core.dtype import Category, DataType
from fusewright.core.op import ElementwiseOp, Rule, Spelling

# What one evaluation of Philox yields.
BLOCK_BYTES = 16

# The constants of table 2 in the paper, and its number of rounds.
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_LOW = 0xFFFFFFFF

Words = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def philox(block: torch.Tensor, seed: torch.Tensor, offset: torch.Tensor) -> Words:
    """The four 32-bit words of a block, in int64; all operands are int64 of shapes that broadcast."""
    words = [_low(offset), _high(offset), _low(block), _high(block)]
    keys = [_low(seed), _high(seed)]
    for _ in range(_ROUNDS):
        # Products of two 32-bit numbers wrap around in int64, but their 64 bits are right.
        first, second = words[0] * _MULTIPLIERS[0], words[2] * _MULTIPLIERS[1]
        words = [
            _high(second) ^ words[1] ^ keys[0],
            _low(second),
            _high(first) ^ words[3] ^ keys[1],
            _low(first),
        ]
        keys = [_low(key + step) for key, step in zip(keys, _WEYL)]
    a, b, c, d = torch.broadcast_tensors(*words)
    return a, b, c, d


def _low(x: torch.Tensor) -> torch.Tensor:
    return x & _LOW


def _high(x: torch.Tensor) -> torch.Tensor:
    return (x >> 32) & _LOW


def _uniform_float(
    block: torch.Tensor, place: torch.Tensor, seed: torch.Tensor, offset: torch.Tensor
) -> torch.Tensor:
    place, *words = torch.broadcast_tensors(place, *philox(block, seed, offset))
    word = torch.stack(words).gather(0, place[None])[0]
    return (word >> 8).to(torch.float32) * 2.0**-24


def _uniform_double(
    block: torch.Tensor, place: torch.Tensor, seed: torch.Tensor, offset: torch.Tensor
) -> torch.Tensor:
    a, b, c, d = philox(block, seed, offset)
    return torch.where(place == 0, _fraction(a, b), _fraction(c, d))


def _fraction(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """The upper 53 of 64 bits, as a fraction of 1."""
    return ((high << 21) | (low >> 11)).to(torch.float64) * 2.0**-53


def _normal_float(
    block: torch.Tensor, place: torch.Tensor, seed: torch.Tensor, offset: torch.Tensor
) -> torch.Tensor:
    a, b, c, d = (word.to(torch.float32) for word in philox(block, seed, offset))
    first = place < 2
    above = torch.where(first, a, c) * 2.0**-32 + 2.0**-33
    return _box_muller(above, torch.where(first, b, d) * 2.0**-32, place % 2 == 0)


def _normal_double(
    block: torch.Tensor, place: torch.Tensor, seed: torch.Tensor, offset: torch.Tensor
) -> torch.Tensor:
    a, b, c, d = philox(block, seed, offset)
    return _box_muller(_fraction(a, b) + 2.0**-53, _fraction(c, d), place == 0)


def _box_muller(radius: torch.Tensor, angle: torch.Tensor, cosine: torch.Tensor) -> torch.Tensor:
    """One of the two normal numbers of two uniform ones, the first of them in (0, 1].

    Box and Muller, "A note on the generation of random normal deviates", 1958.
    """
    turned = angle.to(torch.float64) * (2 * math.pi)
    part = torch.where(cosine, turned.cos(), turned.sin()).to(radius.dtype)
    return (-2 * radius.log()).sqrt() * part


def _row(name: str, torch_function: object) -> ElementwiseOp:
    spelling = Spelling(f"fw::{name}({{0}}, {{1}}, {{2}}, {{3}})", torch_function, ("philox",))  # type: ignore[arg-type]
    return ElementwiseOp(name, 4, Rule.DRAW, {Category.FLOAT: spelling})


# Operands, all Int: the block, the number's place in it, the seed, the offset.
UNIFORM: Mapping[DataType, ElementwiseOp] = MappingProxyType(
    {
        DataType.Float: _row("uniform_float", _uniform_float),
        DataType.Double: _row("uniform_double", _uniform_double),
    }
)
NORMAL: Mapping[DataType, ElementwiseOp] = MappingProxyType(
    {
        DataType.Float: _row("normal_float", _normal_float),
        DataType.Double: _row("normal_double", _normal_double),
    }
)
