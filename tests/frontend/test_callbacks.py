"""Functions and classes that users write: what they take, and what they forget."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.core.errors import ArgumentTypeError, DefinitionError


def _doubled() -> FusionDefinition:
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1]) * 2.0)
    return fd


class _Takes(FusionDefinition):
    def definition(self, x: Any) -> None:  # type: ignore[override]
        self.add_output(x)


def _scheduled(schedule: Any) -> None:
    fd = _doubled()
    fd.schedule = schedule  # type: ignore[method-assign]
    fd.execute([torch.ones(4)])


WRONG = {
    "schedule": (
        lambda: _scheduled(lambda fd: None),
        r"fd.schedule\(\): .* a function without arguments, got one of \(fd\)",
    ),
    "schedules": (
        lambda: _doubled().execute([torch.ones(4)], schedules={0: lambda: None}),
        r"schedules\[0\]\(\): .* a function of \(fd\), got one of \(\)",
    ),
    "definition": (
        lambda: _Takes().execute([torch.ones(4)]),
        r"_Takes.definition\(\): .* a function without arguments, got one of \(x: 'Any'\)",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_functions_that_take_something_else(case: str) -> None:
    call, says = WRONG[case]
    with pytest.raises(ArgumentTypeError, match=says) as caught:
        call()
    assert "test_callbacks.py" in str(caught.value)


def test_an_error_of_the_users_own_function_is_the_users() -> None:
    def schedule() -> None:
        raise TypeError("mine")

    with pytest.raises(TypeError, match=r"^mine$"):
        _scheduled(schedule)


def test_a_subclass_that_does_not_call_the_constructor() -> None:
    class Forgets(FusionDefinition):
        def __init__(self) -> None:
            pass

        def definition(self) -> None:
            self.add_output(self.define_tensor([-1]))

    for use in (
        lambda fd: fd.execute([torch.ones(4)]),
        lambda fd: fd.ops,
        lambda fd: fd.__enter__(),
        lambda fd: fd.fusion_ir(),
    ):
        with pytest.raises(
            DefinitionError, match=r"Forgets.__init__ has not called FusionDefinition.__init__"
        ):
            use(Forgets())
    with pytest.raises(AttributeError, match="'FusionDefinition' object has no attribute 'nope'"):
        getattr(_doubled(), "nope")  # noqa: B009 (mypy knows that there is none)
