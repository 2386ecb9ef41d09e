"""Reductions of several rows that depend on others: those of one kind come together and share an exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.kernel import ir as k
from fusewright.kernel.verify import verify
from fusewright.lower.passes.joined_reductions import join_reductions
from fusewright.lower.passes.shared import place_shared
from fusewright.ops.reductions import SUM
from fusewright.sim import SimOptions, simulate
from tests.kernel import builders as b


def divergence(shape: Sequence[int], dtype: DataType) -> FusionDefinition:
    """Of a row's distribution from another's, as a teacher's from its student's."""
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor(shape=list(shape), contiguity=[True, True], dtype=dtype) for _ in range(2))
        p, q = (fd.ops.log_softmax(fd.ops.cast(t, DataType.Float), dim=-1) for t in (x, y))
        fd.add_output(fd.ops.sum(fd.ops.exp(p) * (p - q), [1]))
    return fd


def shared_by(fd: FusionDefinition, inputs: Sequence[torch.Tensor], kind: type) -> list[int]:
    """How many values each exchange of the kernel is of."""
    [described] = fd.kernels_for(inputs)
    assert described.kernel is not None
    found = [stmt for stmt in k.walk(described.kernel.kernel.body) if isinstance(stmt, kind)]
    return [stmt.width for stmt in found]


@pytest.mark.parametrize(("length", "kind"), [(2000, k.BlockReduce), (16384, k.ClusterReduce)])
def test_two_rows_take_their_maxima_and_their_sums_together(
    target: torch.device, length: int, kind: type
) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(9, length, generator=generator).bfloat16().to(target) for _ in range(2))
    fd = divergence((9, length), DataType.BFloat16)
    (found,) = fd.execute([x, y])
    p, q = x.double().log_softmax(1), y.double().log_softmax(1)
    torch.testing.assert_close(found.double(), (p.exp() * (p - q)).sum(1), rtol=1e-5, atol=1e-5)
    assert shared_by(fd, [x, y], kind) == [2, 2, 1]


def test_rows_that_are_held_one_after_the_other_stay_so() -> None:
    with FusionDefinition() as fd:
        for _ in range(2):
            x = fd.define_tensor(shape=[512, 4096], contiguity=[True, True], dtype=DataType.Float)
            fd.add_output(fd.ops.softmax(x, dim=-1))
    for described in fd.kernels_for([torch.zeros(512, 4096)] * 2):
        assert described.kernel is not None
        found = [s for s in k.walk(described.kernel.kernel.body) if isinstance(s, k.BlockReduce)]
        assert [stmt.width for stmt in found] == [1] * len(found)


@pytest.mark.parametrize("threads", [32, 64])
def test_joined_reductions_of_a_cluster_are_those_of_each(threads: int) -> None:
    """T1 = T0 - the sum of its row, and of twice the row, added up."""
    plain = b.cluster_rows(threads)
    [reduction] = [stmt for stmt in plain.body if isinstance(stmt, k.ClusterReduce)]
    [value] = [ref.buffer for ref in reduction.src if isinstance(ref, k.Ref)]
    twice, other = b.local("twice", DataType.Float), b.local("other", DataType.Float)
    second = replace(reduction, dst=(b.at(other),), src=(b.at(twice),))
    body: list[k.Stmt] = [k.Alloc(twice), k.Alloc(other)]
    for stmt in plain.body:
        if stmt is reduction:
            doubled = k.Compute(b.ADD, b.at(twice), (b.at(value), b.at(value)), DataType.Float)
            body += [doubled, k.Init(SUM, (b.at(other),)), stmt, second]
            body.append(k.Compute(b.SUB, b.at(value), (b.at(value), b.at(other)), DataType.Float))
            continue
        body.append(stmt)
    apart = k.with_body(plain, tuple(body))
    joined = join_reductions(apart)
    assert [stmt.width for stmt in joined.body if isinstance(stmt, k.ClusterReduce)] == [2]
    x = torch.arange(3.0 * threads * 4).reshape(3, -1)
    for kernel in (apart, place_shared(joined)):
        verify(kernel)
        y = torch.zeros_like(x)
        simulate(kernel, [x, y, 3], options=SimOptions(outputs=False))
        assert torch.equal(y, x - 3 * x.sum(1, keepdim=True))
