"""At the end of a launch the kernel has written every element of its outputs, and nothing between them."""

from __future__ import annotations

import pytest
import torch

from fusewright.core.dtype import DataType
from fusewright.core.errors import OutOfBoundsError, UnwrittenOutputError
from fusewright.kernel.ir import Alloc, Copy, If, Kernel, index_symbol
from fusewright.sim import SimOptions, simulate
from fusewright.sym import Expr, const, eq, floordiv, land, lnot, lt, mod
from tests.kernel import builders
from tests.kernel.builders import BX, GX, at, kernel, local, tensor

F32 = DataType.Float
ROWS, COLUMNS, PITCH = 3, 5, 8
THREADS = 8
T, B = index_symbol(BX, const(THREADS)), index_symbol(GX, const(ROWS))
INSIDE = lt(T, COLUMNS)
SPAN = (ROWS - 1) * PITCH + COLUMNS


def copy_rows(guard: Expr = INSIDE, *, pitch: int = PITCH, column: Expr = T) -> Kernel:
    """y[row, column] = x[row, column] where `guard` holds: a row a block, a column a thread."""
    size = const((ROWS - 1) * pitch + COLUMNS)
    x, y, r = tensor("x", F32, size), tensor("y", F32, size, output=True), local("r", F32)
    index = B * pitch + column
    body = [Alloc(r), If(guard, (Copy(at(r), at(x.buffer, index)), Copy(at(y.buffer, index), at(r))))]
    return kernel("copy_rows", [x, y], body, [ROWS], [THREADS])


def padded(fill: float = 0.0) -> torch.Tensor:
    return torch.full((ROWS * PITCH,), fill).as_strided((ROWS, COLUMNS), (PITCH, 1))


@pytest.mark.parametrize("pitch", [COLUMNS, PITCH])
def test_an_element_that_no_thread_writes_is_named(pitch: int) -> None:
    x, y = (torch.zeros(ROWS, pitch)[:, :COLUMNS] for _ in range(2))
    simulate(copy_rows(pitch=pitch), [x, y])
    lost = land(INSIDE, lnot(land(eq(B, 1), lt(1, T))))
    with pytest.raises(UnwrittenOutputError) as caught:
        simulate(copy_rows(lost, pitch=pitch), [x, y])
    facts = caught.value.facts
    assert (facts["tensor"], facts["element"], facts["index"], facts["missing"]) == (
        "y",
        (1, 2),
        pitch + 2,
        3,
    )
    assert f"element [1, 2] of the output `y` was never written (index {pitch + 2}" in str(caught.value)
    assert "3 of its 15 elements" in str(caught.value)
    simulate(copy_rows(lost, pitch=pitch), [x, y], options=SimOptions(outputs=False))


@pytest.mark.parametrize("races", [True, False])
@pytest.mark.parametrize("uninitialized", [True, False])
@pytest.mark.parametrize("max_lanes", [THREADS, 1 << 17])
def test_whatever_else_is_checked(races: bool, uninitialized: bool, max_lanes: int) -> None:
    options = SimOptions(races=races, uninitialized=uninitialized, max_lanes=max_lanes)
    simulate(copy_rows(), [padded(), padded()], options=options)
    with pytest.raises(UnwrittenOutputError, match=r"element \[2, 0\] of the output `y`"):
        simulate(copy_rows(land(INSIDE, lt(B, 2))), [padded(), padded()], options=options)


def test_an_output_in_the_memory_of_an_input() -> None:
    x = padded(1.0)
    simulate(copy_rows(), [x, x])
    with pytest.raises(UnwrittenOutputError, match=r"element \[0, 0\] of the output `y`"):
        simulate(copy_rows(land(INSIDE, lt(0, T))), [x, x])


def test_elements_of_another_type_share_memory_with_the_input() -> None:
    """Bytes of the input lie between those that the output's elements start at."""
    x, y, r = tensor("x", DataType.Double, const(8)), tensor("y", F32, const(8), output=True), local("r", F32)
    memory = torch.zeros(8, dtype=torch.float64)
    one = Copy(at(y.buffer, T), at(r))
    load = builders.Copy(at(r), builders.Imm(1.0, F32))
    args = [memory, memory.view(torch.float32)[:8]]
    simulate(kernel("k", [x, y], [Alloc(r), load, one], [1], [THREADS]), args)
    with pytest.raises(UnwrittenOutputError, match=r"element \[7\]"):
        simulate(kernel("k", [x, y], [Alloc(r), load, If(lt(T, 7), (one,))], [1], [THREADS]), args)


def test_an_expanded_dimension_is_written_once() -> None:
    row = torch.zeros(COLUMNS).expand(4, COLUMNS)
    y, r = tensor("y", F32, const(COLUMNS), output=True), local("r", F32)

    def fill(guard: Expr) -> Kernel:
        store = If(guard, (Copy(at(y.buffer, T), at(r)),))
        return kernel("fill", [y], [Alloc(r), Copy(at(r), builders.Imm(1.0, F32)), store], [1], [THREADS])

    simulate(fill(INSIDE), [row])
    with pytest.raises(UnwrittenOutputError, match=r"element \[0, 3\].*index 3.*4 of its 20 elements"):
        simulate(fill(land(INSIDE, lnot(eq(T, 3)))), [row])


