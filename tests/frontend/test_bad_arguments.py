"""Arguments of the wrong type, everywhere: an error of the project's, and a definition that can go on."""

from __future__ import annotations

import decimal
import fractions
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from fusewright import CommunicatorBackend, DataType, DeviceMesh, FusionDefinition
from fusewright.core.errors import (
    ArgumentTypeError,
    DefinitionError,
    DtypeError,
    ExecutionOrderError,
    InputError,
    OptionError,
    UserError,
)
from fusewright.ops import DEFINERS, OPS, OpDef
from fusewright.ops.registry import KINDS


class _Hostile:
    """Answers nothing: not even its text, or whether it equals another."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("no comparison")

    def __bool__(self) -> bool:
        raise ValueError("no truth")

    def __len__(self) -> int:
        raise ValueError("no length")

    __hash__ = None  # type: ignore[assignment]


def _endless() -> list[Any]:
    inside: list[Any] = []
    inside.append(inside)
    return inside


JUNK: dict[str, Callable[[FusionDefinition], Any]] = {
    "none": lambda fd: None,
    "object": lambda fd: object(),
    "hostile": lambda fd: _Hostile(),
    "text": lambda fd: "x",
    "empty_text": lambda fd: "",
    "bytes": lambda fd: b"x",
    "true": lambda fd: True,
    "minus_one": lambda fd: -1,
    "big": lambda fd: 2**62,
    "too_big": lambda fd: 10**400,
    "very_big": lambda fd: 10**5000,
    "float": lambda fd: 1.5,
    "nan": lambda fd: math.nan,
    "inf": lambda fd: -math.inf,
    "complex": lambda fd: 1 + 2j,
    "decimal": lambda fd: decimal.Decimal(1),
    "fraction": lambda fd: fractions.Fraction(1, 3),
    "empty_list": lambda fd: [],
    "list_of_none": lambda fd: [None],
    "list_of_texts": lambda fd: ["a", "b"],
    "list_of_floats": lambda fd: [1.5],
    "list_of_bools": lambda fd: [True, False],
    "list_of_ints": lambda fd: [0, 1],
    "negative_list": lambda fd: [-7],
    "big_list": lambda fd: [2**62, 2**62],
    "nested": lambda fd: [[0], [1]],
    "endless": lambda fd: _endless(),
    "dict": lambda fd: {"a": 1},
    "set": lambda fd: {1, 2},
    "range": lambda fd: range(2),
    "class": lambda fd: int,
    "function": lambda fd: len,
    "torch_tensor": lambda fd: torch.ones(2),
    "torch_dtype": lambda fd: torch.uint32,
    "null_dtype": lambda fd: DataType.Null,
    "definition": lambda fd: fd,
    "tensor": lambda fd: fd.probe[0],  # type: ignore[attr-defined]
    "scalar": lambda fd: fd.probe[1],  # type: ignore[attr-defined]
    "vector": lambda fd: fd.probe[2],  # type: ignore[attr-defined]
    "other_definitions": lambda fd: _definition().probe[0],  # type: ignore[attr-defined]
}


def _valid(fd: FusionDefinition) -> dict[str, Any]:
    """For each kind of parameter an argument of the right type."""
    x, s, v = fd.probe  # type: ignore[attr-defined]
    values = ["Tensor", "Tensor, Scalar or number", "Scalar or number", "Vector"]
    given: dict[str, Any] = dict(zip(values, (x, x, s, v)))
    given |= {"int": 0, "bool": False, "str": "none", "DataType": DataType.Float, "int or list of ints": [0]}
    given |= {
        "list of Tensors": [x, x],
        "list of ints": [1, 0],
        "list of bools": [False, False],
        "bool or list of bools": True,
    }
    given |= {"Vector or list of ints and Scalars": [2, 2], "int, or list of ints and Scalars": [2, 2]}
    given |= {"list of Tensors": [x, x], "list of shapes": [[2, 2]], "list of lists of ints": [[1, 0]]}
    given |= {"list of DataTypes": [DataType.Float]}
    given |= {"list of Tensors, Scalars, plain values and lists of these": [x, 1, [s, None]]}
    assert given.keys() == {kind.text for kind in KINDS.values()}
    return given


def _definition() -> FusionDefinition:
    fd = FusionDefinition()
    fd.__enter__()
    x = fd.define_tensor([-1, -1])
    fd.probe = x, fd.define_scalar(DataType.Double), fd.ops.shape(x)  # type: ignore[attr-defined]
    return fd


def _calls(row: OpDef, fd: FusionDefinition, junk: Any) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """The row's call with `junk` for one parameter after the other, and calls of a wrong form."""
    valid = [_valid(fd)[p.kind.text] for p in row.parameters]
    for i, parameter in enumerate(row.parameters):
        given = [junk if i == j else value for j, value in enumerate(valid)]
        by_position = given[: row.positional]
        by_keyword = {p.name: v for p, v in zip(row.parameters[row.positional :], given[row.positional :])}
        yield by_position, by_keyword
        if i < row.positional and not parameter.positional_only:
            yield given[:i], {parameter.name: junk}
    yield [junk] * (row.positional + 1), {}
    yield [], {"no_such_parameter": junk}


