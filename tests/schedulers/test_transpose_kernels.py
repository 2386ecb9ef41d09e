"""Kernels of the transpose scheduler: coalesced, without spills or bank conflicts, replayed from traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.core.enums import ParallelType
from fusewright.core.tracing import Tracer
from fusewright.cuda.nvrtc import NvrtcOptions, compile_cubin
from fusewright.kernel import ir as k
from fusewright.kernel.text import kernel_text
from fusewright.lower import LowerOptions, lower
from fusewright.schedule import Schedule, replay
from fusewright.schedulers import (
    apply,
)
from fusewright.sim import SimReport, simulate
from tests.compilation import ARCHITECTURES
from tests.schedulers.banks import shared_accesses
from tests.schedulers.transposes import (
    BF16,
    F32,
    Define,
    cast_both_ways,
    compiled,
    keys,
    permuted,
    random,
    several_of_each,
    turned_sum,
)

KERNELS: list[tuple[Define, Sequence[torch.Tensor]]] = [
    (turned_sum, [random(128, 256, dtype=BF16), random(256, 128, dtype=BF16)]),
    (turned_sum, [random(128, 256), random(256, 128)]),
    (turned_sum, [random(99, 77), random(77, 99)]),
    (turned_sum, [random(99, 77, dtype=BF16), random(77, 99, dtype=BF16)]),
    (permuted(1, 0)[0], [random(900, 1001, dtype=BF16)]),
    (permuted(1, 0)[0], [random(901, 1000, dtype=BF16)]),
    (permuted(1, 0)[0], [random(64, 64, dtype=torch.float8_e4m3fn)]),
    (permuted(0, 3, 1, 2)[0], [random(2, 14, 14, 64)]),
    (cast_both_ways, [random(128, 128)]),
    (several_of_each, [random(96, 64), random(64, 96), random(64, 96), random(96, 64)]),
    (keys(2, 64, 3, 64)[0], [random(128, 576, dtype=BF16)]),
    (keys(2, 65, 3, 20)[0], [random(130, 180)]),
]
NAMES = [
    "bf16",
    "f32",
    "odd f32",
    "odd bf16",
    "full odd tiles",
    "wide in, odd out",
    "fp8",
    "channels",
    "cast",
    "several",
    "keys",
    "odd keys",
]


@pytest.mark.parametrize("body, inputs", KERNELS, ids=NAMES)
def test_replay(body: Define, inputs: Sequence[torch.Tensor]) -> None:
    segment, kernel = compiled(body, inputs)
    original = Schedule(segment.fusion)
    apply(segment.scheduler, original, kernel.params, kernel.hardware)
    again = replay(segment.fusion, original.trace())
    again.complete()
    lowered = lower(again.fusion, LowerOptions(kernel.name, kernel.index_dtype), Tracer())
    assert kernel_text(lowered.kernel) == kernel_text(kernel.kernel)


@pytest.mark.sampled(0.5, "arch")
@pytest.mark.parametrize("body, inputs", KERNELS, ids=NAMES)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_no_spills(body: Define, inputs: Sequence[torch.Tensor], arch: str) -> None:
    _, kernel = compiled(body, inputs)
    (resources,) = compile_cubin(kernel.full_text, NvrtcOptions(arch)).resources.values()
    assert resources.spill_loads == resources.spill_stores == resources.stack_frame == 0


@pytest.mark.parametrize("body, inputs", KERNELS, ids=NAMES)
def test_no_bank_conflicts(body: Define, inputs: Sequence[torch.Tensor]) -> None:
    _, kernel = compiled(body, inputs)
    accesses = shared_accesses(kernel.kernel)
    assert len(accesses) >= 2
    # Where a tile is written in wider vectors than it is read across, rows meet in as many places as a row
    # has vectors: 16 in 8 for vectors of 2 read across those of 4, 32 in 8 for single elements across 8 or 4.
    widths = kernel.params.vectorize_factor1, kernel.params.vectorize_factor2
    allowed = {(2, 4): 2, (4, 4): 2, (1, 8): 4, (1, 4): 4}.get(widths, 1)
    assert {text: ways for text, ways in accesses if ways > allowed} == {}


@pytest.mark.parametrize("name", ["bf16", "wide in, odd out"])
def test_the_storage_is_what_avoids_conflicts(name: str) -> None:
    """The estimate sees conflicts: those of the same kernel with its tiles stored in order."""
    segment, kernel = compiled(*KERNELS[NAMES.index(name)])
    schedule = Schedule(segment.fusion)
    apply(segment.scheduler, schedule, kernel.params, kernel.hardware)
    calls = schedule.trace()
    plain = replay(segment.fusion, [call for call in calls if call.method != "store_along"])
    plain.complete()
    lowered = lower(plain.fusion, LowerOptions("plain", kernel.index_dtype), Tracer())
    assert max(ways for _, ways in shared_accesses(lowered.kernel)) >= 4


@pytest.mark.parametrize(
    ("channels", "dtype"),
    [
        (8, BF16),
        (16, BF16),
        (24, BF16),
        (32, BF16),
        (16, torch.uint8),
        (4, F32),
        (8, F32),
        (4, torch.float64),
    ],
    ids=str,
)
@pytest.mark.parametrize("to_last", [False, True])
def test_short_runs_have_few_bank_conflicts(channels: int, dtype: torch.dtype, to_last: bool) -> None:
    """Rows of few channels, many of which are in one line of all banks."""
    x = torch.empty(2, channels, 4096, dtype=dtype)

    def body(fd: FusionDefinition, x: Any) -> None:
        fd.add_output(fd.ops.set(fd.ops.permute(x, [0, 2, 1])))

    _, kernel = compiled(body, [x if to_last else x.transpose(1, 2).contiguous()])
    # Two lines' rows are twice as many as there are places of a vector in all banks.
    assert {text: ways for text, ways in shared_accesses(kernel.kernel) if ways > 2} == {}


def report(body: Define, inputs: Sequence[torch.Tensor], elements: int = 0) -> SimReport:
    """Of the fusion's kernel, for contiguous inputs; outputs, of so many elements, are not looked at."""
    segment, kernel = compiled(body, inputs)
    fusion = segment.fusion
    sizes = {}
    for tensor, x in zip(fusion.inputs, inputs):
        sizes |= {str(axis.extent): n for axis, n in zip(tensor.shape, x.shape)}
    count = elements or inputs[0].numel()
    memory = iter([*inputs, *(torch.empty(count, dtype=t.dtype.torch) for t in fusion.output_tensors())])
    arguments = [
        next(memory) if isinstance(p, k.TensorParam) else sizes[p.name] for p in kernel.kernel.params
    ]
    return simulate(kernel.kernel, arguments)


