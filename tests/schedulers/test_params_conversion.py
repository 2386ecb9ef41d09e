"""Every params class to dicts and JSON and back, what constructors are given, and malformed dicts: errors
that have the whole path.
"""

from __future__ import annotations

import dataclasses
import enum
import re
import sys
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusewright import DataType, LaunchParams, ParallelType, PointwiseParams
from fusewright.core.errors import ParamsError
from fusewright.core.hardware import described
from fusewright.core.serialization import field_hints, from_dict, from_json, to_dict, to_json
from fusewright.schedulers import (
    Extent,
    HeuristicParams,
    ReductionParams,
    When,
    among,
    choice,
    counts,
    derived,
    launch,
    powers_of_two,
    unavailable,
)
from fusewright.schedulers.params import Decision, fields_of

H200 = described("h200")


@dataclass(frozen=True)
class Stage(Decision):
    depth: int = choice(1, powers_of_two(8))
    kind: ParallelType = ParallelType.unroll


@dataclass(frozen=True)
class UsersParams(HeuristicParams):
    """A user's own, with everything that a declaration may have."""

    lparams: LaunchParams = launch(bdimx=Extent(tried=(32, 64)))
    threads: int = choice(128, counts(1, lambda hardware: hardware.max_threads_per_block, (32, 128)))
    rows: int = choice(1, among(1, 2, 4), When(lambda params: params.threads < 128, "with so many threads"))
    share: float = 0.5
    order: tuple[ParallelType, ...] = ()
    stage: Stage = Stage()
    hint: str | int | None = None
    swizzle = unavailable(False, "as tiles are padded")

    @derived("threads", "rows")
    def block(self) -> int:
        return self.threads * self.rows


def _classes(cls: type = Decision) -> Iterator[Any]:
    for sub in cls.__subclasses__():
        # slots=True makes a class twice; the second is the one that its module has.
        is_own = sub.__module__.startswith(("fusewright.", __name__))
        if is_own and getattr(sys.modules[sub.__module__], sub.__name__) is sub:
            yield sub
        yield from _classes(sub)


CLASSES = list(dict.fromkeys(_classes()))


def test_every_class_of_the_package_is_found() -> None:
    names = {cls.__name__ for cls in CLASSES}
    assert {
        "HeuristicParams",
        "InnerOuterParams",
        "MatmulParams",
        "GemmTile",
        "UsersParams",
        "Stage",
    } <= names
    assert len(names) >= 18


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if issubclass(cls, HeuristicParams)])
def test_every_field_is_explained(cls: Any) -> None:
    """By the class that declares it: what a decision means is told where it is made."""
    fields = set(field_hints(cls))
    for base in cls.__mro__[1:]:
        fields -= set(field_hints(base)) if dataclasses.is_dataclass(base) else set()
    assert fields <= set(re.findall(r"\w+", cls.__doc__)) or cls.__module__ == __name__


# ---- there and back


def _values(hint: Any) -> st.SearchStrategy[Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(_values, arguments))
    if origin is tuple:
        if arguments[1:] == (...,):
            return st.lists(_values(arguments[0]), max_size=3).map(tuple)
        return st.tuples(*map(_values, arguments))
    if issubclass(hint, enum.Enum):
        return st.sampled_from(list(hint))
    if issubclass(hint, Decision):
        return _made(hint)
    plain = {
        bool: st.booleans(),
        int: st.integers(-(2**63), 2**63 - 1),
        float: st.floats(allow_nan=False),
        str: st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        types.NoneType: st.none(),
    }
    return plain[hint]


def _made(cls: Any) -> st.SearchStrategy[Any]:
    return st.builds(cls, **{name: _values(hint) for name, hint in field_hints(cls).items()})


@pytest.mark.parametrize("cls", CLASSES)
@settings(max_examples=10)
@given(data=st.data())
def test_round_trip(cls: Any, data: st.DataObject) -> None:
    params = data.draw(_made(cls))
    for again in (from_dict(cls, to_dict(params)), from_json(cls, to_json(params))):
        assert again == params and hash(again) == hash(params)
        assert to_dict(again) == to_dict(params)


