"""How far a result may be from the same computation in float64, from its type and its reductions alone."""

from __future__ import annotations

import torch

# Unit roundoff.
ROUNDOFF = {
    torch.float64: 2.0**-53,
    torch.float32: 2.0**-24,
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
    torch.complex64: 2.0**-24,
    torch.complex128: 2.0**-53,
}
# Roundings of a chain of elementwise operations around the reductions, functions of a few ulp among them.
ELEMENTWISE_ROUNDINGS = 64


def assert_close(actual: torch.Tensor, expected: torch.Tensor, reduced: int = 1) -> None:
    """Compares with `expected`, which was computed in float64 from the same inputs.

    The result is rounded once to its own type and computed in float32 or wider: a sum of `reduced` terms is
    off by `reduced` roundings of the largest magnitude at most (Higham, 4.2), whatever its order. Discrete
    results are equal.
    """
    assert actual.shape == expected.shape, f"{tuple(actual.shape)} instead of {tuple(expected.shape)}"
    if actual.dtype not in ROUNDOFF:
        assert torch.equal(actual.cpu(), expected.cpu().to(actual.dtype))
        return
    wide = torch.complex128 if actual.is_complex() else torch.float64
    ours, theirs = actual.detach().to(wide), expected.to(actual.device, wide)
    own = ROUNDOFF[actual.dtype]
    computed = min(own, ROUNDOFF[torch.float32])
    scale = theirs[theirs.isfinite()].abs().max() if bool(theirs.isfinite().any()) else 0.0
    bound = 2 * own * theirs.abs() + computed * (ELEMENTWISE_ROUNDINGS + reduced) * scale
    same = (ours == theirs) | (ours.isnan() & theirs.isnan())
    wrong = ~(same | ((ours - theirs).abs() <= bound))
    if bool(wrong.any()):
        at = tuple(wrong.nonzero()[0].tolist())
        raise AssertionError(
            f"{int(wrong.sum())} of {wrong.numel()} elements differ; first at {at}: "
            f"{ours[at].item()} instead of {theirs[at].item()} (allowed: {bound[at].item():.3g})"
        )