def _check(call: Callable[[], object]) -> None:
    """The call does what it says, or raises an error of the project's."""
    try:
        call()
    except UserError as error:
        assert len(error.message) > len("an error") and error.location is not None


@pytest.mark.parametrize("name", [*DEFINERS, *OPS])
def test_every_operation_with_junk(name: str, thorough: bool) -> None:
    row = DEFINERS.get(name) or OPS[name]
    # By default each operation has every other kind of junk, and each kind every other operation.
    first, step = (0, 1) if thorough else (len(name) % 2, 2)
    for make in list(JUNK.values())[first::step]:
        fd = _definition()
        method = getattr(fd, name) if name in DEFINERS else getattr(fd.ops, name)
        for args, kwargs in _calls(row, fd, make(fd)):
            _check(functools.partial(method, *args, **kwargs))
        fd.add_output(fd.probe[0] * 2.0)  # type: ignore[attr-defined]
        fd.__exit__(None, None, None)


def test_a_definition_runs_after_wrong_calls() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        for name, row in OPS.items():
            for junk in (object(), "x", {"a": 1}, _endless()):
                with pytest.raises((ArgumentTypeError, DefinitionError)):
                    getattr(fd.ops, name)(*[junk] * max(1, len(row.parameters)))
        fd.add_output(x * 2.0)
    torch.testing.assert_close(fd.execute([torch.ones(3)])[0], torch.full((3,), 2.0))


@pytest.mark.parametrize("junk", JUNK)
def test_strided_tensors_and_from_pytorch(junk: str) -> None:
    fd = _definition()
    value = JUNK[junk](fd)
    for kwargs in (
        {"sizes": value, "strides": [1]},
        {"sizes": [2], "strides": value},
        {"sizes": [2], "strides": [1], "dtype": value},
        {"sizes": [2], "strides": [1], "static_sizes": value},
        {"sizes": [2], "strides": [1], "is_cpu": value},
    ):
        _check(lambda kwargs=kwargs: fd.define_tensor(**kwargs))
    _check(lambda: fd.from_pytorch(value))
    _check(lambda: fd.from_pytorch(torch.ones(2), value))
    _check(lambda: FusionDefinition(value))
    _check(lambda: FusionDefinition(max_length=value))


OPTIONS = (
    "device",
    "override_user_schedule",
    "capture_debug_output",
    "profile",
    "save_repro_inputs",
    "_enable_options",
    "_disable_options",
)


@pytest.mark.parametrize("junk", JUNK)
def test_calls(junk: str) -> None:
    with FusionDefinition() as fd:
        x, s = fd.define_tensor([-1]), fd.define_scalar(DataType.Double)
        fd.add_output(x * s)
    held = _definition()
    value, tensor = JUNK[junk](held), torch.ones(2)
    _check(lambda: fd.execute(value))
    for inputs in ([value, 2.0], [tensor, value], [value], [tensor, 2.0, value]):
        _check(lambda inputs=inputs: fd.execute(inputs))
    for option in OPTIONS:
        _check(lambda option=option: fd.execute([tensor, 2.0], **{option: value}))
    for inputs in ([value, 2.0], [tensor, value]):  # once a program is bound, as before
        _check(lambda inputs=inputs: fd.execute(inputs))
    torch.testing.assert_close(fd.execute([tensor, 2.0])[0], 2 * tensor)


