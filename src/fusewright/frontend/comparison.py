"""Compares outputs to a reference."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fusewright.core.dtype import DataType
from fusewright.ops.pairs import elements_of_pairs

# Floats that float32 holds; the relative tolerance from which on its own rounding is nothing; the share of it
# that leaves room for that.
NARROW = frozenset({torch.float32, torch.bfloat16, torch.float16})
LEAST_TOLERANCE, INSIDE = 1e-5, 0.99


def check_outputs(
    outputs: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    tolerances: Sequence[tuple[float, float]],
    shares: Sequence[float] = (),
) -> None:
    """Raises AssertionError, naming the output, unless each is within its (absolute, relative) tolerance.

    Shapes must be equal, and so must the values of integers and bools; NaN equals NaN. The types need not be:
    a reference may have been computed in a wider one.

    Args:
        shares: for each output, the share of its elements that may differ by more; by default none may.
    """
    shares = shares or [0.0] * len(outputs)
    if len(outputs) != len(expected):
        raise AssertionError(f"there are {len(outputs)} outputs, but {len(expected)} reference outputs")
    compared = zip(outputs, expected, tolerances, shares)
    for i, (output, reference, (absolute, relative), share) in enumerate(compared):
        output, reference = _as_elements(output), _as_elements(reference)
        if output.shape != reference.shape:
            raise AssertionError(
                f"output {i} has shape {tuple(output.shape)}, its reference {tuple(reference.shape)}"
            )
        wide = torch.complex128 if output.is_complex() or reference.is_complex() else torch.float64
        is_exact = not (output.is_floating_point() or output.is_complex())
        if is_exact and torch.equal(output, reference.to(output.device, output.dtype)):
            continue
        if _are_clearly_close(output, reference, absolute, relative):
            continue
        a, b = output.to(wide), reference.to(output.device, wide)
        close = torch.isclose(a, b, rtol=relative, atol=absolute, equal_nan=True)
        differ = int((~close).sum())
        if differ > share * close.numel():
            worst = int((a - b).abs().masked_fill(close, 0).nan_to_num(float("inf")).argmax())
            raise AssertionError(
                f"output {i} differs in {differ} of {close.numel()} elements; "
                f"at flat index {worst} it is {output.reshape(-1)[worst].item()}, "
                f"its reference {reference.reshape(-1)[worst].item()} "
                f"(tolerance {absolute} + {relative} of it)"
            )


def _are_clearly_close(
    output: torch.Tensor, reference: torch.Tensor, absolute: float, relative: float
) -> bool:
    """Whether floats are close, as far as that can be told without a wider type, which takes longer.

    False where infinities or NaN are, and near the tolerance.
    """
    narrow = {output.dtype, reference.dtype} <= NARROW
    if not narrow or relative < LEAST_TOLERANCE:
        return False
    a, b = output.float(), reference.to(output.device, torch.float32)
    allowed = b.abs().mul_(relative * INSIDE).add_(absolute * INSIDE)
    return bool(((a - b).abs_() < allowed).all())  # infinity is in no tolerance


def _as_elements(tensor: torch.Tensor) -> torch.Tensor:
    """Pairs in a byte as the floats that they are."""
    pairs = DataType.Float4_e2m1fn_x2
    return elements_of_pairs(tensor.view(pairs.values)) if tensor.dtype is pairs.torch else tensor
