"""What is computed from a grid reduction stands under the flag of the block that holds it."""

from __future__ import annotations

import torch

from fusewright.core.enums import ParallelType
from fusewright.ir import Fusion, Node, Pointwise
from fusewright.kernel import ir as k
from fusewright.lower import nodes
from fusewright.lower.context import Context
from fusewright.lower.loops import Item
from fusewright.ops.build_elementwise import apply_to_tensor, copy_tensor
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import sum_
from fusewright.schedule import Schedule
from tests.lower.running import lowered, run


def negated_grid_sum() -> Schedule:
    """x -> sum along blocks -> neg -> copy, the output."""
    fusion = Fusion()
    total = sum_(fusion, define_tensor(fusion, [64], True), [0])
    add_output(fusion, copy_tensor(fusion, apply_to_tensor(fusion, "neg", total)))
    schedule = Schedule(fusion)
    schedule.parallelize(schedule.tensor(1), 0, ParallelType.grid_x)
    return schedule


def guards_of_stores(kernel: k.Kernel) -> list[list[str]]:
    """For each statement that writes global memory, the conditions around it."""

    def walk(body: tuple[k.Stmt, ...], around: list[str]) -> list[list[str]]:
        found = []
        for stmt in body:
            if isinstance(stmt, k.Copy) and stmt.dst.buffer.space is k.Space.GLOBAL:
                found.append(around)
            conditions = [*around, str(stmt.cond)] if isinstance(stmt, k.If) else around
            found += walk(k.children(stmt), conditions)
        return found

    return walk(kernel.body, [])


def test_the_output_is_written_by_the_block_that_holds_the_sum():
    schedule = negated_grid_sum()
    assert guards_of_stores(lowered(schedule).kernel) == [["last0 != 0"]]
    x = torch.randn(64)
    torch.testing.assert_close(run(schedule, [x])[0], -x.sum())


def test_a_rule_that_asks_for_no_guards_loses_no_flag(monkeypatch):
    def unguarded(ctx: Context, node: Node, order: int) -> list[Item]:
        assert isinstance(node, Pointwise)
        indices = ctx.indices(node)
        args = (ctx.operand(node, 0, indices),)
        body = [k.Compute(node.op, ctx.result(node.output, indices), args, nodes.compute_dtype(node))]
        return [Item(ctx.loops.of(node), body, node.tensor_inputs, tuple(node.outputs), order)]

    monkeypatch.setitem(nodes.RULES, Pointwise, unguarded)
    kernel = lowered(negated_grid_sum()).kernel
    assert any(isinstance(s, k.Compute) for s in k.walk(kernel.body))
    assert guards_of_stores(kernel) == [["last0 != 0"]]
