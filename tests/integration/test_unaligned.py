"""Inputs whose rows and addresses are no multiples of vectors: vectors start at any element."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from bench.operation import traced
from fusewright import DataType, FusionDefinition
from fusewright.core.enums import MemoryType
from fusewright.core.errors import ScheduleError
from fusewright.core.hardware import MAX_VECTOR_BYTES

BF, F, D = torch.bfloat16, torch.float32, torch.float64

Define = Callable[[FusionDefinition, list[Any]], Any]

CASES: dict[str, tuple[Define, Callable[[], list[torch.Tensor]], Callable[..., torch.Tensor]]] = {
    "rows of a wider tensor": (
        lambda fd, t: t[0] * t[1],
        lambda: [torch.randn(5, 45, dtype=D)[:, 3:39], torch.randn(36, dtype=D)],
        lambda x, y: x * y,
    ),
    "flat": (
        lambda fd, t: fd.ops.abs(t[0]),
        lambda: [torch.randint(99, (4105,), dtype=torch.int32)[1:]],
        torch.abs,
    ),
    "pad": (
        lambda fd, t: fd.ops.pad(t[0], [3, 5]),
        lambda: [torch.randn(5, 32, dtype=F)],
        lambda x: torch.nn.functional.pad(x, (3, 5)),
    ),
    "slice by an operation": (
        lambda fd, t: fd.ops.relu(fd.ops.slice(t[0], [0, 5], [5, 37])),
        lambda: [torch.randn(5, 40).to(BF)],
        lambda x: x[:, 5:37].relu(),
    ),
}  # fmt: skip


def _definition(define: Define, inputs: Sequence[torch.Tensor]) -> FusionDefinition:
    with FusionDefinition() as fd:
        fd.add_output(define(fd, [fd.from_pytorch(x) for x in inputs]))
    return fd


@pytest.mark.parametrize("name", CASES)
def test_vectors_start_at_any_element(name: str) -> None:
    define, make, reference = CASES[name]
    inputs = make()
    fd = _definition(define, inputs)
    [output] = fd.execute(inputs)
    torch.testing.assert_close(output, reference(*inputs), rtol=0, atol=0)
    [kernel] = fd.kernels_for(inputs)
    assert kernel.params.unaligned_inputs
    assert kernel.params.vectorization_factor * output.element_size() == MAX_VECTOR_BYTES


def test_blocks_that_share_a_row_load_vectors_that_start_at_any_element(target: torch.device) -> None:
    memory = torch.randint(-8, 9, (1_000_001,), device=target).to(BF)
    inputs = [memory[1:], memory[:-1].clone()]  # one of them is aligned
    fd = _definition(lambda fd, t: fd.ops.sum(fd.ops.cast(t[0], DataType.Float) * t[1], [0]), inputs)
    [kernel] = fd.kernels_for(inputs)
    assert kernel.params.cross_grid_inner_reduction and kernel.params.unaligned_inputs == (0,)
    assert fd.execute(inputs)[0].item() == (inputs[0].double() * inputs[1].double()).sum().item()


LONG = 523  # a row of which few vectors go across an end; 41 rows: few elements are read one by one

PIECES: dict[str, tuple[Define, Callable[[], list[torch.Tensor]], Callable[..., torch.Tensor]]] = {
    "pad": (
        lambda fd, t: fd.ops.pad(t[0], [1, 3, 0, 1]),
        lambda: [torch.randn(41, LONG).to(BF)],
        lambda x: torch.nn.functional.pad(x, (1, 3, 0, 1)),
    ),
    "repeat": (
        lambda fd, t: fd.ops.repeat(t[0], [2, 2]),
        lambda: [torch.randn(41, LONG).to(torch.half)],
        lambda x: x.repeat(2, 2),
    ),
    "roll": (
        lambda fd, t: fd.ops.roll(t[0], [-5], [1]),
        lambda: [torch.randn(41, LONG).to(BF)],
        lambda x: torch.roll(x, -5, 1),
    ),
    "rows with gaps, and without": (
        lambda fd, t: fd.ops.bitwise_xor(t[0], t[1]),
        lambda: [torch.rand(41, LONG + 2)[:, 1:-1] < 0.5, torch.rand(41, LONG) < 0.5],
        torch.bitwise_xor,
    ),
    "an odd size": (
        lambda fd, t: fd.ops.cast(fd.ops.neg(t[0]), dtype=DataType.BFloat16),
        lambda: [torch.randn(103, 53, 5).to(BF)],
        torch.neg,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PIECES)
def test_vectors_go_along_outputs_of_any_size(name: str) -> None:
    define, make, reference = PIECES[name]
    inputs = make()
    fd = _definition(define, inputs)
    [output] = fd.execute(inputs)
    torch.testing.assert_close(output, reference(*inputs), rtol=0, atol=0)
    [kernel] = fd.kernels_for(inputs)
    assert kernel.params.shift_rows
    assert kernel.params.vectorization_factor * output.element_size() == MAX_VECTOR_BYTES


def test_vectors_that_are_known_to_lie_in_memory_are_loaded_without_a_guard() -> None:
    """A slice far enough from both ends, of a size that blocks divide: nothing is left to be asked."""
    x = torch.randn(64, 1024)
    with FusionDefinition() as fd:
        t = fd.from_pytorch(x, static_sizes=True)
        fd.add_output(fd.ops.slice(t, [0, 3], [64, 1019]) * 2.0)
    [output] = fd.execute([x])
    torch.testing.assert_close(output, x[:, 3:1019] * 2, rtol=0, atol=0)
    [kernel] = fd.kernels_for([x])
    assert kernel.params.unaligned_inputs and "load<4>" in kernel.cuda_text


def test_short_pieces_are_read_by_element() -> None:
    x = torch.randn(64, 21).to(BF)
    fd = _definition(lambda fd, t: fd.ops.pad(t[0], [1, 1]), [x])
    fd.execute([x])
    [kernel] = fd.kernels_for([x])
    assert kernel.params.vectorization_factor == 1


def test_only_loads_from_global_memory_may_be_unaligned() -> None:
    x = torch.randn(64)
    fd = _definition(lambda fd, t: fd.ops.exp(t[0]), [x])
    fd._setup_schedule([x])
    with pytest.raises(ScheduleError, match="allow_unaligned: T1 is not loaded from global memory"):
        fd.sched.allow_unaligned(fd.sched.tensor(1))


def test_registers_select_vectors_that_start_at_any_element() -> None:
    x = torch.randn(64)
    fd = _definition(lambda fd, t: fd.ops.exp(t[0]), [x])
    fd._setup_schedule([x])
    load = fd.sched.cache_after(fd.sched.tensor(0))
    fd.sched.allow_unaligned(load)
    with pytest.raises(ScheduleError, match="may start at any element, so registers select them"):
        fd.sched.set_memory_type(load, MemoryType.shared)


def _neighbours(fd: FusionDefinition, x: Any, rows: int, columns: int) -> Any:
    """The sum of each element's neighbours, of which two are in other rows and two in its own."""
    wide = fd.ops.pad(x, [1, 1, 1, 1])
    starts = [0, 1], [2, 1], [1, 0], [1, 2]
    parts = [fd.ops.slice(wide, [a, b], [a + rows, b + columns]) for a, b in starts]
    return parts[0] + parts[1] + (parts[2] + parts[3])


