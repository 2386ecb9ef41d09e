"""The points that sweeps and tuning try: legal, deterministic, spread over all fields."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fusewright import (
    CompileParams,
    InnerOuterParams,
    LaunchParams,
    MatmulParams,
    PointwiseParams,
    ReductionParams,
    ScanParams,
    TransposeParams,
)
from fusewright.core.hardware import described
from fusewright.schedulers import Extent, HeuristicParams, When, choice, counts, launch, powers_of_two
from fusewright.schedulers.params.space import space

H200 = described("h200")
HELD = ReductionParams(fastest_dim=True, persistent_kernel=True)
BASES = [
    PointwiseParams(),
    TransposeParams(),
    ScanParams(fastest_dim=False),
    InnerOuterParams(),
    ReductionParams(fastest_dim=True),
    ReductionParams(),
    HELD,
    MatmulParams(),
]


@dataclass(frozen=True)
class Small(HeuristicParams):
    lparams: LaunchParams = launch(bdimx=Extent(tried=(32, 64), required=lambda params: True))
    width: int = choice(1, powers_of_two(4))
    turned: bool = False
    rows: int = choice(1, counts(1, tried=(1, 2)), When(lambda params: params.turned, "unless turned"))
    given: int = 7


@pytest.mark.parametrize("base", BASES, ids=lambda base: type(base).__name__)
def test_a_sample_is_legal_distinct_and_the_same_again(base: Any) -> None:
    sample = list(base.space(H200, base=base, points=50, seed=3))
    assert len(sample) == len(set(sample)) == 50
    for params in sample:
        params.validate(H200)
        assert params.cparams == base.cparams
        assert getattr(params, "fastest_dim", None) == getattr(base, "fastest_dim", None)
    assert sample == list(base.space(H200, base=base, points=50, seed=3))
    assert sample != list(base.space(H200, base=base, points=50, seed=4))


def test_a_sample_is_spread_over_the_values_of_a_field() -> None:
    sample = list(PointwiseParams.space(H200, points=100))
    for name, values in (("vectorization_factor", 5), ("break_point", 3), ("unroll_factor_inner", 5)):
        found = Counter(getattr(params, name) for params in sample)
        assert len(found) == values and min(found.values()) >= 100 // values // 3, found


def test_all_points_where_they_are_fewer() -> None:
    # Two extents, three widths; two rows where it is turned, one where not.
    every = list(Small.space(H200))
    assert len(set(every)) == len(every) == 2 * 3 * 3
    assert set(Small.space(H200, points=1000)) == set(every)
    assert len(set(Small.space(H200, points=17))) == 17


def test_the_base_has_what_is_not_varied_and_its_own_values_are_tried() -> None:
    base = Small(given=9, width=4, rows=3, turned=True, cparams=CompileParams(maxrregcount=40))
    every = set(Small.space(H200, base=base))
    assert {params.given for params in every} == {9}
    assert {params.cparams.maxrregcount for params in every} == {40}
    assert replace(base, lparams=LaunchParams(bdimx=32)) in every
    assert len(every) == 2 * 3 * 4


def test_a_space_follows_the_gpu() -> None:
    small = replace(H200, max_threads_per_block=64, max_block=(64, 64, 64))
    assert {p.lparams.bdimx for p in PointwiseParams.space(small, points=40)} <= {32, 64}
    assert all(p.cluster_dims.m == 1 for p in MatmulParams.space(described("a100"), points=20))
    assert list(space(LaunchParams(), H200, 5, 0))
