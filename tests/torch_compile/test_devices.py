"""Graphs of a GPU that have tensors in host memory, too.

They are traced with fake tensors, which need no GPU, and run in the simulator where all that counts is
which tensors a definition takes, and as what.
"""

from __future__ import annotations

import pytest
import torch
from torch._subclasses import FakeTensorMode

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import DeviceError
from fusewright.host.inputs.places import is_kept_by_torch
from fusewright.torch_compile import from_fx
from tests.torch_compile.graphs import traced_on

ATTENTION = torch.ops.aten._scaled_dot_product_efficient_attention.default
ATTENTION_BACKWARD = torch.ops.aten._scaled_dot_product_efficient_attention_backward.default


def _step(p, g, step):
    step.add_(1)
    p.mul_(0.5)
    p.sub_(g / (1 - 0.9**step))
    return ()


def test_a_number_that_is_updated_in_host_memory_is_computed_there():
    """What reads arguments alone waits for it, so that the step is one definition."""
    given = [torch.randn(5, 6), torch.randn(5, 6), torch.tensor(2.0)]
    converted = from_fx(traced_on(("cuda", "cuda", "cpu"), _step, *given))
    (evaluated,) = converted.report().evaluated
    assert evaluated.operator == "aten.add.Tensor" and evaluated.reason == "it computes in host memory"
    assert len(converted.definitions) == 1 and "is_cpu=True" in str(converted)
    expected = [t.clone() for t in given]
    converted(*given)
    _step(*expected)
    torch.testing.assert_close(given, expected)


def _looked_up(x, scale, index, table):
    wide = (scale * 3).sqrt()
    rows = table[index].to(x.device)
    return x * wide + rows, table[index] + 1


def test_tensors_in_host_memory_are_no_tensors_of_a_definition():
    """Numbers are: what is computed of them for the GPU alone is part of a kernel."""
    given = [torch.randn(3, 4), torch.tensor(2.0), torch.tensor([1, 0, 2]), torch.randn(3, 4)]
    report = from_fx(traced_on(("cuda", "cpu", "cpu", "cpu"), _looked_up, *given)).report()
    assert report.definitions == 1
    outside = sorted(e.operator for e in report.evaluated)
    assert outside == [f"aten.{name}" for name in ("_to_copy.default", "add.Tensor", *["index.Tensor"] * 2)]


def _attend(q):
    out, logsumexp, seed, offset = ATTENTION(q * 2, q, q, None, True, 0.25)
    return out + 1, logsumexp, seed, offset


def _attend_backward(grad, q, out, logsumexp, seed, offset):
    made = ATTENTION_BACKWARD(
        grad * 2, q, q, q, None, out, logsumexp, seed, offset, 0.25, [True, True, True, False]
    )
    return made[0] + 1, made[1]


def test_a_state_of_torch_may_lie_in_either_memory():
    """Attention leaves the state of its dropout in host memory, and fake tensors do not say so."""
    q, logsumexp, seed = torch.randn(1, 2, 16, 8), torch.randn(1, 2, 32), torch.tensor(1)
    forward = from_fx(traced_on(("cuda",), _attend, q)).report()
    (evaluated,) = forward.evaluated
    assert forward.definitions == 1 and evaluated.within
    given = (q, q, q, logsumexp, seed, seed)
    (fd,) = from_fx(traced_on(("cuda",) * 6, _attend_backward, *given)).definitions
    executor = fd._finished().executor
    with FakeTensorMode():
        tensors = [torch.empty(t.shape, dtype=t.dtype, device="cuda") for t in given[:-2]]
        for device in ("cpu", "cuda"):
            states = [torch.empty((), dtype=torch.int64, device=device) for _ in range(2)]
            made = executor.empty_outputs([*tensors, *states])
            assert {t.device.type for t in made} == {"cuda"}
        with pytest.raises(DeviceError, match="input 3 on cpu"):
            executor.empty_outputs([*tensors[:3], torch.empty(1, 2, 32), *states])


def test_an_operator_of_torch_takes_a_number_in_host_memory_as_it_is():
    with FusionDefinition() as fd:
        x, n = fd.define_tensor([4, 5]), fd.define_tensor([], is_cpu=True)
        made = fd.ops.aten("igamma.default", [x, n], [[4, 5]], [DataType.Float], [[1, 0]])
        fd.add_output(made + 1)
    given = [torch.rand(4, 5) + 1, torch.tensor(2.0)]
    torch.testing.assert_close(fd.execute(given)[0], torch.igamma(*given) + 1)
    assert len(fd._finished().executor.last_program.kernels) == 1


def test_a_state_that_a_kernel_reads_is_brought_to_the_device():
    with FusionDefinition() as fd:
        q = fd.define_tensor([1, 2, 16, 8], True)
        shapes, dtypes = [[1, 2, 16, 8], [1, 2, 32], [], []], [DataType.Float] * 2 + [DataType.Int] * 2
        arguments = [q, q, q, None, True, 0.25]
        _, _, seed, offset = fd.ops.aten(
            "_scaled_dot_product_efficient_attention.default", arguments, shapes, dtypes
        )
        fd.add_output(seed)
        fd.add_output(offset)
        fd.add_output(offset + 1)
    made = [output.tensor for output in fd._finished().executor.fusion.outputs]
    assert [is_kept_by_torch(tensor) for tensor in made] == [True, False, False]