@pytest.mark.parametrize("offset", [0, 1])
def test_loads_that_are_aligned_stay_so_beside_others(offset: int) -> None:
    """Of a stencil the rows above and below; nothing is where the input itself starts at any element."""
    rows, columns = 9, 1024
    x = torch.randn(rows * columns + offset)[offset:].view(rows, columns)
    with FusionDefinition() as fd:
        fd.add_output(_neighbours(fd, fd.from_pytorch(x, static_sizes=True), rows, columns))
    [output] = fd.execute([x])
    wide = torch.nn.functional.pad(x, (1, 1, 1, 1))
    expected = wide[:-2, 1:-1] + wide[2:, 1:-1] + (wide[1:-1, :-2] + wide[1:-1, 2:])
    torch.testing.assert_close(output, expected, rtol=1e-6, atol=1e-6)
    [kernel] = fd.kernels_for([x])
    assert kernel.params.unaligned_inputs == (0,)
    assert kernel.params.keeps_aligned == (offset == 0)
    assert kernel.cuda_text.count("fw::window<") == (2 if offset == 0 else 4)
    # The same definition serves both.
    other = torch.randn(rows * columns + 1)[1 - offset :][: rows * columns].view(rows, columns)
    wide = torch.nn.functional.pad(other, (1, 1, 1, 1))
    expected = wide[:-2, 1:-1] + wide[2:, 1:-1] + (wide[1:-1, :-2] + wide[1:-1, 2:])
    torch.testing.assert_close(fd.execute([other])[0], expected, rtol=1e-6, atol=1e-6)


