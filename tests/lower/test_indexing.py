"""Indices and guards against brute force: every element is visited exactly once, and read where it is."""

from __future__ import annotations

from collections import Counter
from itertools import product

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fusewright.core.enums import MemoryType
from fusewright.ir import IterDomain, TensorView
from fusewright.lower.domains import Domains
from fusewright.lower.indexing import NodeIndices
from fusewright.schedule import Schedule
from fusewright.sym import Symbol, as_int, evaluate, symbol
from tests.lower import random_axes
from tests.lower.running import copy_fusion, run_if_launchable

MAX_POINTS = 1500

shapes = st.lists(st.integers(1, 6), min_size=1, max_size=3)


def visits(tensor: TensorView, sizes: dict[Symbol, int]) -> Counter[tuple[int, ...]]:
    """How often each logical index is computed where all guards hold, over all loop iterations."""
    domains = Domains([tensor.definition], {})
    extents = [evaluate(domains.extent(tensor, axis), sizes) for axis in tensor.loop]
    assume(torch.Size(extents).numel() <= MAX_POINTS)
    table: dict[IterDomain, Symbol] = {
        axis: symbol(f"j{i}", lo=0, hi=domains.extent(tensor, axis) - 1) for i, axis in enumerate(tensor.loop)
    }
    indices = NodeIndices(tensor.definition, dict(table), domains)
    found: Counter[tuple[int, ...]] = Counter()
    for point in product(*map(range, extents)):
        env = sizes | dict(zip(table.values(), point))
        if all(evaluate(guard, env) for _, guard in indices.guards):
            found[tuple(evaluate(indices.of(axis), env) for axis in tensor.logical)] += 1
    return found


@given(st.data(), shapes, st.booleans())
@settings(max_examples=150)
def test_every_element_is_visited_once(data, shape, symbolic):
    schedule = Schedule(copy_fusion([-1 if symbolic and n > 1 else n for n in shape]))
    out = schedule.fusion.output_tensors()[0]
    random_axes.transform(data.draw, schedule, out, steps=6)
    source = schedule.fusion.inputs[0]
    sizes = {a.extent: n for a, n in zip(source.logical, shape) if isinstance(a.extent, Symbol)}
    assert visits(out, sizes) == Counter(product(*map(range, shape)))


@given(st.data(), shapes)
@settings(max_examples=100)
def test_constant_chain_that_divides_needs_no_guard(data, shape):
    """A guard that is always true costs time in every thread: none stands where all splits divide."""
    schedule = Schedule(copy_fusion([4 * n for n in shape]))
    out = schedule.fusion.output_tensors()[0]
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(out.loop) - 1))
        size = as_int(out.loop[position].extent)
        schedule.split(out, position, data.draw(st.sampled_from([d for d in (1, 2, 3, 4) if size % d == 0])))
    table = {axis: symbol(f"j{i}", lo=0, hi=axis.extent - 1) for i, axis in enumerate(out.loop)}
    assert not NodeIndices(out.definition, table, Domains([out.definition], {})).guards


@given(st.data(), shapes, st.booleans())
@settings(max_examples=60)
def test_kernels_of_random_schedules_copy_through_shared_memory(data, shape, symbolic):
    """Producer and consumer loop differently and on different threads; shared memory connects them, in the
    order of the producer's loops or of axes that these are made from.
    """
    schedule = Schedule(copy_fusion([-1 if symbolic and n > 1 else n for n in shape], copies=2))
    middle = schedule.tensors()[1]
    out = schedule.fusion.output_tensors()[0]
    schedule.set_memory_type(middle, MemoryType.shared)
    if data.draw(st.booleans()):
        random_axes.transform(data.draw, schedule, middle, steps=2)
        order = data.draw(st.permutations(range(len(middle.loop))))
        schedule.store_along(middle, order, data.draw(st.integers(0, 3)))
    for tensor in (middle, out):
        random_axes.transform(data.draw, schedule, tensor, steps=4)
        random_axes.parallelize(data.draw, schedule, tensor, random_axes.THREADS)
    x = torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape)
    torch.testing.assert_close(run_if_launchable(schedule, [x])[0], x, rtol=0, atol=0)


def test_loops_that_go_beyond_what_memory_is_stored_along():
    """Loops that were made anew cut a dimension otherwise than its storage: what lies beyond has no place."""
    schedule = Schedule(copy_fusion([3, -1], copies=3))
    _, registers, middle, _ = schedule.tensors()
    schedule.set_memory_type(middle, MemoryType.shared)
    schedule.split(middle, 1, 2)
    schedule.store_along(middle, [0, 1, 2], 1)
    schedule.split(registers, 1, 64)
    schedule.transform_like(registers, [middle])
    schedule.inline_most([registers])
    x = torch.randn(3, 5)
    torch.testing.assert_close(run_if_launchable(schedule, [x])[0], x, rtol=0, atol=0)


@given(st.data(), shapes, st.booleans())
@settings(max_examples=60)
def test_kernels_of_random_schedules_inline_registers(data, shape, symbolic):
    """Tensors that loop alike are inlined as far as they can be, over threads and blocks."""
    schedule = Schedule(copy_fusion([-1 if symbolic and n > 1 else n for n in shape], copies=3))
    out = schedule.fusion.output_tensors()[0]
    random_axes.transform(data.draw, schedule, out, steps=5)
    random_axes.parallelize(data.draw, schedule, out, random_axes.THREADS + random_axes.BLOCKS)
    schedule.transform_like(out)
    schedule.parallelize_like(out)
    schedule.inline_most()
    x = torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape)
    torch.testing.assert_close(run_if_launchable(schedule, [x])[0], x, rtol=0, atol=0)
