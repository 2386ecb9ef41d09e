"""Assertions in graphs: torch checks them, except those that the graph states anyway."""

from __future__ import annotations

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import FakeTensorMode

from fusewright.torch_compile import from_fx


def test_an_assertion_is_torchs():
    def function(x, labels):
        return torch.nn.functional.one_hot(labels, 3) * x

    x, labels = torch.randn(4, 3), torch.tensor([0, 2, 1, 1])
    targets: list[str] = []

    def boxed(graph, example_inputs):
        targets.extend(str(node.target) for node in graph.graph.nodes)
        return make_boxed_func(from_fx(graph))

    compiled = torch.compile(function, backend=aot_autograd(fw_compiler=boxed), fullgraph=True)
    torch.testing.assert_close(compiled(x, labels), function(x, labels))
    if not any("assert" in target for target in targets):
        pytest.skip("this torch compiles one_hot without its assertion")
    with pytest.raises(RuntimeError, match="Class values must be"):
        compiled(x, labels + 1)


class _Rounding(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype) + x


def test_assertions_of_types_that_the_graph_states_divide_no_definition():
    """torch.export asserts the type of each tensor that is cast."""
    x = torch.randn(4, 64).bfloat16()
    program = torch.export.export(_Rounding(), (x,))
    if not any("_assert_tensor_metadata" in str(node.target) for node in program.graph.nodes):
        pytest.skip("this torch asserts no types")
    converted = from_fx(program)
    torch.testing.assert_close(converted(x), _Rounding()(x))
    (definition,) = converted.definitions
    (kernel,) = definition.kernels_for([x])
    assert sum(tensor.is_written for tensor in kernel.tensors) == 1


def test_other_assertions_of_types_are_torchs():
    x = torch.randn(4, 64)
    graph = torch.fx.Graph()
    source = graph.placeholder("x")
    source.meta["val"] = FakeTensorMode().from_tensor(x)
    check = torch.ops.aten._assert_tensor_metadata.default
    graph.call_function(check, (source, None, None, torch.bfloat16))
    twice = graph.call_function(torch.ops.aten.mul.Tensor, (source, 2))
    twice.meta["val"] = source.meta["val"]
    graph.output(twice)
    with pytest.raises(RuntimeError, match="dtype mismatch"):
        from_fx(torch.fx.GraphModule(torch.nn.Module(), graph))(x)
