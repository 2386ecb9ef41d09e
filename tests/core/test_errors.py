"""The exceptions: their base classes (which callers catch), their text, and where they say the mistake is."""

import pickle
import sys
import warnings
from dataclasses import replace

import pytest

from fusewright import DataType, FusionDefinition
from fusewright.core import errors
from fusewright.core.errors import (
    ArgumentTypeError,
    CompileError,
    DtypeError,
    FusewrightError,
    InputDtypeError,
    InputError,
    RaceError,
    RejectedError,
    ShapeError,
    UnsupportedDeviceError,
    UserError,
    user_location,
)
from fusewright.core.options import Options


def _all_errors() -> list[type[errors.FusewrightError]]:
    return [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.FusewrightError)
    ]


def test_every_error_but_the_base_is_a_runtime_error_as_callers_of_nvfuser_expect() -> None:
    for kind in _all_errors():
        assert kind is errors.FusewrightError or issubclass(kind, RuntimeError), kind


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (ArgumentTypeError, TypeError),
        (errors.MissingDefinitionError, NotImplementedError),
        (UnsupportedDeviceError, ValueError),
        (errors.ProfileError, ValueError),
        (errors.ExecutionOrderError, AssertionError),
    ],
)
def test_builtin_bases(kind: type, builtin: type) -> None:
    assert issubclass(kind, builtin)


def test_template_is_filled_with_the_facts() -> None:
    error = InputDtypeError(index=0, name="T0", expected="float", given="__half")
    assert (
        "Expected input 0, T0, to be bound to a tensor of dtype float, but got a tensor of dtype __half"
        in str(error)
    )
    assert error.facts["given"] == "__half"
    assert isinstance(error, InputError) and isinstance(error, DtypeError)
    assert "Scheduler _pointwise_ ***rejected*** because : no reference" in str(
        RejectedError(scheduler="pointwise", reason="no reference")
    )


def test_a_literal_message_may_hold_braces_and_shows_what_was_expected_and_given() -> None:
    text = str(ShapeError("cannot reorder {0: 3}", expected="axes below 3", given=3, hint="count from 0"))
    assert text.startswith("cannot reorder {0: 3}.\n  expected: axes below 3\n  given: 3\n")
    assert text.endswith("hint: count from 0")


def test_a_user_error_names_the_line_that_raised_it() -> None:
    error = UserError("wrong")  # this line
    assert error.location is not None and error.location.file == __file__
    assert error.location.text.endswith("# this line")
    assert f"{__file__}:{error.location.line}: error = UserError" in str(error)


def test_user_location_skips_frames_of_the_package() -> None:
    scope = {"user_location": user_location}
    inside = errors.__file__.replace("errors.py", "imaginary.py")
    source = "def inner(skip): return user_location(skip)\ndef outer(skip): return inner(skip)"
    exec(compile(source, inside, "exec"), scope)  # code that claims to lie in the package
    outer = scope["outer"]
    line = sys._getframe().f_lineno + 1
    location = outer(True)
    assert location is not None and (location.file, location.line) == (__file__, line)
    assert outer(False).function == "inner"


def test_the_line_is_the_users_where_dataclasses_stand_between() -> None:
    with pytest.raises(UserError) as caught:
        replace(Options(), enable=(("no such", ()),))
    assert caught.value.location is not None and caught.value.location.file == __file__


def test_compile_error_reads_log_then_source_then_the_request_to_report() -> None:
    error = CompileError("NVRTC failed", log="k.cu(3): error: no", excerpt="  3 | int x = ;")
    error.repro = "print('repro')"
    lines = str(error).splitlines()
    assert lines[:3] == ["NVRTC failed.", "k.cu(3): error: no", "  3 | int x = ;"]
    assert "fault of Fusewright" in lines[3] and lines[-1] == "print('repro')"


def test_messages_of_one_line_end_in_punctuation() -> None:
    for message, shown in {
        "not 3": "not 3.",
        "`x`": "`x`.",
        "done.": "done.",
        "no!": "no!",
        "these:\n  a": "these:\n  a",
        "": "",
    }.items():
        assert str(FusewrightError(message)) == shown
        assert FusewrightError(message).message == message


def test_simulation_fault_tells_where() -> None:
    fault = RaceError(
        problem="write after read", statement="s[tid.x] = a", block=(1, 0, 0), thread=(33, 0, 0)
    )
    assert str(fault) == "write after read, at `s[tid.x] = a` in block (1, 0, 0), thread (33, 0, 0)."


def test_errors_cross_process_boundaries() -> None:
    for error in (ShapeError("s", hint="h"), CompileError("c", log="l", source="src")):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error) and str(copy) == str(error)


def test_warnings_are_given_at_the_users_line() -> None:
    """A line of the package's would be named alike for every call, so Python would show one of them only."""
    with FusionDefinition() as fd, warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        x = fd.define_tensor([-1], dtype=DataType.ComplexFloat)
        first = sys._getframe().f_lineno + 1
        fd.add_output(fd.ops.cast(x, DataType.Float))
        fd.add_output(fd.ops.cast(fd.ops.neg(x), DataType.Float))
    assert [(warning.filename, warning.lineno) for warning in found] == [
        (__file__, first),
        (__file__, first + 1),
    ]
