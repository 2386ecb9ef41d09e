"""Promoted extents, launch dimensions and guards of whole kernels."""

from __future__ import annotations

import pytest
import torch

from fusewright.core.dtype import DataType
from fusewright.core.enums import MemoryType, ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.ir import Fusion
from fusewright.kernel import ir as k
from fusewright.kernel.text import kernel_text
from fusewright.lower import SizeArgument, TensorArgument, check_symbols
from fusewright.lower.domains import Domains, refine, with_promoters
from fusewright.ops.build_elementwise import apply_to_tensor, copy_tensor
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_shape import broadcast
from fusewright.schedule import Schedule
from fusewright.sym import as_int, const, evaluate, symbol
from tests.lower.running import copy_fusion, lowered, run

P = ParallelType


def bias() -> Schedule:
    """T0[6, 8] + broadcast(T1[8]); the broadcast is T2[b, 8], the output T3."""
    fusion = Fusion()
    x, y = define_tensor(fusion, [6, 8], True), define_tensor(fusion, [8], True)
    add_output(fusion, apply_to_tensor(fusion, "add", x, broadcast(fusion, y, [True, False])))
    return Schedule(fusion)


def extents(schedule: Schedule, number: int) -> list[int]:
    tensor = schedule.tensor(number)
    domains = Domains(schedule.fusion.ordered_nodes(), {})
    return [as_int(domains.extent(tensor, axis)) for axis in tensor.loop]


def test_a_broadcast_takes_the_extent_of_the_loops_that_it_is_inlined_into():
    schedule = bias()
    assert extents(schedule, 2) == [1, 8]
    schedule.inline_at(schedule.tensor(3), 1)
    assert extents(schedule, 2) == [6, 8]


def test_promotion_reaches_what_is_made_from_the_axis():
    schedule = bias()
    out = schedule.tensor(3)
    schedule.merge(out, 0)
    schedule.split(out, 0, 16)
    schedule.transform_like(out)
    assert extents(schedule, 2) == [1, 16]  # computed by itself: 8 elements
    schedule.inline_most()
    assert extents(schedule, 2) == extents(schedule, 3) == [3, 16]


def test_promotion_passes_through_chains():
    fusion = Fusion()
    x, y = define_tensor(fusion, [6, 8], True), define_tensor(fusion, [8], True)
    wide = apply_to_tensor(fusion, "neg", broadcast(fusion, y, [True, False]))
    add_output(fusion, apply_to_tensor(fusion, "add", x, wide))
    schedule = Schedule(fusion)
    schedule.inline_most()
    assert extents(schedule, 2) == extents(schedule, 3) == [6, 8]


def test_some_tensors_have_the_extents_that_they_have_among_all():
    fusion = Fusion()
    x, y = define_tensor(fusion, [6, 8], True), define_tensor(fusion, [8], True)
    wide = apply_to_tensor(fusion, "neg", broadcast(fusion, y, [True, False]))
    side = apply_to_tensor(fusion, "neg", x)
    add_output(fusion, apply_to_tensor(fusion, "add", x, wide))
    add_output(fusion, side)
    schedule = Schedule(fusion)
    schedule.inline_most()
    nodes = schedule.fusion.ordered_nodes()
    everything = Domains(nodes, {})
    for node in nodes:
        alone = Domains(with_promoters([node], nodes), {})
        axes = [*node.output.maybe_root, *node.output.loop]
        assert [alone.extent(node.output, a) for a in axes] == [
            everything.extent(node.output, a) for a in axes
        ]
    assert [n.output.name for n in with_promoters(nodes[:1], nodes)] == ["T2", "T3", "T5"]
    assert with_promoters(nodes[-1:], nodes) == nodes[-1:]


def test_known_divisors_replace_symbols():
    n = symbol("n", lo=0)
    known = refine([(n, 4), (n, 8), (const(5), 4)], {}, {})
    assert list(known) == [n] and known[n].multiple_of == 8 and known[n].name == "n"


# ---- launch dimensions and guards of a kernel


def test_dimensions_are_the_largest_and_padded():
    schedule = Schedule(copy_fusion([-1, 40], copies=2))
    middle, out = schedule.tensors()[1:]
    schedule.set_memory_type(middle, MemoryType.shared)
    for tensor, pad in ((middle, 1), (out, 32)):
        schedule.parallelize(tensor, 0, P.grid_x)
        schedule.parallelize(tensor, 1, P.block_x, pad=pad)
    kernel = lowered(schedule).kernel
    assert as_int(kernel.block[0]) == 64 and kernel.max_threads == 64
    assert [str(e) for e in kernel.grid] == ["i0", "1", "1"]
    x = torch.randn(3, 40)
    assert torch.equal(run(schedule, [x])[0], x)