def test_what_follows_may_be_in_a_dict() -> None:
    data = {"threads": 64, "rows": 2, "block": 128, "swizzle": False}
    assert from_dict(UsersParams, data) == UsersParams(threads=64, rows=2)
    for key, value, expected in (
        ("block", 64, "`block`: expected 128 as it follows from threads and rows, got 64"),
        ("swizzle", True, "`swizzle`: expected False as tiles are padded, got True"),
        ("swizzle", 1, "`swizzle`: expected bool, got 1"),
    ):
        with pytest.raises(ParamsError) as caught:
            from_dict(UsersParams, data | {key: value})
        assert caught.value.message == expected


# ---- what constructors are given


def test_constructors_convert_what_from_dict_does_and_refuse_the_rest() -> None:
    made = UsersParams(order=["grid_x"], share=1, stage={"depth": 4})  # type: ignore[arg-type]
    assert made == UsersParams(order=(ParallelType.grid_x,), share=1.0, stage=Stage(4))
    assert type(made.share) is float and hash(made)
    wrong: Any
    for cls, field, wrong, expected in (
        (PointwiseParams, "vectorization_factor", "2", "`vectorization_factor`: expected int, got '2'"),
        (PointwiseParams, "vectorization_factor", True, "`vectorization_factor`: expected int, got True"),
        (PointwiseParams, "unroll_factor_inner", 2.0, "`unroll_factor_inner`: expected int, got 2.0"),
        (PointwiseParams, "flip_grid_binding", 1, "`flip_grid_binding`: expected bool, got 1"),
        (PointwiseParams, "assumed_sizes", (3, "4"), "`assumed_sizes[1]`: expected int, got '4'"),
        (PointwiseParams, "lparams", 128, "`lparams`: expected the fields of LaunchParams, got 128"),
        (PointwiseParams, "lparams", {"bdimx": "64"}, "`lparams.bdimx`: expected int, got '64'"),
        (LaunchParams, "bdimx", None, "`bdimx`: expected int, got None"),
        (UsersParams, "stage", {"kind": "x"}, "`stage.kind`: expected one of mesh_x, "),
    ):
        with pytest.raises(ParamsError) as caught:
            cls(**{field: wrong})
        assert caught.value.message.startswith(expected)
        with pytest.raises(ParamsError) as caught:  # also where the first was fine
            dataclasses.replace(cls(), **{field: wrong})
        assert caught.value.message.startswith(expected)
    assert LaunchParams(1, 2, 3, 4, 5, 6) == LaunchParams(
        gdimx=1, gdimy=2, gdimz=3, bdimx=4, bdimy=5, bdimz=6
    )


def test_a_class_of_a_function_is_checked_as_far_as_its_types_are_known() -> None:
    class Mode(enum.Enum):
        fast = 0

    @dataclass(frozen=True, slots=True)
    class Local(HeuristicParams):
        mode: Mode = Mode.fast
        threads: int = 32

    assert from_dict(Local, {"threads": 64, "mode": Mode.fast}) == Local(threads=64)
    with pytest.raises(ParamsError, match="`threads`: expected int, got '64'"):
        Local(threads="64")  # type: ignore[arg-type]


# ---- malformed dicts

WRONG: dict[Any, list[Any]] = {
    bool: [1, "True", None, {}],
    int: ["2", True, 1.5, None, [], {"value": 1}],
    str: [1, None, []],
    float: ["1", None, {}],
}


def _wrong(hint: Any) -> list[Any]:
    if hint in WRONG:
        return WRONG[hint]
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return ["no_such_member", 3, None, ["serial"]]
    if isinstance(hint, type) and issubclass(hint, Decision):
        return [3, "x", None, [{}]]
    return [object(), {"x": 1}, ["no", object()], 1.5]


def _is_decision(field: Any) -> bool:
    """Whether its value is a parameter object itself."""
    return isinstance(field.hint, type) and issubclass(field.hint, Decision)