@pytest.mark.parametrize("names", [[3], [None], 3, b"fma", [["fma"]], {"fma": 1}, object()])
@pytest.mark.parametrize("option", ["_enable_options", "_disable_options"])
def test_options_that_are_no_names(option: str, names: Any) -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1]) * 2.0)
    with pytest.raises(OptionError, match=f"{option[1:-1]}: expected a list of names"):
        fd.execute([torch.ones(2)], **{option: names})


HUGE = [10**400, 10**5000, 10**30, -(2**64), 2**64]
SCALAR_TYPES = (DataType.Double, DataType.Float, DataType.Int, DataType.ComplexDouble)


@pytest.mark.parametrize(
    "number, dtype",
    [*itertools.product(HUGE, SCALAR_TYPES), (-1, DataType.UInt64), (10**5, DataType.Half)],
    ids=lambda x: x.bit_length() if isinstance(x, int) and not isinstance(x, DataType) else str(x),
)
def test_integers_beyond_the_type_or_64_bits_are_no_scalars(number: int, dtype: DataType) -> None:
    """Nor once a program is bound, whose launch may have packed them: as a float, or modulo 2**64."""
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.full([2], fd.define_scalar(dtype), dtype))
    fd.execute([1])
    for _ in range(2):
        with pytest.raises(InputError, match="is not compatible with the expected data type"):
            fd.execute([number])
        fd.execute([1])


BEYOND = [
    (1e300, DataType.Float),
    (-1e300, DataType.Float),
    (1e5, DataType.Half),
    (1e39, DataType.BFloat16),
    (1e3, DataType.Float8_e4m3fn),
    (1e300 + 0j, DataType.ComplexFloat),
    (2**40, DataType.Int32),
    (300, DataType.UInt8),
    (-300, DataType.UInt8),
    (-200, DataType.Int8),
    (70000, DataType.Int16),
    (-70000, DataType.UInt16),
    (1e300, DataType.Int),
    (math.nan, DataType.Int),
    (math.inf, DataType.Int32),
    (1 + 2j, DataType.Float),
    (2j, DataType.Int),
]


@pytest.mark.parametrize("value, dtype", BEYOND)
def test_constants_beyond_the_type_that_they_are_given(value: complex, dtype: DataType) -> None:
    with pytest.raises(RuntimeError, match="overflow"):
        torch.full((2,), value, dtype=dtype.torch)
    with FusionDefinition() as fd:
        x = fd.ops.ones([2], dtype)
        for call in (
            lambda: fd.define_scalar(value, dtype),
            lambda: fd.ops.full([2], value, dtype),
            lambda: fd.ops.full_like(x, value),
        ):
            with pytest.raises(DtypeError, match=rf"beyond the range of {re.escape(str(dtype))}"):
                call()
        fd.add_output(x)
    fd.execute([])


# What becomes an element of the result, or is compared with elements, as it is.
TAKE_ELEMENTS: dict[str, Callable[[Any, Any, int], Any]] = {
    "where": lambda ops, x, value: ops.where(ops.gt(x, 4), x, value),
    "clamp": lambda ops, x, value: ops.clamp(x, value),
    "clamp_max": lambda ops, x, value: ops.clamp(x, max=value),
    "pad": lambda ops, x, value: ops.pad(x, [1, 1], value),
    "cumsum": lambda ops, x, value: ops.cumsum(x, 0, init=value),
    "cumprod": lambda ops, x, value: ops.cumprod(x, 0, init=value),
    "cummax": lambda ops, x, value: ops.cummax(x, 0, init=value),
    "cummin": lambda ops, x, value: ops.cummin(x, 0, init=value),
}
INTEGERS = [DataType.UInt8, DataType.Int8, DataType.Int16, DataType.UInt16, DataType.Int32]


