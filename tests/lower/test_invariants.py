"""What is the same in all iterations is computed once, before the loop; what is not stays."""

from __future__ import annotations

import torch

from fusewright import FusionDefinition
from fusewright.kernel import ir as k
from fusewright.lower.passes.invariants import hoist_invariants


def compiled(rows: int, columns: int, define) -> tuple[k.Kernel, FusionDefinition, list[torch.Tensor]]:
    inputs = [torch.randn(rows, columns)]
    with FusionDefinition() as fd:
        for output in define(fd, fd.define_tensor([-1, -1], True)):
            fd.add_output(output)
    leaf = fd._leaf
    assert leaf is not None
    [kernel] = leaf.executor.compile(inputs).kernels
    return kernel.kernel, fd, inputs


def depth_of(body: tuple[k.Stmt, ...], name: str, depth: int = 0) -> list[int]:
    """How many loops stand around each computation of this operation."""
    found = []
    for stmt in body:
        if isinstance(stmt, k.Compute) and stmt.op.name == name:
            found.append(depth)
        found += depth_of(k.children(stmt), name, depth + isinstance(stmt, k.For))
    return found


def rms(fd: FusionDefinition, x):
    return [x * fd.ops.rsqrt(fd.ops.mean(x * x, [1], keepdim=True) + 1e-6)]


def test_a_rows_scale_is_computed_once_a_row() -> None:
    kernel, fd, inputs = compiled(5, 300, rms)
    assert depth_of(kernel.body, "rsqrt") == depth_of(kernel.body, "truediv") == [0]
    assert min(depth_of(kernel.body, "mul")) > 0
    [out] = fd.execute(inputs)
    torch.testing.assert_close(out, inputs[0] * inputs[0].square().mean(1, keepdim=True).add(1e-6).rsqrt())


def test_a_kernel_without_invariants_stays_as_it_is() -> None:
    kernel, _, _ = compiled(5, 300, lambda fd, x: [fd.ops.exp(x), fd.ops.sin(x)])
    assert hoist_invariants(kernel) is kernel


def test_what_one_block_alone_knows_stays_where_that_block_computes_it() -> None:
    kernel, fd, inputs = compiled(2, 600_000, lambda fd, x: [fd.ops.rsqrt(fd.ops.mean(x * x, [1]) + 1e-6)])
    assert any(isinstance(stmt, k.GridReduce) for stmt in k.walk(kernel.body))
    [out] = fd.execute(inputs)
    torch.testing.assert_close(out, inputs[0].square().mean(1).add(1e-6).rsqrt())
