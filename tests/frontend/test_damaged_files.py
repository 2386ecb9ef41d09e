"""Files of definitions and of params that someone changed: the right result, or an error of the project's."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusewright import DataType, FusionCache, FusionDefinition
from fusewright.core.errors import ArgumentTypeError, DefinitionError, ParamsError
from fusewright.core.serialization import from_json, to_json
from fusewright.schedulers.params import PointwiseParams, ReductionParams

MUTATIONS = 800


def _file(path: Path) -> Any:
    """A file with every kind of argument."""
    FusionCache.reset()
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 4, 1], contiguity=[True, True, None], stride_order=[2, 1, 0])
        s = fd.define_scalar(DataType.Double)
        y = fd.ops.add(x, 1.5) * s * complex(float("nan"), -0.0)
        z = fd.ops.full([2, fd.ops.size(x, 0)], 2, DataType.Int)
        fd.add_output(fd.ops.sum(fd.ops.cast(y, DataType.Bool), [0, -1], keepdim=True, dtype=DataType.Int32))
        fd.add_output(z)
    with FusionDefinition() as fd:
        a, b = fd.define_tensor([-1]), fd.define_tensor([-1])
        fd.add_output(fd.ops.where(a > b, a, 0.25))
        fd.add_output(a * 2.0, alias_input=b)
    FusionCache.get().serialize(str(path))
    return json.loads(path.read_text())


JUNK = [
    None, True, -1, 0, 1, 99, 2**70, 1.5, "", "x", "ref", "0x1p99999", "nan", [], {}, [[]], [[[[[[[[1]]]]]]]],
    {"ref": -1}, {"ref": 0}, {"ref": 1000}, {"ref": True}, {"ref": "0"}, {"ref": 1.0}, {"ref": None},
    {"float": "abc"}, {"float": "0x1p99999"}, {"float": 1.5}, {"float": None}, {"float": "1"}, {"int": True},
    {"int": 1.0}, {"int": 2**70}, {"int": -1}, {"bool": 1}, {"str": 1}, {"NoneType": 0}, {"NoneType": None},
    {"complex": []}, {"complex": "ab"}, {"complex": ["nan", "x"]}, {"DataType": "Null"}, {"DataType": 3},
    {"DataType": ["Float"]}, {"type": "int"}, {"ref": 0, "int": 1}, "add_output", "define_tensor",
]  # fmt: skip


def _places(data: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of nested data."""
    keys = data.keys() if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    return [place for key in keys for place in ((data, key), *_places(data[key]))]


def _mutated(data: Any, draw: random.Random) -> Any:
    data = copy.deepcopy(data)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        places = _places(data)
        container, key = draw.choice(places)
        match draw.randrange(5):
            case 0:
                del container[key]
            case 1:
                other, name = draw.choice(places)
                container[key] = copy.deepcopy(other[name]) if name in _keys(other) else None
            case 2 if isinstance(container, list):
                container.insert(key, copy.deepcopy(draw.choice(JUNK)))
            case 3 if isinstance(container, dict):
                container[draw.choice(("ref", "int", "float", "format", "x"))] = container.pop(key)
            case _:
                container[key] = copy.deepcopy(draw.choice(JUNK))
        if not _places(data):
            break
    return data


def _keys(container: Any) -> Any:
    return container if isinstance(container, dict) else range(len(container))


def _loads(path: Path, text: str | bytes) -> bool:
    """Whether the file is taken; then all of it is, and it is written again as it was read."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    FusionCache.reset()
    cache = FusionCache.get()
    try:
        cache.deserialize(str(path))
    except DefinitionError as error:
        assert "no serialized definitions" in str(error)
        assert cache.num_fusions() == 0 and not cache.root.children
        return False
    assert all(repr(d.records) and str(d.fusion) for d in cache._definitions.values())
    cache.serialize(str(path))
    again = json.loads(path.read_text())
    FusionCache.reset()
    FusionCache.get().deserialize(str(path))
    FusionCache.get().serialize(str(path))
    assert json.loads(path.read_text()) == again
    return True


def test_mutated_data(tmp_path: Path) -> None:
    path, draw = tmp_path / "definitions.json", random.Random(6)
    data = _file(path)
    taken = [_loads(path, json.dumps(_mutated(data, draw))) for _ in range(MUTATIONS)]
    assert MUTATIONS // 100 < sum(taken) < MUTATIONS // 2  # some change nothing that matters


def test_mutated_text(tmp_path: Path) -> None:
    path, draw = tmp_path / "definitions.json", random.Random(7)
    _file(path)
    original = path.read_bytes()
    for _ in range(MUTATIONS):
        text = bytearray(original)
        start = draw.randrange(len(text))
        text[start : start + draw.choice((0, 1, 1, 2, 50))] = bytes(
            draw.choice(b'0123456789[]{}",:-xefnul\x00\xff\\ ') for _ in range(draw.randrange(3))
        )
        _loads(path, bytes(text))


@pytest.mark.parametrize("load", ["definitions", "params"])
@pytest.mark.parametrize(
    "text",
    ["", "null", "[" * 100_000, '{"a":' * 100_000, "9" * 10_000, "1e999", "[" * 900 + "]" * 900, "\ud800"],
    ids=["empty", "null", "open", "objects", "digits", "inf", "deep", "surrogate"],
)
def test_text_that_is_no_file(load: str, text: str, tmp_path: Path) -> None:
    if load == "params":
        with pytest.raises(ParamsError):
            from_json(PointwiseParams, text)
    else:
        assert not _loads(tmp_path / "f", text.encode(errors="surrogatepass"))


def test_deeply_nested_arguments(tmp_path: Path) -> None:
    path = tmp_path / "f"
    data = _file(path)
    for depth in (5, 50, 500, 900):
        nested: Any = {"int": 1}
        for _ in range(depth):
            nested = [nested]
        data["definitions"][0][0][1][0] = nested
        assert not _loads(path, json.dumps(data))


@pytest.mark.parametrize("params", [PointwiseParams, ReductionParams])
def test_mutated_params(params: Callable[[], Any]) -> None:
    draw, data = random.Random(8), json.loads(to_json(params()))
    for _ in range(MUTATIONS // 2):
        try:
            read = from_json(type(params()), json.dumps(_mutated(data, draw)))
        except ParamsError:
            continue
        assert from_json(type(params()), to_json(read)) == read
    for wrong in (None, 3, b"\xff", ["a"]):
        with pytest.raises(ParamsError):
            from_json(type(params()), wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["/dev/zero", "/dev"])
def test_what_is_no_file_is_not_read(given: str) -> None:
    with pytest.raises(DefinitionError, match=f"{given} is no file"):
        FusionCache.get().deserialize(given)


@pytest.mark.parametrize("given", [None, 5, b"kept.json"])
def test_what_names_no_file(given: Any) -> None:
    cache = FusionCache.get()
    for function in (cache.serialize, cache.deserialize):
        with pytest.raises(ArgumentTypeError, match=rf"{function.__name__}\(\).*filename: str or a path"):
            function(given)


def test_a_file_that_cannot_be_written_anew_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "definitions.json"
    _file(path)
    before, write = path.read_text(), Path.write_text

    def full(self: Path, text: str, *args: Any, **kwargs: Any) -> int:
        write(self, text[:20], *args, **kwargs)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        FusionCache.get().serialize(path)
    assert path.read_text() == before and [*tmp_path.iterdir()] == [path]
