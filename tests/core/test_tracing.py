"""The tracer: nesting of stages, dumps on demand, and silence otherwise."""

import io
import threading

import pytest

from fusewright.core.errors import OptionError
from fusewright.core.options import Options
from fusewright.core.tracing import Tracer


def test_stages_nest_and_add_up() -> None:
    tracer = Tracer()
    for _ in range(2):
        with tracer.stage("lower"), tracer.stage("index"):
            pass
    times = tracer.to_dict()
    assert list(times) == ["lower", "lower/index"]
    assert times["lower/index"]["count"] == 2
    assert times["lower"]["seconds"] >= times["lower/index"]["seconds"] > 0
    first, second = tracer.table().splitlines()
    assert first.startswith("lower") and second.startswith("  index") and second.endswith("x2")


def test_a_stage_that_raises_is_closed() -> None:
    tracer = Tracer()
    with pytest.raises(ValueError), tracer.stage("a"):
        raise ValueError
    with tracer.stage("b"):
        pass
    assert list(tracer.to_dict()) == ["a", "b"]


def test_threads_nest_apart() -> None:
    tracer = Tracer()

    def compile_one() -> None:
        with tracer.stage("nvrtc"):
            pass

    with tracer.stage("schedule"):
        thread = threading.Thread(target=compile_one)
        thread.start()
        thread.join()
    assert set(tracer.to_dict()) == {"schedule", "nvrtc"}


def test_dumps_print_only_what_was_asked_for() -> None:
    stream = io.StringIO()
    tracer = Tracer(Options(dump=(("kernel", ("index",)), ("cuda", ()))), stream)
    tracer.dump("kernel", "skipped", title="unroll")
    tracer.dump("kernel", "loops", title="index")
    tracer.dump("cuda", lambda: "void k();\n")
    tracer.dump("fusion", lambda: pytest.fail("a text that nobody wants must not be made"))
    assert stream.getvalue() == (
        "==== fusewright kernel: index ====\nloops\n\n==== fusewright cuda ====\nvoid k();\n\n"
    )


def test_a_misspelt_stage_is_an_error() -> None:
    with pytest.raises(OptionError, match="cudaa"):
        Tracer().dump("cudaa", "")


def test_without_timing_nothing_is_kept() -> None:
    tracer = Tracer(timing=False)
    with tracer.stage("a"):
        pass
    assert tracer.to_dict() == {}
