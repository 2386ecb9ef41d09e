"""Work that a kernel would repeat for further dimensions: by itself, or shared by rows of a thread."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F

from fusewright.host.kernels.segment_kernels import SegmentKernels
from fusewright.segment.repeated_work import RepeatedWork, repeated_work
from tests.segment.test_few_elements import definition

Tensor = torch.Tensor


def kernels(function: Callable[..., Tensor], *shapes: tuple[int, ...]) -> SegmentKernels:
    """Those for float inputs of these shapes, whose memory nothing touches."""
    inputs = [torch.empty(shape) for shape in shapes]
    return definition(function, *inputs).kernels_for(inputs)


def embedded(times: Tensor, size: int) -> Tensor:
    rates = torch.exp(torch.arange(size // 2) * (-math.log(1e4) / (size // 2)))
    angles = times[..., None] * rates
    return torch.cat([angles.cos(), angles.sin()], -1)


def timestep_added(x: Tensor, times: Tensor) -> Tensor:
    return x + embedded(times, x.shape[2])[:, None]


def positions_normed(x: Tensor) -> Tensor:
    return F.layer_norm(x + embedded(torch.arange(x.shape[1]).float(), x.shape[2]), x.shape[2:])


def decayed(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.pow(weight, 1.7)


def scaled(x: Tensor, weight: Tensor) -> Tensor:
    return x * (weight * 2 + 1)


def test_an_embedding_of_few_points_is_computed_once_for_all_tokens() -> None:
    first, second = kernels(timestep_added, (8, 4096, 1024), (8,))
    assert first.bytes_written == 8 * 1024 * 4
    assert second.bytes_read == 8 * 4096 * 1024 * 4 + first.bytes_written


def test_rows_are_normed_in_a_kernel_that_reads_their_positions() -> None:
    first, second = kernels(positions_normed, (8, 4096, 1024))
    assert (first.scheduler, second.scheduler) == ("pointwise", "inner_persistent")


def rotated_by_sections(x: Tensor, positions: Tensor, table: Tensor) -> Tensor:
    """Of each section of a head another row of positions says which row of the table it takes."""
    half = table.shape[1]
    section = torch.arange(half) // (half // 2)
    cosine = table[positions[section].t(), torch.arange(half)]
    first, second = x.chunk(2, -1)
    return torch.cat([first * cosine, second * cosine], -1)


def test_gathers_whose_places_are_gathered_are_made_once_for_all_heads() -> None:
    """H200, estimated: 658 us for 33554432 elements of half, 46 in two kernels."""
    x, table = torch.empty(32, 1024, 128), torch.empty(1024, 64)
    positions = torch.randint(1024, (2, 1024))
    first, second = definition(rotated_by_sections, x, positions, table).kernels_for([x, positions, table])
    assert first.bytes_written == 1024 * 64 * 4
    assert second.bytes_read == x.numel() * 4 + first.bytes_written


def test_rows_of_a_table_are_gathered_where_they_are_read() -> None:
    x, table, positions = torch.empty(32, 4096, 128), torch.empty(4096, 128), torch.randint(4096, (4096,))
    fd = definition(lambda x, table, positions: x * table[positions], x, table, positions)
    assert len(fd.kernels_for([x, table, positions])) == 1


def test_where_little_is_computed_there_is_one_kernel() -> None:
    for function, *shapes in (
        (timestep_added, (8, 64, 64), (8,)),  # few elements
        (scaled, (8192, 4096), (4096,)),  # cheap ones
        (timestep_added, (4096, 2, 1024), (4096,)),  # repeated twice
    ):
        assert len(kernels(function, *shapes)) == 1


def test_rows_of_a_thread_share_what_is_the_same_for_all_of_them() -> None:
    [kernel] = kernels(decayed, (16384, 4096), (4096,))
    assert kernel.params.unroll_factor_outer >= 4
    [kernel] = kernels(scaled, (16384, 4096), (4096,))
    assert kernel.params.unroll_factor_outer <= 2


def test_rows_share_what_follows_from_positions() -> None:
    """No load says that rows and columns are worth being told apart."""

    def window(x: Tensor) -> Tensor:
        return x * torch.cos(torch.exp(torch.arange(x.shape[1]) * -0.1))

    [kernel] = kernels(window, (16384, 4096))
    assert kernel.params.break_point == 1 and kernel.params.unroll_factor_outer > 1


def found(function: Callable[..., Tensor], *shapes: tuple[int, ...]) -> list[RepeatedWork]:
    leaf = definition(function, *map(torch.empty, shapes))._leaf
    assert leaf is not None
    return repeated_work([node for node in leaf.fusion.ordered_nodes() if not node.is_scalar], {})


def test_parts_end_where_what_follows_has_more_points_or_is_a_view() -> None:
    whole, rates = found(timestep_added, (8, 4096, 1024), (8,))
    assert whole.nodes[-1].label == "Choose" and rates.nodes[-1].label == "exp"
    assert set(rates.nodes) < set(whole.nodes)
    assert whole.slots > 8 * 4096 * 1024 * 20


def test_a_number_is_computed_where_it_is_read() -> None:
    """By each thread: another launch would take longer, as would all that waits for it."""
    [part] = found(lambda x, step: x * torch.pow(0.9, step), (8192, 4096), ())
    assert part.slots == 0


def test_cheap_work_is_no_part() -> None:
    assert not found(scaled, (8192, 4096), (4096,))
    [rates] = found(timestep_added, (4096, 1, 1024), (4096,))  # angles are of half the points
    assert rates.nodes[-1].label == "exp"