@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_traffic(dtype: torch.dtype) -> None:
    """Every input is read once and every output written once, 16 bytes at a time, or 8 across of bfloat16;
    one barrier a block.
    """
    x, y = random(192, 256, dtype=dtype), random(256, 192, dtype=dtype)
    moved = report(turned_sum, [x, y])
    size = x.numel() * x.element_size()
    traffic = moved.global_traffic
    assert (traffic.bytes_loaded, traffic.bytes_stored) == (2 * size, size)
    across = 8 if dtype is BF16 else 16
    assert (traffic.loads, traffic.stores) == (size // 16 + size // across, size // 16)
    assert (moved.shared_traffic.bytes_stored, moved.shared_traffic.stores) == (size, size // across)
    assert moved.shared_traffic.bytes_loaded == size
    assert moved.barriers == moved.blocks


def test_traffic_of_reads_by_index() -> None:
    """A third of the input, in vectors along the dimension that lies together there; nothing across it."""
    moved = report(keys(2, 64, 3, 64)[0], [random(128, 576, dtype=BF16)], elements := 128 * 192)
    size = elements * BF16.itemsize
    traffic = moved.global_traffic
    assert (traffic.bytes_loaded, traffic.bytes_stored) == (size, size)
    assert (traffic.loads, traffic.stores) == (size // 8, size // 16)


def test_loads_are_in_flight_before_the_barrier() -> None:
    """Of both groups, and all of a thread's."""
    _, kernel = compiled(*KERNELS[0])
    text = kernel.full_text
    before, after = text[text.index("__global__") :].split("__syncthreads();")
    assert before.count("fw::load") == 2 and "fw::load" not in after


@pytest.mark.parametrize("shape", [(4, 3, 1025), (2, 65, 77)], ids=str)
def test_odd_tiles(shape: tuple[int, ...]) -> None:
    """A fill goes to the tile as any value does; one barrier stands between writes and reads of the tile."""
    _, kernel = compiled(permuted(0, 2, 1)[0], [random(*shape, dtype=BF16)])
    before, after = kernel.cuda_text.partition("{")[2].split("__syncthreads();")
    assert "if (" not in before and "if (" in after


def test_threads_follow_the_reference() -> None:
    segment, kernel = compiled(*KERNELS[0])
    schedule = Schedule(segment.fusion)
    apply(segment.scheduler, schedule, kernel.params, kernel.hardware)
    kinds = [axis.parallel for axis in schedule.fusion.output_tensors()[0].loop]
    wanted = (ParallelType.grid_x, ParallelType.unroll, ParallelType.block_x, ParallelType.vectorize)
    assert kinds == list(wanted)
