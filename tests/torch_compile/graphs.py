"""Graphs of a few operators, as tracing would make them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

#: An operator, and what it is called with.
Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


def graph_of(calls: Sequence[Call], symbolic: bool = False) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """A graph of calls, each with tensors of its own, which the graph takes; it returns their results."""
    mode = FakeTensorMode(shape_env=ShapeEnv() if symbolic else None)
    graph = fx.Graph()
    tensors: list[torch.Tensor] = []
    results: list[Any] = []

    def input_for(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        node = graph.placeholder(f"x{len(tensors)}")
        node.meta["val"] = mode.from_tensor(value, static_shapes=not symbolic)
        tensors.append(value)
        return node

    given = [(overload, *pytree.tree_map(input_for, (args, kwargs))) for overload, args, kwargs in calls]
    for overload, args, kwargs in given:
        fakes = pytree.tree_map(lambda v: v.meta["val"] if isinstance(v, fx.Node) else v, (args, kwargs))
        with mode:
            made = overload(*fakes[0], **fakes[1])
        node = graph.call_function(overload, args, kwargs)
        node.meta["val"] = made
        if isinstance(made, (list, tuple)):
            parts = [graph.call_function(operator.getitem, (node, i)) for i in range(len(made))]
            for part, value in zip(parts, made):
                part.meta["val"] = value
            results.append(tuple(parts))
        else:
            results.append(node)
    graph.output(tuple(results))
    return fx.GraphModule(torch.nn.Module(), graph), tensors


def traced(function: Callable[..., Any], *arguments: Any, symbolic: bool = False) -> fx.GraphModule:
    """The graph that make_fx makes of a function."""
    return make_fx(function, tracing_mode="symbolic" if symbolic else "fake")(*arguments)


def traced_on(devices: Sequence[str], function: Callable[..., Any], *arguments: Any) -> fx.GraphModule:
    """The graph, without writing into tensors within, of arguments that lie on these devices."""
    with FakeTensorMode():
        fakes = [
            torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=device)
            for t, device in zip(arguments, devices)
        ]
        return make_fx(torch.func.functionalize(function), tracing_mode="fake")(*fakes)


def assert_same(made: Any, expected: Any, values: bool = True) -> None:
    """Nested results are equal in structure, type, shape and, if asked, nearly so in value."""
    mine, structure = pytree.tree_flatten(made)
    theirs, wanted = pytree.tree_flatten(expected)
    assert structure == wanted
    for a, b in zip(mine, theirs):
        if not isinstance(b, torch.Tensor):
            assert a == b
            continue
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if values:
            torch.testing.assert_close(a, b, equal_nan=True)
