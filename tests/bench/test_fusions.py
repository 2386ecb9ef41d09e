"""The catalogue of fusions: what `from_fx` makes of functions of torch, at small shapes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from bench.drawn import drawn_cases
from bench.fusion import small_shape
from bench.fusion_catalogue import CATALOGUE
from bench.fusions import summary
from bench.operation import Inputs, Operation
from bench.operations import selected
from bench.throughput import Row

#: Of each kind one or two; a run of the bench checks all of them.
SAMPLE = selected(
    [
        "mish",
        "swiglu_halves",
        "cross_entropy_smooth",
        "float8_blocks",
        "adamw",
        "rope_interleaved",
        "cat_odd_three",
        "permute_02413",
        "pad_image",
        "gather_columns",
        "argmax_first",
        "average_pool",
        "standardize_02",
        "softmax_cumsum",
        "document_softmax",
        "expert_combine",
        "int4_back",
        "uint8_rows",
        "packed_bits",
        "ce_gradient",
        "group_norm_last",
        "position_ids",
        "boxes_overlap",
        "pad_circular",
        "max_pool3x3",
        "frames",
        "at_pairs",
    ],
    CATALOGUE,
)


@pytest.mark.sampled(0.5, "fusion")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("fusion", SAMPLE, ids=lambda fusion: fusion.name)
def test_a_fusion_is_right(fusion: Operation, dtype: torch.dtype, target: torch.device) -> None:
    [shape] = fusion.small
    inputs = fusion.inputs(shape, Inputs(target, dtype=dtype))
    fusion.check(shape, inputs, fusion.definition(inputs, dtype).execute(inputs))


@pytest.mark.sampled(0.1)
@pytest.mark.parametrize("seed", range(20))
def test_fusions_at_drawn_sizes_types_and_layouts_are_right(seed: int, target: torch.device) -> None:
    at_small_sizes = [replace(fusion, shapes=fusion.small) for fusion in CATALOGUE]
    for fusion, shape in drawn_cases(seed, 3, at_small_sizes):
        inputs = fusion.inputs(shape, Inputs(target))
        fusion.check(shape, inputs, fusion.definition(inputs).execute(inputs))


def test_a_seed_draws_the_same_cases() -> None:
    first, second = ([(fusion.name, shape) for fusion, shape in drawn_cases(7, 5, SAMPLE)] for _ in range(2))
    assert first == second
    assert first != [(fusion.name, shape) for fusion, shape in drawn_cases(8, 5, SAMPLE)]


def test_names_are_unique() -> None:
    names = [fusion.name for fusion in CATALOGUE]
    assert len(set(names)) == len(names)


def test_a_wrong_element_is_found() -> None:
    [fusion] = selected(["rope_halves"], CATALOGUE)
    inputs = fusion.inputs(fusion.small[0], Inputs(torch.device("cpu")))
    made = fusion.reference(*inputs)
    assert fusion.check(fusion.small[0], inputs, [made]) <= 1
    made.view(-1)[7] += 0.25
    with pytest.raises(AssertionError, match="not close"):
        fusion.check(fusion.small[0], inputs, [made])


def test_few_float8_are_rounded_otherwise() -> None:
    [fusion] = selected(["float8_blocks"], CATALOGUE)
    inputs = fusion.inputs(fusion.small[0], Inputs(torch.device("cpu")))
    scale, rounded = fusion.reference(*inputs)

    def change(count: int, steps: int) -> list[torch.Tensor]:
        ordinary = torch.nonzero(rounded.float().view(-1).abs() == 80).view(-1)[:count]
        assert len(ordinary) == count
        bits = rounded.view(torch.uint8).view(-1).clone()
        bits[ordinary] += steps
        return [scale, bits.view(torch.float8_e4m3fn).view_as(rounded)]

    assert fusion.check(fusion.small[0], inputs, change(2, 1)) <= 1
    for count, steps in ((2, 2), (10, 1)):
        with pytest.raises(AssertionError, match="not close"):
            fusion.check(fusion.small[0], inputs, change(count, steps))


def test_a_wrong_index_is_found() -> None:
    [fusion] = selected(["argmax_last"], CATALOGUE)
    inputs = fusion.inputs((64, 64), Inputs(torch.device("cpu")))
    made = fusion.reference(*inputs)
    made[3] += 1
    with pytest.raises(AssertionError, match="not close"):
        fusion.check((64, 64), inputs, [made])


def test_small_shapes_stay_odd() -> None:
    assert small_shape((16384, 4095)) == (32, 63)
    assert small_shape((7, 17, 33, 63)) == (7, 9, 9, 15)


def test_the_summary_counts_what_is_slower() -> None:
    rows = [Row("gelu", (8,), 32, ours, None, 10.0, 9.0, 0.1, 0.5) for ours in (10.1, 10.3, 5.0)]
    assert summary(rows) == ("0.804 of torch.compile's time in geometric mean of 3; 1 slower by more than 2%")
