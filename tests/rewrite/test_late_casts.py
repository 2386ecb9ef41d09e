"""Casts of inputs in another memory order come behind reshapes, which then store fewer bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.ir import Indexed
from fusewright.rewrite import simplified

BF16, F32 = DataType.BFloat16, DataType.Float


def _flat(o: Any, x: Any) -> Any:
    return o.reshape(x, [48])


def _moved_types(build: Callable[[Any, Any], Any], order: list[int]) -> list[DataType]:
    """The types that reshapes have in the simplified graph of what is built of x: bf16 [6, 8]."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([6, 8], contiguity=True, dtype=BF16, stride_order=order)
        fd.add_output(build(fd.ops, x))
    fusion = simplified(fd._finished().fusion)
    return [node.output.dtype for node in fusion.ordered_nodes() if isinstance(node, Indexed)]


@pytest.mark.parametrize(
    ("build", "order", "moved"),
    [
        (lambda o, x: o.exp(_flat(o, o.cast(x, F32))), [0, 1], [BF16]),
        (lambda o, x: o.exp(_flat(o, o.set(o.cast(x, F32)))), [0, 1], [BF16]),
        (lambda o, x: o.exp(o.reshape(o.permute(o.cast(x, F32), [0, 1]), [2, 24])), [0, 1], [BF16]),
        # A view of memory, an output, a value that others read, and one that is computed.
        (lambda o, x: o.exp(_flat(o, o.cast(x, F32))), [1, 0], [F32]),
        (lambda o, x: _flat(o, o.cast(x, F32)), [0, 1], [F32]),
        (lambda o, x: _flat(o, wide := o.cast(x, F32)) + _flat(o, o.exp(wide)), [0, 1], [F32, F32]),
        (lambda o, x: o.exp(_flat(o, o.exp(o.cast(x, F32)))), [0, 1], [F32]),
    ],
    ids=["cast", "copy", "two moves", "in order", "output", "read again", "computed"],
)
def test_what_reshapes_move(
    build: Callable[[Any, Any], Any], order: list[int], moved: list[DataType]
) -> None:
    assert _moved_types(build, order) == moved


def test_a_kernel_hands_on_the_narrow_type(target: torch.device) -> None:
    """Group norm of channels-last images whose memory has channels first."""
    x = torch.randn(256, 45, 16, 67, device=target).bfloat16()[..., :64].permute(1, 3, 2, 0)
    with FusionDefinition() as fd:
        groups = fd.ops.reshape(fd.ops.cast(fd.from_pytorch(x), F32), [45, 1024, 32, 8])
        var, mean = fd.ops.var_mean(groups, [1, 3], correction=0, keepdim=True)
        fd.add_output(fd.ops.cast((groups - mean) * fd.ops.rsqrt(var + 1e-5), BF16))
    written = [t for kernel in fd.kernels_for([x]) for t in kernel.tensors if t.is_written]
    assert {t.dtype for t in written if t.shape[0] * t.shape[-1] >= 360} == {BF16}
