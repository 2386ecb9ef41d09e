"""Elements that lie a sector of memory or more apart, which are loaded one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fusewright import PointwiseParams
from fusewright.torch_compile import decompositions, from_fx

Tensor = torch.Tensor


@pytest.mark.parametrize(
    "function, shape, width",
    [
        (lambda x: x[:, ::16] * 2, (64, 1024), 1),
        (lambda x: x[:, ::2] * 2, (64, 1024), 4),
        (lambda x: x[:, :, 3] * 2, (32, 64, 64), 1),
        (lambda x: x.diagonal(dim1=1, dim2=2) * 2, (32, 64, 64), 1),
    ],
)
def test_vectors(
    function: Callable[[Tensor], Tensor], shape: tuple[int, ...], width: int, target: torch.device
) -> None:
    x = torch.randn(shape, device=target).bfloat16()
    fd = from_fx(make_fx(function, decompositions(), tracing_mode="fake")(x)).definitions[0]
    params = fd.kernels_for([x])[0].params
    assert isinstance(params, PointwiseParams)
    assert params.vectorization_factor == width
    (made,) = fd.execute([x])
    assert torch.equal(made, function(x))
