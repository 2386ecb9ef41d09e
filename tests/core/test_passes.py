"""The pass manager: order, times, dumps, and what is verified."""

from __future__ import annotations

import io

import pytest

from fusewright.core.errors import VerifyError
from fusewright.core.options import Options
from fusewright.core.passes import PassManager
from fusewright.core.tracing import SILENT, Tracer


def appended(word: str):
    return lambda text: text + word


class Checks:
    """A verifier that takes note of what it is shown, and refuses what contains "bad"."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, str]] = []

    def __call__(self, text: str, after: str) -> None:
        self.shown.append((text, after))
        if "bad" in text:
            raise VerifyError(level="text", after=after, problem="bad")


def test_passes_run_in_order_and_those_that_change_something_are_verified():
    verify, tracer = Checks(), Tracer()
    passes = (("a", appended("1")), ("b", lambda text: text), ("c", appended("2")))
    assert PassManager("kernel", passes, str, verify).run("0", tracer) == "012"
    assert verify.shown == [("01", "a"), ("012", "c")]
    assert list(tracer.to_dict()) == ["a", "b", "c"]


def test_a_fault_names_its_pass():
    manager = PassManager("kernel", (("a", appended("1")), ("b", appended("bad"))), str, Checks())
    with pytest.raises(VerifyError, match="after b"):
        manager.run("0")
    assert SILENT.stages == {}


def test_each_pass_is_dumped_if_it_is_asked_for():
    manager = PassManager("kernel", (("a", appended("1")), ("b", appended("2"))), str, Checks())
    for request, wanted in (("kernel", ["a", "b"]), ("kernel(b)", ["b"]), ("host", [])):
        stream = io.StringIO()
        manager.run("0", Tracer(Options.from_environment({"FUSEWRIGHT_DUMP": request}), stream))
        titles = [
            line.split(": ")[1].split(" ")[0] for line in stream.getvalue().splitlines() if ": " in line
        ]
        assert titles == wanted


def test_a_representation_that_passes_change_in_place_has_a_version():
    def grow(items: list[int]) -> list[int]:
        if len(items) < 2:
            items.append(0)
        return items

    seen: list[str] = []
    manager = PassManager(
        "rewrite", (("once", grow), ("twice", grow)), str, lambda items, after: seen.append(after), len
    )
    assert manager.run([1]) == [1, 0] and seen == ["once"]