def conditions(schedule: Schedule) -> list[str]:
    return [str(s.cond) for s in k.walk(lowered(schedule).kernel.body) if isinstance(s, k.If)]


@pytest.mark.parametrize("size, guards", [(128, 0), (120, 1)])
def test_a_split_that_divides_needs_no_guard(size, guards):
    schedule = Schedule(copy_fusion([size]))
    out = schedule.tensor(1)
    schedule.split(out, 0, 32)
    schedule.parallelize(out, 0, P.grid_x)
    schedule.parallelize(out, 1, P.block_x)
    assert len(conditions(schedule)) == guards


def test_nested_splits_that_do_not_divide_guard_each_step():
    """[10] -> [3, 4] -> [3, 2, 3]: 4 = 2 * 3 overruns inside what 10 = 3 * 4 overruns."""
    schedule = Schedule(copy_fusion([10]))
    out = schedule.tensor(1)
    schedule.split(out, 0, 4)
    schedule.split(out, 1, 3)
    x = torch.arange(10.0)
    assert torch.equal(run(schedule, [x])[0], x)
    assert any("4" in c and "10" in c for c in conditions(schedule))


def test_padding_threads_do_nothing():
    schedule = Schedule(copy_fusion([20]))
    schedule.parallelize(schedule.tensor(1), 0, P.block_x, pad=32)
    assert conditions(schedule) == ["threadIdx.x < 20"]


def test_threads_that_a_tensor_lacks_write_it_once():
    fusion = Fusion()
    x = define_tensor(fusion, [8], True)
    add_output(fusion, apply_to_tensor(fusion, "neg", x))
    add_output(fusion, apply_to_tensor(fusion, "exp", x))
    schedule = Schedule(fusion)
    schedule.parallelize(schedule.tensor(1), 0, P.block_x)
    assert conditions(schedule) == ["threadIdx.x == 0"]


# ---- what calls pass


def test_arguments_say_what_to_pass():
    schedule = Schedule(copy_fusion([-1, -1], copies=1))
    result = lowered(schedule)
    tensors = [a.tensor for a in result.arguments if isinstance(a, TensorArgument)]
    sizes = [str(a.extent) for a in result.arguments if isinstance(a, SizeArgument)]
    assert tensors == [schedule.fusion.inputs[0], schedule.fusion.output_tensors()[0]]
    assert sizes == ["i0", "i1"] and len(result.arguments) == len(result.kernel.params)
    grid = dict.fromkeys(result.symbols, 3)
    assert evaluate(result.kernel.params[0].buffer.size, grid) == 9


def test_sizes_are_known_by_themselves_not_by_their_names():
    fusion = Fusion()
    rows, columns = symbol("rows", lo=1), symbol("columns", lo=0, multiple_of=2)
    axes = [fusion.new_axis(rows), fusion.new_axis(columns)]
    x = fusion.new_tensor(axes, DataType.Float, contiguity=(True, True))
    fusion.add_input(x)
    add_output(fusion, copy_tensor(fusion, x))
    schedule = Schedule(fusion)
    out = schedule.tensor(1)
    schedule.split(out, 1, 4)
    schedule.parallelize(out, 2, P.vectorize)
    schedule.assume(schedule.tensor(0), 1, 4, 64)
    arguments = [a.extent for a in lowered(schedule).arguments if isinstance(a, SizeArgument)]
    assert set(arguments) == {rows, columns}
    given = torch.randn(3, 8)
    assert torch.equal(run(schedule, [given])[0], given)


def test_a_size_that_is_assumed_is_checked_even_where_the_kernel_does_not_have_it():
    schedule = Schedule(copy_fusion([-1], copies=1))
    schedule.split(schedule.tensor(1), 0, 4)
    schedule.assume(schedule.tensor(0), 0, 4, 4)
    result = lowered(schedule)
    assert not any(isinstance(a, SizeArgument) for a in result.arguments)
    check_symbols(dict.fromkeys(result.symbols, 4))
    with pytest.raises(ScheduleError, match=r"range of the size i0.\n  expected: 4\n  given: 8"):
        check_symbols(dict.fromkeys(result.symbols, 8))


def test_lowering_leaves_the_schedule_as_it_was_and_is_deterministic():
    schedule = bias()
    schedule.inline_most()
    before = str(schedule.fusion)
    first, second = lowered(schedule).kernel, lowered(schedule).kernel
    assert kernel_text(first) == kernel_text(second) and str(schedule.fusion) == before
