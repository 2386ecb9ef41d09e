"""Params to dicts and JSON and back; errors name the path of the field."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True)
class Odd:
    """Every container of enumerations and dataclasses that a third party's params may hold."""

    types: tuple[ParallelType, ...] = ()
    pair: tuple[ParallelType, int] = (ParallelType.serial, 0)
    nested: list[tuple[DataType, ...]] = field(default_factory=list)
    optional: tuple[ParallelType, ...] | None = None
    either: DataType | int | str = 0
    unions: list[ParallelType | None] = field(default_factory=list)
    by_axis: dict[ParallelType, int] = field(default_factory=dict)
    by_name: Mapping[str, ParallelType] = field(default_factory=dict)
    by_size: dict[int, list[DataType]] = field(default_factory=dict)
    kinds: frozenset[DataType] = frozenset()
    sequence: Sequence[DataType] = ()
    tiles: tuple[Tile, ...] = ()
    tile: Tile | None = None
    limit: float = 0.0


ODD = Odd(
    types=(ParallelType.block_x, ParallelType.vectorize),
    pair=(ParallelType.unroll, 3),
    nested=[(DataType.Half, DataType.Int), ()],
    optional=(ParallelType.grid_x,),
    either=DataType.Float,
    unions=[None, ParallelType.mma],
    by_axis={ParallelType.block_y: 4},
    by_name={"rows": ParallelType.grid_y},
    by_size={8: [DataType.Double]},
    kinds=frozenset({DataType.Half, DataType.Bool}),
    sequence=(DataType.Int32,),
    tiles=(Tile(1, 2), Tile()),
    tile=Tile(3),
    limit=math.inf,
)


@pytest.mark.parametrize(
    "params",
    [
        CHANGED,
        Params(),
        ODD,
        Odd(),
        PointwiseParams(break_point=2, cparams=CompileParams(index_type=DataType.Int), reason="because"),
        ReductionParams(lparams=LaunchParams(bdimx=32), fastest_dim=True),
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
        ({"tile_sizes": {"depth": 1}}, "`tile_sizes.depth`: unknown.\n  expected: one of cta_tile, sizes"),
        ({"block": "block_w"}, "`block`: expected one of "),
        ({"index": "Integer"}, "`index`: expected one of "),
        ({"fast": 1}, "`fast`: expected bool, got 1"),
    ],
)
def test_errors_name_the_path(data, text):
    with pytest.raises(ParamsError) as error:
        from_dict(Params, data)
    assert text in str(error.value)


@pytest.mark.parametrize(
    "data, text",
    [
        ({"types": ["block_x", "block_w"]}, "`types[1]`: expected one of mesh_x, "),
        ({"types": "block_x"}, "`types`: expected array, got 'block_x'"),
        ({"pair": ["serial"]}, "`pair`: expected array of length 2"),
        ({"pair": ["serial", "3"]}, "`pair[1]`: expected int, got '3'"),
        ({"nested": [["Half"], ["Int", 3]]}, "`nested[1][1]`: expected one of Double, "),
        ({"optional": ["serial", 1]}, "`optional[1]`: expected one of mesh_x, "),
        ({"unions": [None, "no"]}, "`unions[1]`: expected one of mesh_x, "),
        ({"either": 1.5}, "or int or str, got 1.5"),
        ({"by_axis": {"block_w": 1}}, "`by_axis`: expected one of mesh_x, "),
        ({"by_axis": {"block_x": "1"}}, "`by_axis[block_x]`: expected int, got '1'"),
        ({"by_size": {"8": ["Half", "Whole"]}}, "`by_size[8][1]`: expected one of Double, "),
        ({"by_size": {"eight": []}}, "`by_size`: expected int, got 'eight'"),
        ({"tiles": [{}, {"m": "1"}]}, "`tiles[1].m`: expected int, got '1'"),
        ({"tiles": [3]}, "`tiles[0]`: expected the fields of Tile, got 3"),
        ({"tile": {"k": 1}}, "`tile.k`: unknown.\n  expected: one of m, n\n  given: the name 'k'"),
    ],
)
def test_errors_name_the_path_within_containers(data, text):
    with pytest.raises(ParamsError) as error:
        from_dict(Odd, data)
    assert text in str(error.value)


def test_field_without_default():
    @dataclass(frozen=True)
    class Needs:
        axis: ParallelType

    with pytest.raises(ParamsError, match="`axis`: expected a value, got none"):
        from_dict(Needs, {})


def test_text_that_is_no_json():
    with pytest.raises(ParamsError, match="expected JSON"):
        from_json(Params, "{block:")
