"""`fd.why_separate`: each kind of reason why two parts are two kernels, in words and as data."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import ArgumentTypeError, ExecutionOrderError, ScheduleError, ShapeError
from fusewright.schedulers import (
    Cost,
    PointwiseScheduler,
    Proposal,
    Registry,
    Reject,
    default_registry,
)
from fusewright.segment import Separation
from tests.integration.test_redefinitions import OneBlockReductions


def described(*shapes: tuple[int, ...], device: str = "meta") -> list[torch.Tensor]:
    return [torch.empty(shape, device=device) for shape in shapes]


def matrix(fd: FusionDefinition) -> Any:
    return fd.define_tensor([-1, -1], True)


def kind(answer: Separation) -> str:
    return answer.kind.name


def test_one_kernel_and_none() -> None:
    with FusionDefinition() as fd:
        x = matrix(fd)
        a = fd.ops.exp(x)
        view, dead, out = fd.ops.permute(x, [1, 0]), fd.ops.sin(x), a + 1.0
        fd.add_output(view)
        fd.add_output(out)
    inputs = described((4, 6))
    answer = fd.why_separate(a, out, inputs)
    assert kind(answer) == "together" and answer.segments == ((0,), (0,))
    assert str(answer) == "T1 and T4 are one kernel: segment 0 (pointwise)."
    for tensor, text in (
        (x, "T0 is an input."),
        (view, "T2 is a view of an input: no kernel computes it."),
        (dead, "Nothing needs T3: no kernel computes it."),
    ):
        answer = fd.why_separate(tensor, out, inputs)
        assert (kind(answer), str(answer)) == ("no_kernel", text)


def block() -> tuple[FusionDefinition, dict[str, Any]]:
    """A sum and a scan of torch's product, and what reads the sum and the product's operand."""
    with FusionDefinition() as fd:
        x, w = matrix(fd), matrix(fd)
        normal, *_ = fd.ops.layer_norm(x, [x.size(1)])
        product = fd.ops.matmul(normal, w)
        columns, rows = fd.ops.sum(product, [0]), fd.ops.cumsum(product, 1)
        out = normal * fd.ops.sum(fd.ops.abs(columns), [0]) + 1.0
        for tensor in (rows, out):
            fd.add_output(tensor)
    return fd, {"normal": normal, "product": product, "columns": columns, "rows": rows, "out": out}


def test_a_library_a_path_and_what_schedulers_say() -> None:
    fd, t = block()
    inputs = described((12, 16), (16, 8))
    answer = fd.why_separate(t["normal"], t["product"], inputs)
    assert kind(answer) == "library" and not answer.path
    normal, product = answer.parts
    assert answer.reason == f"torch computes {product} as a whole: no kernel contains it."
    assert f"{normal} in segment 0 (inner_persistent) and {product} in segment 1 (torch's matmul)" in str(
        answer
    )
    answer = fd.why_separate(t["normal"], t["rows"], inputs)
    assert (kind(answer), answer.path, answer.between) == ("library", (normal, product), (1,))
    assert f"torch computes {product}, which lies between, as a whole" in str(answer)
    assert f"through segment 1: {normal}, {product}. One kernel" in str(answer)
    answer = fd.why_separate(t["rows"], t["columns"], inputs)
    assert kind(answer) == "structure" and not answer.path
    reasons = {declined.scheduler: declined.reason for declined in answer.declined}
    assert reasons["reduction"].endswith("is neither pointwise nor a reduction")
    assert list(reasons) == [s.type.name for s in default_registry()]  # type: ignore[union-attr]
    assert f"Scheduler _reduction_ ***rejected*** because : {reasons['reduction']}" in str(answer)
    assert json.loads(json.dumps(answer.to_dict()))["kind"] == "structure"


def test_a_cycle_through_what_could_be_the_same_kernel() -> None:
    with FusionDefinition() as fd:
        x = matrix(fd)
        total = fd.ops.sum(x, [1])
        scan = fd.ops.cumsum(x * fd.ops.broadcast_in_dim(total, [x.size(0), 1], [0]), 0)
        out = fd.ops.sum(scan, [1]) * total
        fd.add_output(out)
    answer = fd.why_separate(out, total, described((12, 64)))
    assert (kind(answer), answer.segments, answer.between) == ("cycle", ((2,), (0,)), (1,))
    assert (len(answer.path), answer.path[0]) == (2, answer.parts[1])
    assert "No scheduler takes both, and what lies between, in one kernel:" in str(answer)
    assert len(answer.declined) == len(default_registry())


def test_kernels_that_have_to_end() -> None:
    """A boundary of the user's, and an update, before it and behind it."""
    with FusionDefinition() as fd:
        x, index = matrix(fd), fd.define_tensor([-1], True, DataType.Int)
        a = fd.ops.exp(x)
        b = fd.ops.segment_set(a) + a
        base = fd.ops.sin(x)
        changed = fd.ops.index_put_accumulate(base, index, b)
        out = fd.ops.cos(changed)
        for tensor in (b, out):
            fd.add_output(tensor)
    inputs = [*described((5, 8)), torch.empty(5, dtype=torch.int64, device="meta")]
    for first, second, text in (
        (a, b, f"segment_set ends a kernel behind {fd.why_separate(a, b, inputs).parts[0]}."),
        (base, changed, "is changed in memory, once the kernel that writes it has ended."),
        (changed, out, "is changed in memory, and read once the kernel that changes it has ended."),
    ):
        answer = fd.why_separate(first, second, inputs)
        assert kind(answer) == "boundary" and text in answer.reason


