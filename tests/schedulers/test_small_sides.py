"""Transposes with a side of few elements: neighbouring threads access neighbours in memory on both sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import lcm
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition, TransposeParams
from fusewright.core.hardware import DESCRIBED
from fusewright.host.executor import FusionExecutor
from fusewright.schedulers import Facts, Proposal, Reject, TransposeScheduler
from fusewright.schedulers.transpose.small_sides import MAX_THREADS, tile_of_whole_side
from tests.integration.cases import widened
from tests.integration.tolerance import assert_close
from tests.schedulers.banks import loaded_sectors, shared_accesses
from tests.schedulers.transposes import BF16, F32, Define, compiled, define, keys, permuted, random

SIDE, SQUARE, CHANNELS = 4, 16, 3


def placed(count: int, outputs: int = 1, side: int = SIDE) -> Define:
    """[count, squares, their pixels and channels] -> [count, channels, rows, columns]

    Images of squares, to which tables of pixels and of squares are added that are the same in all images.
    """

    def body(fd: FusionDefinition, x: Any, *added: Any) -> None:
        for table in added:
            x = x + table
        split = fd.ops.reshape(x, [count, side, side, SQUARE, SQUARE, CHANNELS])
        turned = fd.ops.permute(split, [0, 5, 1, 3, 2, 4])
        image = fd.ops.reshape(turned, [count, CHANNELS, side * SQUARE, side * SQUARE])
        for factor in range(1, outputs + 1):
            fd.add_output(fd.ops.cast(image * float(factor), DataType.BFloat16))

    return body


def images(count: int = 2, side: int = SIDE) -> list[torch.Tensor]:
    """The images and both tables."""
    length, pixels = side * side, SQUARE * SQUARE * CHANNELS
    shapes = ((count, length, pixels), (1, 1, pixels), (1, length, pixels))
    return [random(*shape, dtype=BF16) for shape in shapes]


def fixed(body: Define, inputs: Sequence[torch.Tensor]) -> FusionDefinition:
    """A definition for these sizes alone, by which tables are known to be the same in all images."""
    with FusionDefinition() as fd:
        body(fd, *[fd.from_pytorch(x, static_sizes=True) for x in inputs])
    return fd


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("make", [define, fixed], ids=["any sizes", "these"])
def test_images_of_squares(make: Callable[..., FusionDefinition], outputs: int, target: torch.device) -> None:
    inputs = [x.to(target) for x in images()]
    x, pixels, squares = map(widened, inputs)
    split = (x + pixels + squares).reshape(2, SIDE, SIDE, SQUARE, SQUARE, CHANNELS)
    expected = split.permute(0, 5, 1, 3, 2, 4).reshape(2, CHANNELS, SIDE * SQUARE, SIDE * SQUARE)
    results = make(placed(2, outputs), inputs).execute(inputs)
    for factor, result in enumerate(results, 1):
        assert_close(result, expected * factor)


def test_a_warp_loads_runs_of_memory() -> None:
    """Channels of a pixel and of its neighbours, of the tables, too; and no dimension that lies apart is
    merged with the channels.
    """
    executor = FusionExecutor(fixed(placed(2), images())._finished().fusion)
    [compiled_kernel] = executor.compile(images()).kernels
    params = compiled_kernel.params
    assert isinstance(params, TransposeParams)
    assert (params.tile_size1, params.dims_merged_with_1, params.dims_merged_with_2) == (CHANNELS, (), ())
    assert set(loaded_sectors(compiled_kernel.kernel).values()) == {2}
    assert max(ways for _, ways in shared_accesses(compiled_kernel.kernel)) <= 2


def test_lines_that_warps_look_up_are_estimated() -> None:
    """Of tables that threads read across, as the results have as many bytes."""
    body, inputs = placed(32, 3, 16), images(32, 16)
    assert seconds(body, inputs) > 1.2 * seconds(body, inputs[:1])


def seconds(body: Define, inputs: Sequence[torch.Tensor]) -> float:
    """The transpose scheduler's estimate."""
    executor = FusionExecutor(fixed(body, inputs)._finished().fusion)
    [segment] = executor.segments().segments
    planner = TransposeScheduler().prepare(segment.fusion)
    assert not isinstance(planner, Reject)
    strides = tuple(x.stride() for x in inputs)
    proposal = planner(Facts({}, strides, (256,) * len(inputs)), DESCRIBED["h200"])
    assert isinstance(proposal, Proposal)
    return proposal.estimate().seconds


# ---- tiles


@pytest.mark.parametrize("vectors, usual", [(n, 1 << (n - 1).bit_length()) for n in range(1, 33)])
@pytest.mark.parametrize("size", [64, 224, 6144, 50175, 50176])
@pytest.mark.parametrize("width", [1, 4, 8])
def test_threads_have_one_place_along_the_side(vectors: int, usual: int, size: int, width: int) -> None:
    found = tile_of_whole_side(vectors, usual, size, 256, width, 128)
    if vectors > 0.75 * usual or lcm(vectors, 32) > MAX_THREADS:
        assert found is None
        return
    assert found is not None
    along, threads = found
    assert threads % vectors == threads % 32 == 0 and threads <= MAX_THREADS
    assert along <= 256 and along % (threads // vectors) == along % width == 0


@pytest.mark.parametrize(
    "size, width, tile",
    [
        (224, 4, (224, 96)),  # all of a dimension
        (50176, 4, (512, 96)),  # whole tiles
        (6144, 4, (384, 96)),  # whole tiles, whose rows have a vector for each thread
        (50175, 1, (480, 96)),  # the same, in fewer blocks
    ],
)
def test_lengths_of_the_other_side(size: int, width: int, tile: tuple[int, int]) -> None:
    usual = 256 if size < 256 else 512
    assert tile_of_whole_side(3, 4, size, usual, width, 128) == tile


def test_heads_of_few_elements_fill_a_tile_together() -> None:
    """Those of a product's rows, which are one run of memory."""
    _, kernel = compiled(keys(4, 1024, 12, 48)[0], [torch.empty(4096, 1728, dtype=BF16)])
    params = kernel.params
    assert isinstance(params, TransposeParams)
    assert (params.tile_size2, params.dims_merged_with_2) == (64, (1,))


@pytest.mark.parametrize("channels", [3, 5, 6, 12])
@pytest.mark.parametrize("to_last", [False, True])
@pytest.mark.parametrize("dtype", [BF16, F32, torch.float64], ids=str)
@pytest.mark.sampled(0.5)
def test_few_channels(channels: int, to_last: bool, dtype: torch.dtype, target: torch.device) -> None:
    x = random(2, channels, 35, 16, dtype=dtype).to(target)
    dims = (0, 2, 3, 1) if to_last else (0, 3, 1, 2)
    body, reference = permuted(*dims)
    x = x if to_last else x.permute(0, 2, 3, 1).contiguous()
    fd = define(body, [x])
    assert_close(fd.execute([x])[0], reference(widened(x)))
    [kernel] = fd.kernels_for([x])
    if kernel.scheduler == "transpose":
        assert isinstance(kernel.params, TransposeParams)
        exact = channels in (kernel.params.tile_size1, kernel.params.tile_size2)
        assert exact == bool(channels % 2)  # vectors of the others go through a tile of a power of two