def test_rows_found_by_index_start_alike_in_a_table_at_any_address() -> None:
    """Rows are multiples of vectors, of a length that the kernel does not know."""
    with FusionDefinition() as fd:
        table = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.Half)
        index = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.Int)
        fd.add_output(fd.ops.embedding_fwd(index, table) * 2.0)
    rows = torch.randn(129).half()[1:].view(16, 8)
    places = torch.randint(0, 16, (40, 50))
    [output] = fd.execute([rows, places], _disable_options=["constant_sizes"])
    assert torch.equal(output, rows[places].float() * 2.0)


@pytest.mark.parametrize("columns", [1023, 1021])
def test_a_vector_across_two_gathered_rows_reads_by_the_index_of_each(target, columns: int) -> None:
    """torch's index may be negative, so each element computes its own."""
    x = torch.randn(96, columns, device=target).bfloat16()
    index = torch.randint(-96, 96, (96,), generator=torch.Generator().manual_seed(3)).to(target)
    [found] = traced(lambda x, index: x[index] * 2.0, (x, index)).execute([x, index])
    torch.testing.assert_close(found, x[index] * 2.0, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [F, BF], ids=str)
def test_rows_read_by_index_start_at_any_address(
    dtype: torch.dtype, target: torch.device, caplog: pytest.LogCaptureFixture
) -> None:
    """Heads that are merged into rows, of which each vector is one of a head."""
    x = torch.randn(4 * 2 * 16 * 128 + 1, device=target).to(dtype)[1:].view(4, 2, 16, 128)

    def merged(x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2).reshape(4, 16, 256) * 1.5

    fd = traced(merged, (x,))
    with caplog.at_level(logging.ERROR, logger="fusewright"):
        [made] = fd.execute([x])
    assert "internal error" not in caplog.text
    torch.testing.assert_close(made, merged(x), rtol=0, atol=0)
    [kernel] = fd.kernels_for([x])
    assert kernel.params.unaligned_inputs == (0,) and kernel.params.vectorization_factor > 1


@pytest.mark.parametrize("computed", [False, True], ids=["index of an input", "computed index"])
def test_a_vector_that_begins_before_its_row_reads_by_the_index_of_that_row(
    computed: bool, target: torch.device, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows of odd length beside others: vectors start where those of the other input are aligned."""
    draw = torch.Generator().manual_seed(5)
    x, y = (torch.randn(n, 2045, generator=draw).half().to(target) for n in (16, 64))
    index = torch.randint(-16 if computed else 0, 16, (64,), generator=draw).to(target)

    def both(x: torch.Tensor, y: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = (x[index] if computed else torch.index_select(x, 0, index)).float()
        return (rows * 2.0).half(), (rows * y).sum(-1)

    fd = traced(both, (x, y, index))
    with caplog.at_level(logging.ERROR, logger="fusewright"):
        doubled, sums = fd.execute([x, y, index])
    assert "internal error" not in caplog.text
    expected = both(x.cpu(), y.cpu(), index.cpu())
    torch.testing.assert_close(doubled.cpu(), expected[0], rtol=0, atol=0)
    torch.testing.assert_close(sums.cpu(), expected[1], rtol=1e-5, atol=1e-3)
    [kernel] = fd.kernels_for([x, y, index])
    assert kernel.params.shift_rows


def test_parts_of_rows_that_lie_at_any_element(
    target: torch.device, caplog: pytest.LogCaptureFixture
) -> None:
    """The address of a later part is known not to be before the memory; that of the first is not."""
    x = torch.randn(15, 3 * 1536 + 1, device=target)[:, : 3 * 1536]
    y = torch.randn(15, 1536, device=target)

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        first, second, third = x.chunk(3, -1)
        return first * second + third + y

    fd = traced(function, (x, y))
    with caplog.at_level(logging.ERROR, logger="fusewright"):
        [made] = fd.execute([x, y])
    assert "internal error" not in caplog.text
    torch.testing.assert_close(made, function(x, y), rtol=1e-6, atol=1e-6)
    [kernel] = fd.kernels_for([x, y])
    assert kernel.params.unaligned_inputs == (0,)


def test_vectors_inside_of_a_misaligned_tensor_lie_at_multiples_of_addresses(target: torch.device) -> None:
    """No vector goes beyond an end, so that none has a condition; its index is no multiple all the same."""
    x = torch.randint(0, 256, (1 + 2 * 24 * 128,), device=target).to(torch.uint8)[1:].view(2, 24, 128)
    with FusionDefinition() as fd:
        part = fd.ops.slice(fd.from_pytorch(x, static_sizes=True), [0, 9, 0], [2, 17, 128])
        fd.add_output(fd.ops.bitwise_not(part))
    (made,) = fd.execute([x])
    assert "fw::misalignment" in fd.last_cuda_code()
    assert torch.equal(made, ~x[:, 9:17])
