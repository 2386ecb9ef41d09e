"""One name for one thing: in everything that prints, and in the errors of each layer."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition, ParallelType
from fusewright.core.errors import FusewrightError, InputDtypeError, ScheduleError


class Scaled(FusionDefinition):
    """softmax of x, scaled by a number that is not of its type, and the sums of that."""

    def definition(self) -> None:
        x = self.define_tensor([-1, -1], contiguity=True)
        scale = self.define_scalar(DataType.Double)
        columns = self.define_scalar(DataType.Int)
        weights = self.ops.softmax(x, 1)
        self.add_output(self.ops.sum(weights * scale, [1]) / columns)


class Copied(FusionDefinition):
    def definition(self) -> None:
        x = self.define_tensor([8, 8], contiguity=True)
        y = self.ops.exp(x)
        z = self.ops.neg(y)
        self.add_output(z)


def _line(function: Callable[..., object], text: str) -> str:
    """Where a line of a function stands."""
    lines, first = inspect.getsourcelines(function)
    offset = next(i for i, line in enumerate(lines) if text in line)
    return f"{__file__}:{first + offset}"


def test_one_definition_in_all_prints(golden: Callable[[str, str], None]) -> None:
    fd = Scaled()
    fd.execute([torch.randn(4, 64), 2.0, 64])
    (mapping,) = re.findall(r"// where .*", fd.last_cuda_code())
    scheduled = re.sub(r"\[[^]]*\]( (ca|produce)_pos\([^)]*\))*", "", fd.last_scheduled_fusion_ir())
    golden("frontend/names", "\n".join([repr(fd), fd.fusion_ir(), scheduled, mapping, ""]))


def _schedule(fd: FusionDefinition, primitives: Callable[[Any, dict[int, Any]], None]) -> str:
    """The error of executing a definition with this schedule."""
    fd.schedule = lambda: primitives(fd.sched, {t.index: t for t in fd.sched.tensors()})  # type: ignore[method-assign]
    with pytest.raises(ScheduleError) as caught:
        fd.execute([torch.randn(8, 8)])
    return str(caught.value)


def test_a_primitive_that_cannot_be_applied() -> None:
    text = _schedule(Copied(), lambda sched, t: sched.split(t[2], 7, 4))
    assert text.splitlines()[1:3] == [
        f"  T2 = fd.ops.neg(T1) at {_line(Copied.definition, 'ops.neg')}",
        "  in fd.sched.split(T2, 7, 4)",
    ]


def unlike_bindings(sched: Any, t: dict[int, Any]) -> None:
    sched.parallelize(t[1], 0, ParallelType.block_x)
    sched.parallelize(t[2], 1, ParallelType.block_x)


def vectors_of_what_is_far_apart(sched: Any, t: dict[int, Any]) -> None:
    copy = sched.cache_after(t[0])
    sched.split(copy, 0, 4)
    sched.reorder(copy, {1: 2})
    sched.parallelize(copy, 2, ParallelType.vectorize)
    sched.parallelize(t[2], 0, ParallelType.grid_x)


@pytest.mark.parametrize(
    "schedule, named, primitive, line",
    [
        (unlike_bindings, "T1", "parallelize(T1, 0, ParallelType.block_x)", "t[1]"),
        (
            vectors_of_what_is_far_apart,
            "T0_copy",
            "parallelize(T0_copy, 2, ParallelType.vectorize)",
            "vectorize)",
        ),
    ],
)
def test_an_error_of_lowering_names_the_primitive(
    schedule: Callable[[Any, dict[int, Any]], None], named: str, primitive: str, line: str
) -> None:
    text = _schedule(Copied(), schedule)
    assert re.search(rf"\b{named}\b", text.splitlines()[0]), text
    assert f"\n  caused by fd.sched.{primitive} at {_line(schedule, line)}\n" in text


def test_no_primitive_is_blamed_for_what_the_fusion_alone_leads_to() -> None:
    fd = Scaled()
    fd.schedule = lambda: None  # type: ignore[method-assign]
    with pytest.raises(ScheduleError, match="T3_exp is in registers") as caught:
        fd.execute([torch.randn(4, 64), 2.0, 64])
    assert caught.value.primitive is None
    assert f"T3 = fd.ops.softmax(T0, dim=1, dtype=DataType.Null) at {__file__}:" in str(caught.value)


def test_an_input_that_does_not_fit() -> None:
    fd = Scaled()
    with pytest.raises(InputDtypeError, match="input 0, T0") as caught:
        fd.execute([torch.randn(4, 64).double(), 2.0, 64])
    assert f" at {_line(Scaled.definition, 'define_tensor')}\n" in str(caught.value)


def test_what_asks_a_definition_shows_its_lines_too() -> None:
    fd, inputs = Scaled(), [torch.randn(4, 64).double(), 2.0, 64]
    for ask in (fd.kernels_for, fd.segment):
        with pytest.raises(FusewrightError, match="T0") as caught:
            ask(inputs)
        assert f" at {_line(Scaled.definition, 'define_tensor')}\n" in str(caught.value)


def test_lines_belong_to_the_definition_that_was_written() -> None:
    """Equal definitions share a leaf of the cache, and not the places where they were written."""

    def written(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1], contiguity=True)
        fd.add_output(fd.ops.exp(x))

    with FusionDefinition() as first:
        written(first)
    with FusionDefinition() as second:
        x = second.define_tensor([-1], contiguity=True)
        second.add_output(second.ops.exp(x))
    assert first.id() == second.id()
    places = []
    for fd in (second, first, FusionDefinition(id=first.id())):
        with pytest.raises(FusewrightError) as caught:
            fd.execute([torch.randn(2, 2)])
        (origin,) = caught.value.origins
        places.append(origin.partition(" at ")[2])
    mine = _line(test_lines_belong_to_the_definition_that_was_written, "= second.define_tensor")
    assert places == [mine, _line(written, "fd.define_tensor"), ""]