class Choosy(PointwiseScheduler):
    """Takes at most so many nodes at the sizes of a call, at a cost that grows with their square."""

    type = "choosy"  # type: ignore[assignment]

    def __init__(self, most: int, seconds: Callable[[int], float]) -> None:
        self._most = most
        self._seconds = seconds

    def prepare(self, fusion: Any) -> Any:
        planner, count = super().prepare(fusion), len(fusion.nodes)
        if isinstance(planner, Reject):
            return planner

        def plan(facts: Any, hardware: Any) -> Proposal | Reject:
            if count > self._most:
                return Reject(
                    f"{count} nodes are too many for {facts.value(fusion.inputs[0].extents[0])} rows"
                )
            proposal = planner(facts, hardware)
            return Proposal(proposal.params, lambda: Cost(100, self._seconds(count), 1e-7))

        return plan


class Single(Choosy):
    """Takes one node, whatever the sizes."""

    type = "single"  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__(1, lambda count: 1e-5)

    def prepare(self, fusion: Any) -> Any:
        return super().prepare(fusion) if len(fusion.nodes) == 1 else Reject("it takes one node")


def chain(registry: Registry) -> tuple[FusionDefinition, list[Any]]:
    with FusionDefinition(registry=registry) as fd:
        values = [matrix(fd)]
        for op in (fd.ops.exp, fd.ops.sin, fd.ops.tanh):
            values.append(op(values[-1]))
            fd.add_output(values[-1])
    return fd, values[1:]


def test_sizes_cost_and_the_search() -> None:
    inputs = described((12, 64))
    fd, (a, b, _) = chain(Registry([Choosy(1, lambda count: 1e-5)]))
    answer = fd.why_separate(a, b, inputs)
    assert kind(answer) == "sizes" and "at these sizes:" in str(answer)
    (declined,) = answer.declined
    assert (declined.at_sizes, declined.reason) == (True, "2 nodes are too many for 12 rows")

    fd, (a, b, _) = chain(Registry([Choosy(9, lambda count: 1e-5 * count**2), Single()]))
    answer = fd.why_separate(a, b, inputs)
    assert kind(answer) == "cost"
    assert answer.apart == Cost(200, 2e-5, 2e-7) and answer.merged == Cost(100, 4e-5, 1e-7)
    figures = "one kernel (choosy) is estimated at 40.0 us (100 bytes), 2 at 20.0 us (200 bytes)"
    assert f"They cost less apart: {figures}." in str(answer)
    assert answer.changes == ("T1, T2, T3 without choosy: 90.0 us -> 30.0 us, kept",)

    # Of three, two are one kernel, whichever; the third is refused with them.
    fd, (a, b, c) = chain(Registry([Choosy(2, lambda count: 1e-5)]))
    assert sorted(kind(fd.why_separate(*pair, inputs)) for pair in ((a, b), (b, c))) == ["sizes", "together"]

    # The search took them apart by what the scheduler said when it was asked first.
    first = Choosy(1, lambda count: 1e-5)
    fd, (a, b, _) = chain(Registry([first]))
    inputs = [torch.ones(12, 64)]
    fd.execute(inputs)
    first._most = 9
    answer = fd.why_separate(a, b, inputs)
    assert kind(answer) == "search" and "another partition of all, although one kernel" in str(answer)


def test_inputs_with_memory_without_and_those_of_the_latest_call(target: torch.device) -> None:
    fd, t = block()
    with pytest.raises(ExecutionOrderError, match="there was no call"):
        fd.why_separate(t["rows"], t["columns"])
    given = [torch.randn(12, 16, device=target), torch.randn(16, 8, device=target)]
    fd.execute(given)
    answer = fd.why_separate(t["rows"], t["columns"])
    with FakeTensorMode():
        fake = described((12, 16), (16, 8), device=str(target))
    for inputs in (given, fake, described((12, 16), (16, 8))):
        assert fd.why_separate(t["rows"], t["columns"], inputs) == answer
    first, second = answer.segments[0][0], answer.segments[1][0]
    by_number = fd.why_separate(first, second)
    assert (by_number.segments, by_number.declined) == (answer.segments, answer.declined)
    before = fd.execute(given)
    segments = fd.segment(given)
    cut = fd.why_separate(len(segments) - 1, 1, given)
    assert kind(cut) == "library"
    torch.testing.assert_close(fd.execute(given), before)


def test_what_a_rewrite_keeps_apart() -> None:
    """A sum that is cut into parts, of which the definition has nothing."""
    kept = [each for each in default_registry() if each.type.name != "reduction"]
    with FusionDefinition(registry=Registry([OneBlockReductions(), *kept])) as fd:
        x = matrix(fd)
        total = fd.ops.sum(x, [1])
        fd.add_output(total)
    answer = fd.why_separate(total, 0, described((2, 300_001)))
    assert (kind(answer), answer.segments) == ("structure", ((1,), (0,)))
    [change] = [each for each in answer.changes if each.endswith("kept")]
    assert change.startswith("T1: chunks, as blocks do not share a reduction")
    assert kind(fd.why_separate(total, total, described((2, 300)))) == "together"


def test_bad_questions() -> None:
    fd, t = block()
    _, theirs = block()
    inputs = described((12, 16), (16, 8))
    for part, error, text in (
        (99, ScheduleError, "there is no such segment"),
        (-1, ScheduleError, "there is no such segment"),
        (True, ArgumentTypeError, "a tensor of this definition"),
        ("T1", ArgumentTypeError, "a tensor of this definition"),
        (theirs["out"], ArgumentTypeError, "a tensor of this definition"),
    ):
        with pytest.raises(error, match=text):
            fd.why_separate(part, t["out"], inputs)
    with pytest.raises(ShapeError):
        fd.why_separate(0, 1, described((12, 16), (15, 8)))
