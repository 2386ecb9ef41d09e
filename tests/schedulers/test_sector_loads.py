"""Elements that lie a sector of memory or more apart, which are loaded one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fusewright import DataType, FusionDefinition, PointwiseParams
from fusewright.torch_compile import decompositions, from_fx

Tensor = torch.Tensor


@pytest.mark.parametrize(
    "function, shape, width",
    [
        (lambda x: x[:, ::16] * 2, (64, 1024), 1),
        (lambda x: x[:, ::2] * 2, (64, 1024), 8),
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


def test_places_that_a_warp_reads_twice_are_across_memory_all_the_same() -> None:
    """The two halves of each byte, of bytes that lie column by column: tiles read these along memory."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([1024, 8192], contiguity=True, dtype=DataType.UInt8, stride_order=[0, 1])
        halves = fd.ops.stack([fd.ops.bitwise_right_shift(x, 4), fd.ops.bitwise_and(x, 15)], dim=-1)
        fd.add_output(fd.ops.reshape(fd.ops.cast(halves, DataType.Half), [1024, 16384]) * 0.5)
    bytes_ = torch.empty(8192, 1024, dtype=torch.uint8, device="meta").T
    kernels = fd.kernels_for([bytes_], device="cuda")
    assert "transpose" in [kernel.scheduler for kernel in kernels]