def _malformed(cls: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Paths, and dicts that have something wrong there."""
    first = fields_of(cls)[0].name
    for unknown in (first + "s", "zzz", 3):
        yield f"{path}{unknown}", {unknown: 1}
    for field in fields_of(cls):
        for value in _wrong(field.hint):
            yield f"{path}{field.name}", {field.name: value}
        if _is_decision(field):
            for inner, data in _malformed(field.hint, f"{path}{field.name}."):
                yield inner, {field.name: data}


TYPED = [(cls, path, data) for cls in CLASSES for path, data in _malformed(cls)]


def test_a_malformed_dict_is_refused_with_the_path() -> None:
    assert len(TYPED) > 1000
    for cls, path, data in TYPED:
        with pytest.raises(ParamsError) as caught:
            from_dict(cls, data)
        found = str(caught.value.facts["path"])
        assert found == path or found.startswith(f"{path}["), (cls, data)
        assert f"`{found}`" in caught.value.message


def _out_of_range(cls: Any) -> Iterator[tuple[str, Any]]:
    for field in fields_of(cls):
        values = [-(10**9)] if field.hint is int else []
        if field.legal is not None and getattr(field.legal, "high", getattr(field.legal, "limit", None)):
            values.append(10**12)
        yield from ((field.name, {field.name: value}) for value in values)
        if _is_decision(field):
            for path, data in _out_of_range(field.hint):
                yield f"{field.name}.{path}", {field.name: data}


def test_a_value_out_of_range_is_refused_with_the_path() -> None:
    checked = 0
    for cls in CLASSES:
        for path, data in _out_of_range(cls):
            with pytest.raises(ParamsError) as caught:
                from_dict(cls, data).validate(H200)
            assert caught.value.facts["path"] == path, (cls, data)
            assert f"`{path}`" in caught.value.message
            checked += 1
    assert checked > 150


@pytest.mark.parametrize("cls, data, text", [
    (PointwiseParams, {"lparams": {"blockdimx": 64}},
     "`lparams.blockdimx`: unknown; did you mean bdimx?\n"
     "  expected: one of gdimx, gdimy, gdimz, bdimx, bdimy, bdimz\n  given: the name 'blockdimx'"),
    (PointwiseParams, {"lparams": {"bdimx": "64"}}, "`lparams.bdimx`: expected int, got '64'."),
    (PointwiseParams, {"vectorisation_factor": 4}, "`vectorisation_factor`: unknown; did you mean vector"),
    (PointwiseParams, {"cparams": {"index_type": "Integer"}}, "`cparams.index_type`: expected one of Doub"),
    (ReductionParams, {"cross_grid_inner_reduction": True},
     "`cross_grid_inner_reduction`: expected False as it follows from lparams.gdimy, got True."),
    (ReductionParams, {"flip_grid": True},
     "`flip_grid`: expected False as no scheduler does that yet, got True."),
    (ReductionParams, {"block_dim_inner_reduction": "block_w"}, "`block_dim_inner_reduction`: expected one "),
])  # fmt: skip
def test_messages(cls: Any, data: dict[str, Any], text: str) -> None:
    with pytest.raises(ParamsError) as caught:
        from_dict(cls, data)
    assert str(caught.value).startswith(text)


# ---- limits that the GPU decides


def test_limits_are_those_of_the_gpu() -> None:
    small = dataclasses.replace(H200, max_threads_per_block=256, max_block=(256, 256, 64), max_grid=(8, 4, 4))
    params = PointwiseParams(lparams=LaunchParams(bdimx=512))
    params.validate(H200)
    with pytest.raises(ParamsError, match=r"`lparams\.bdimx`: expected 1 to 256, or -1, got 512"):
        params.validate(small)
    with pytest.raises(ParamsError, match="`threads`: expected 1 to 256, got 512"):
        UsersParams(threads=512).validate(small)
    with pytest.raises(ParamsError, match="`rows`: expected 1 with so many threads, got 2"):
        UsersParams(rows=2).validate(H200)
    with pytest.raises(ParamsError, match=r"`bdimx \* bdimy \* bdimz`: expected at most 256, got 512"):
        LaunchParams(bdimx=256, bdimy=2).validate(small)
    with pytest.raises(ParamsError, match=r"`index_type`: expected None or Int or Int32, got Float"):
        HeuristicParams(cparams={"index_type": DataType.Float}).cparams.validate(H200)  # type: ignore[arg-type]
