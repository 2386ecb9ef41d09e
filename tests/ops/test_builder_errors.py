"""What builders refuse: class and message of each mistake."""

from __future__ import annotations

from typing import Any

import pytest

from fusewright.core.dtype import DataType
from fusewright.core.errors import ArgumentTypeError, DtypeError, RankError, ShapeError
from tests.ops.definition import Definition

Float, Double, Half, BFloat16 = DataType.Float, DataType.Double, DataType.Half, DataType.BFloat16
Int, Int32, Bool = DataType.Int, DataType.Int32, DataType.Bool


_NEITHER = (
    r"The value -2 at index {} was neither symbolic\(-1\), zero_element\(0\), broadcast\(1\), or static\(>1\)"
)

_REFUSED: list[tuple[str, type[Exception], str, Any]] = [
    (
        "is_cpu",
        RankError,
        "CPU non-scalar tensor is not supported!",
        lambda d, x: d.define_tensor([-1], is_cpu=True),
    ),
    (
        "contiguity length",
        RuntimeError,
        r"Length of contiguity argument \(3\) must match that of shape argument \(2\)",
        lambda d, x: d.define_tensor([-1, -1], [True, True, True]),
    ),
    ("size -2", ShapeError, _NEITHER.format(0), lambda d, x: d.define_tensor([-2])),
    ("vector -2", ShapeError, _NEITHER.format(0), lambda d, x: d.define_vector([-2])),
    ("full -2", ShapeError, _NEITHER.format(1), lambda d, x: d.full([2, -2], 0, Float)),
    (
        "size beyond int64",
        ArgumentTypeError,
        r"define_tensor\(\): incompatible function arguments",
        lambda d, x: d.define_tensor([1 << 63]),
    ),
    (
        "float size",
        ArgumentTypeError,
        r"define_tensor\(\): incompatible function arguments",
        lambda d, x: d.define_tensor([2.0]),
    ),
    (
        "stride_order duplicate",
        ShapeError,
        "duplicated stride_order entries",
        lambda d, x: d.define_tensor([-1, -1], stride_order=[0, 0]),
    ),
    (
        "stride_order range",
        ShapeError,
        "stride_order argument is out of range",
        lambda d, x: d.define_tensor([-1, -1], stride_order=[0, 2]),
    ),
    *(
        (
            f"broadcast {flags}",
            RankError,
            "Invalid broadcast, number of false entries in is_broadcast_dim expected to be",
            lambda d, x, flags=flags: d.broadcast(x, flags),
        )
        for flags in ([True, False], [True, False, False, False])
    ),
    (
        "too few broadcast_dims",
        RankError,
        "The broadcast dimensions should match the input dimensions",
        lambda d, x: d.broadcast_in_dim(x, [2, 2, 2], [0]),
    ),
    (
        "shape below rank",
        RankError,
        "The new shape is expected to be greater-then-or-equal to the input",
        lambda d, x: d.broadcast_in_dim(x, [2], [0, 1]),
    ),
    (
        "broadcast dim outside",
        ShapeError,
        "Invalid broadcast_dims value",
        lambda d, x: d.broadcast_in_dim(x, [2, 2, 2], [0, 3]),
    ),
    ("expand mismatch", ShapeError, "2 different sizes", lambda d, x: d.expand(d.define_tensor([3]), [4])),
    ("iota length", DtypeError, "length must be integer", lambda d, x: d.iota(2.0)),
    (
        "iota start",
        DtypeError,
        "iota: start dtype does not match specified dtype argument",
        lambda d, x: d.iota(2, 1.0, 1),
    ),
    ("iota step", DtypeError, "iota: step dtype", lambda d, x: d.iota(2, 1, 1.0)),
    (
        "iota inf",
        ShapeError,
        "iota: length, start, step must be finite numbers.",
        lambda d, x: d.iota(2, float("inf"), 1.0, Float),
    ),
    ("iota step 0", ShapeError, "iota: step value must not equal zero.", lambda d, x: d.iota(2, 1, 0)),
    (
        "permute floats",
        ArgumentTypeError,
        r"permute\(\): incompatible function arguments",
        lambda d, x: d.permute(x, [0.0, 1.0]),
    ),
    ("permute duplicates", ShapeError, "duplicated dimension entries", lambda d, x: d.permute(x, [0, 0])),
    (
        "permute range",
        ShapeError,
        "dims argument is out of range, expects",
        lambda d, x: d.permute(x, [0, 2]),
    ),
    (
        "permute length",
        RankError,
        "argument to have the same length as input",
        lambda d, x: d.permute(x, [0]),
    ),
    ("squeeze range", ShapeError, "Squeeze dim is outside of Tensor size!", lambda d, x: d.squeeze(x, [2])),
    (
        "squeeze too many",
        RankError,
        "The dims to squeeze must be <= the number of dims of the input tensor",
        lambda d, x: d.squeeze(x, [0, 1, 0]),
    ),
    ("squeeze of no broadcast", ShapeError, "is no broadcast", lambda d, x: d.squeeze(x, [0])),
    ("squeeze of expanded", ShapeError, "is expanded", lambda d, x: d.squeeze(d.expand(x, [3, -1, -1]), [0])),
    (
        "size range",
        ShapeError,
        "Tried to access out of boundary index 2. total index: 2",
        lambda d, x: d.size(x, 2),
    ),
    ("at range", ShapeError, "Tried to access out of boundary index", lambda d, x: d.at(d.shape(x), -3)),
    (
        "var_mean float dims",
        ArgumentTypeError,
        r"var_mean\(\): incompatible function arguments.",
        lambda d, x: d.var_mean(x, [0.5]),
    ),
    ("var_mean correction", ShapeError, "must not be negative", lambda d, x: d.var_mean(x, [0], -1)),
    ("where", DtypeError, "Condition should be of DataType Bool", lambda d, x: d.where(x, x, x)),
    ("max dtype", DtypeError, "takes no dtype", lambda d, x: d.max(x, [0], dtype=Double)),
    ("nextafter half", DtypeError, "nextafter", lambda d, x: d.nextafter(d.cast(x, Half), 1.0)),
    ("bitwise on floats", DtypeError, "bitwise_and", lambda d, x: d.bitwise_and(x, x)),
    ("shift of floats", DtypeError, "bitwise_left_shift", lambda d, x: d.bitwise_left_shift(x, 1)),
    ("gcd of floats", DtypeError, "gcd", lambda d, x: d.gcd(x, x)),
    ("imag of real", DtypeError, "imag", lambda d, x: d.imag(x)),
    ("tensor for list", ArgumentTypeError, "permute", lambda d, x: d.permute([0], x)),
    ("too few", ArgumentTypeError, r"add\(\): incompatible", lambda d, x: d.add(x)),
    (
        "full of a negative scalar",
        ShapeError,
        _NEITHER.format(0),
        lambda d, x: d.full([d.define_scalar(-2)], 1.0, Float),
    ),
    (
        "expand to a negative scalar",
        ShapeError,
        _NEITHER.format(0),
        lambda d, x: d.expand(x, [d.define_scalar(-2), -1]),
    ),
    ("full of no type", DtypeError, "no values of type Null", lambda d, x: d.full([3], 1.0, DataType.Null)),
    ("iota of no type", DtypeError, "no values of type Null", lambda d, x: d.iota(3, dtype=DataType.Null)),
    ("vector of negative size", ShapeError, "(?s)size is negative.*-1", lambda d, x: d.define_vector(-1)),
    ("unknown keyword", ArgumentTypeError, r"sum\(\): incompatible", lambda d, x: d.sum(x, axis=0)),
]


@pytest.mark.parametrize(
    ("error", "fragment", "call"), [c[1:] for c in _REFUSED], ids=[c[0] for c in _REFUSED]
)
def test_refused(error: type[Exception], fragment: str, call: Any) -> None:
    d = Definition()
    x = d.define_tensor([-1, -1])
    with pytest.raises(error, match=fragment):
        call(d, x)


def test_complex_to_real_warns() -> None:
    d = Definition()
    x = d.define_tensor([-1], dtype=DataType.ComplexFloat)
    with pytest.warns(UserWarning, match="imaginary part is dropped"):
        d.cast(x, Float)