@pytest.mark.sampled(0.4, "name", "dtype")
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("name", TAKE_ELEMENTS)
def test_constants_among_elements(name: str, dtype: DataType) -> None:
    function, limits = TAKE_ELEMENTS[name], torch.iinfo(dtype.torch)
    beyond = [limits.max + 1, -limits.max - 2]
    for size in (1, 3):
        given = torch.tensor([4, 5, 6][:size], dtype=dtype.torch)
        for value in beyond:
            with FusionDefinition() as fd:
                x = fd.from_pytorch(given, static_sizes=True)
                with pytest.raises(DtypeError, match="beyond the range of") as caught:
                    function(fd.ops, x, value)
                assert f"from {limits.min} to {limits.max}" in str(caught.value) and str(value) in str(
                    caught.value
                )
                fd.add_output(x)
        # A negative number is the unsigned one with its bits, as in torch, whatever the sizes.
        results = []
        for value in (-2, limits.max - 1) if limits.min == 0 else (limits.min, limits.max):
            with FusionDefinition() as fd:
                x = fd.from_pytorch(given, static_sizes=True)
                fd.add_output(function(fd.ops, x, value))
            fd.validate([given])
            results.append(fd.execute([given])[0])
        assert limits.min < 0 or torch.equal(*results)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_no_limit_limits_nothing(dtype: DataType) -> None:
    given = torch.tensor([0, 5, torch.iinfo(dtype.torch).max], dtype=dtype.torch)
    with FusionDefinition() as fd:
        x = fd.from_pytorch(given)
        fd.add_output(fd.ops.clamp(x, 3))
        fd.add_output(fd.ops.clamp(x, max=3))
    low, high = fd.execute([given])
    assert low.tolist() == [3, 5, int(given[2])] and high.tolist() == [0, 3, 3]


@pytest.mark.parametrize("value", [1e300, -1e300, 3.4028235e38, math.inf])
def test_constants_that_an_operation_converts_are_infinite_beyond_its_type(value: float) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        fd.add_output(x * value)
    given = torch.tensor([1.0, -0.5])
    torch.testing.assert_close(fd.execute([given])[0], given * value)


def test_negative_constants_of_unsigned_types_and_infinities_fit() -> None:
    for value, dtype in ((-1, DataType.UInt64), (math.inf, DataType.Half), (math.nan, DataType.Float)):
        with FusionDefinition() as fd:
            fd.add_output(fd.ops.full([2], value, dtype))
        expected = torch.full((2,), value, dtype=dtype.torch)
        torch.testing.assert_close(fd.execute([])[0].cpu(), expected, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.uint32, torch.quint8])
def test_torch_dtypes_without_counterpart(dtype: torch.dtype) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        for call in (
            lambda: fd.define_tensor([-1], dtype=dtype),
            lambda: fd.ops.cast(x, dtype),
            lambda: fd.define_scalar(dtype),
            lambda: fd.ops.zeros([2], dtype),
        ):
            with pytest.raises(DtypeError, match=rf"one of torch.*but got {dtype}"):
                call()
        fd.add_output(x)


class _ExecutesItself(FusionDefinition):
    def definition(self) -> None:
        self.add_output(self.define_tensor([-1]) * 2.0)
        self.execute([torch.ones(2)])


class _ScheduleExecutes(FusionDefinition):
    def definition(self) -> None:
        self.add_output(self.define_tensor([-1]) * 2.0)

    def schedule(self) -> None:
        self.execute([torch.ones(2)])


def test_definitions_that_execute_themselves() -> None:
    for _ in range(2):
        with pytest.raises(DefinitionError, match="still being written"):
            _ExecutesItself().execute([torch.ones(2)])
        scheduled = _ScheduleExecutes()
        with pytest.raises(ExecutionOrderError, match=r"schedule\(\): it executes the definition"):
            scheduled.execute([torch.ones(2)])
        scheduled.execute([torch.ones(2)], override_user_schedule=True)
    with FusionDefinition() as fd:
        with pytest.raises(DefinitionError, match="still being written"):
            fd.execute([])
        with pytest.raises(DefinitionError, match="still being written"), fd:
            pass
        fd.add_output(fd.define_tensor([-1]) * 2.0)
    fd.execute([torch.ones(2)])


class _ForSeveralDevices(FusionDefinition):
    def multidevice_schedule(self) -> None:
        pass


def test_what_asks_for_several_devices_is_refused() -> None:
    assert repr(FusionDefinition(None, 9999, False, CommunicatorBackend.nccl)) == repr(FusionDefinition())
    for make in (lambda: FusionDefinition(use_multidevice_executor=True), _ForSeveralDevices):
        with pytest.raises(DefinitionError, match="runs on one device"):
            make()
    with pytest.raises(ArgumentTypeError, match="Expected backend_type: CommunicatorBackend, got str"):
        FusionDefinition(backend_type="nccl")  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="numbers of 0 or more"):
        DeviceMesh([-1])