def test_overlapping_rows_of_one_output() -> None:
    """Rows that start one element apart: every address is written once, and belongs to several rows."""
    y = torch.zeros(THREADS).as_strided((4, 5), (1, 1))
    param, r = tensor("y", F32, const(THREADS), output=True), local("r", F32)

    def fill(guard: Expr) -> Kernel:
        store = If(guard, (Copy(at(param.buffer, T), at(r)),))
        return kernel("fill", [param], [Alloc(r), Copy(at(r), builders.Imm(1.0, F32)), store], [1], [THREADS])

    simulate(fill(lt(T, 8)), [y])
    with pytest.raises(UnwrittenOutputError, match=r"element \[2, 4\].*index 6"):
        simulate(fill(lnot(eq(T, 6))), [y])


@pytest.mark.parametrize("shape", [(0,), (0, COLUMNS), (ROWS, 0)])
def test_an_output_without_elements_lacks_none(shape: tuple[int, ...]) -> None:
    x = torch.zeros(ROWS, PITCH)[:, :COLUMNS]
    simulate(copy_rows(lt(T, 0)), [x, torch.zeros(shape)])


def test_a_launch_without_blocks_writes_nothing() -> None:
    with pytest.raises(UnwrittenOutputError, match=r"element \[0, 0\]"):
        simulate(copy_rows(), [padded(), padded()], grid=(0, 1, 1))
    simulate(copy_rows(), [padded(), torch.zeros(0, COLUMNS)], grid=(0, 1, 1))


def test_an_output_larger_than_the_kernel_addresses() -> None:
    whole = torch.zeros(4, PITCH)[:, :COLUMNS]
    with pytest.raises(UnwrittenOutputError, match=r"element \[3, 0\].*index 24"):
        simulate(copy_rows(), [padded(), whole])


def test_a_scalar_output() -> None:
    y = tensor("y", F32, const(1), output=True)
    with pytest.raises(UnwrittenOutputError, match=r"element \[\] of the output `y`"):
        simulate(kernel("nothing", [y], [], [1], [1]), [torch.zeros(())])


def test_the_last_block_of_a_grid_reduction_writes_the_output() -> None:
    x, y, exchange = torch.ones(5001), torch.empty(1), torch.zeros(24, dtype=torch.int64)
    simulate(builders.grid_sum(), [x, y, exchange, 5001])
    with pytest.raises(UnwrittenOutputError, match=r"element \[1\]"):
        simulate(builders.grid_sum(), [x, torch.empty(2), exchange, 5001])


# ---- what lies between a tensor's elements ------------------------------------------------------


def test_a_store_between_the_rows_of_an_output_is_out_of_bounds() -> None:
    x = torch.zeros(ROWS, PITCH)
    with pytest.raises(OutOfBoundsError) as caught:
        simulate(copy_rows(land(lt(T, COLUMNS + 1), lt(B, 2))), [x, padded()])
    assert caught.value.facts["index"] == 5 and caught.value.facts["thread"] == (5, 0, 0)
    assert "index 5 of `y` is none of its elements: sizes [3, 5], strides [8, 1]" in str(caught.value)


def test_a_read_between_the_rows_of_an_input_is_out_of_bounds() -> None:
    with pytest.raises(OutOfBoundsError, match="index 5 of `x` is none of its elements"):
        simulate(copy_rows(land(lt(T, COLUMNS + 1), lt(B, 2))), [padded(), torch.zeros(ROWS, PITCH)])


def test_a_vector_that_reaches_into_the_padding() -> None:
    x, y, r = tensor("x", F32, const(SPAN)), tensor("y", F32, const(4), output=True), local("r", F32, 4)
    load = Copy(at(r), at(x.buffer, 4), 4)
    with pytest.raises(OutOfBoundsError, match="index 5 of `x` is none"):
        simulate(
            kernel("k", [x, y], [Alloc(r), load, Copy(at(y.buffer), at(r), 4)], [1], [1]),
            [padded(), torch.zeros(4)],
        )


def test_interleaved_tensors_keep_to_their_own_elements() -> None:
    memory = torch.arange(16.0)
    even, odd, r = tensor("even", F32, const(15)), tensor("odd", F32, const(15), output=True), local("r", F32)

    def run(offset: int) -> None:
        index = mod(T * 2 + offset, 15)
        body = [Alloc(r), Copy(at(r), at(even.buffer, T * 2)), Copy(at(odd.buffer, index), at(r))]
        simulate(kernel("k", [even, odd], body, [1], [THREADS]), [memory[::2], memory[1::2]])

    run(0)
    assert torch.equal(memory[::2], memory[1::2])
    with pytest.raises(OutOfBoundsError, match="index 1 of `odd` is none of its elements"):
        run(1)


def test_a_permuted_or_expanded_tensor_has_no_gaps() -> None:
    x = torch.randn(4, COLUMNS, 3).permute(2, 0, 1)
    copied, source = torch.zeros(60), x.permute(1, 2, 0)
    n, r = const(60), local("r", F32)
    a, b = tensor("a", F32, n), tensor("b", F32, n, output=True)
    t = index_symbol(BX, const(60))
    body = [Alloc(r), Copy(at(r), at(a.buffer, t)), Copy(at(b.buffer, mod(t, 60) + floordiv(t, 60)), at(r))]
    simulate(kernel("k", [a, b], body, [1], [60]), [x, copied])
    assert torch.equal(copied.view(4, COLUMNS, 3), source)
