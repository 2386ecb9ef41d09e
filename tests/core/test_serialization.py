"""Params to dicts and JSON and back; errors name the path of the field."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from fusewright.core.dtype import DataType
from fusewright.core.enums import ParallelType
from fusewright.core.errors import ParamsError
from fusewright.core.serialization import from_dict, from_json, to_dict, to_json
from fusewright.schedulers import CompileParams, LaunchParams, PointwiseParams, ReductionParams


@dataclass(frozen=True)
class Tile:
    m: int = 128
    n: int = 64


@dataclass(frozen=True)
class Tiles:
    cta_tile: Tile = Tile()
    sizes: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Params:
    tile_sizes: Tiles = Tiles()
    block: ParallelType = ParallelType.serial
    index: DataType | None = None
    fast: bool = False


CHANGED = Params(Tiles(Tile(1, 2), [3, 4]), ParallelType.block_y, DataType.Int32, True)


@pytest.mark.parametrize(
    "params",
    [
        CHANGED,
        Params(),
        PointwiseParams(break_point=2, cparams=CompileParams(index_type=DataType.Int), reason="because"),
        ReductionParams(lparams=LaunchParams(bdimx=32), grid_dim_iter_dom=ParallelType.grid_y),
    ],
    ids=lambda p: type(p).__name__,
)
def test_round_trip(params):
    assert from_dict(type(params), to_dict(params)) == params
    assert from_json(type(params), to_json(params)) == params


def test_enumerations_are_written_by_name_and_read_with_or_without_their_class():
    assert to_dict(CHANGED)["block"] == "block_y"
    for given in ("block_y", "ParallelType.block_y", ParallelType.block_y):
        assert from_dict(Params, {"block": given}).block is ParallelType.block_y


def test_absent_fields_take_defaults():
    assert from_dict(Params, {"tile_sizes": {"cta_tile": {"m": 7}}}) == replace(
        Params(), tile_sizes=Tiles(Tile(7))
    )


@pytest.mark.parametrize(
    "data, text",
    [
        ({"tile_sizes": {"cta_tile": {"m": "8"}}}, "`tile_sizes.cta_tile.m`: expected int, got '8'"),
        ({"tile_sizes": {"sizes": [1, "2"]}}, "`tile_sizes.sizes[1]`: expected int"),
        ({"tile_sizes": 3}, "`tile_sizes`: expected the fields of Tiles, got 3"),
        ({"tile_sizes": {"depth": 1}}, "`tile_sizes.depth`: expected one of cta_tile, sizes"),
        ({"block": "block_w"}, "`block`: expected one of "),
        ({"index": "Integer"}, "`index`: expected one of "),
        ({"fast": 1}, "`fast`: expected bool, got 1"),
    ],
)
def test_errors_name_the_path(data, text):
    with pytest.raises(ParamsError) as error:
        from_dict(Params, data)
    assert text in str(error.value)


def test_text_that_is_no_json():
    with pytest.raises(ParamsError, match="expected JSON"):
        from_json(Params, "{block:")
