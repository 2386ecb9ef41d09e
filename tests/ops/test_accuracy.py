"""Every row stays within its bound: the simulator's meaning, the CUDA text on the host, and on a GPU."""

from __future__ import annotations

import ctypes
from datetime import date
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch

from bench.__main__ import main as bench
from bench.accuracy import (
    APPROXIMATE,
    COMPLEX_TYPES,
    allowed,
    approximate_error,
    approximate_errors,
    bounds_table,
    errors,
    given_for,
    given_for_approximate,
    measured,
    replace_block,
    rows,
    worst,
)
from bench.accuracy_bounds import BOUNDS
from fusewright.core.dtype import DataType
from fusewright.core.op import ElementwiseOp
from fusewright.ops.elementwise import ELEMENTWISE
from tests.ops import spelled

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"
ALL = list(rows())
# Types that are computed in; Half and BFloat16 are Float after their conversion.
COMPUTED = list(rows((DataType.Float, DataType.Double, *COMPLEX_TYPES)))
# Without a GPU one stands for all that are skipped: each takes time to be collected, on every worker.
ON_GPU = ALL if torch.cuda.is_available() else ALL[:1]
ON_HOST = [(op, dtype) for op, dtype in COMPUTED if op.name not in spelled.NOT_ON_HOST]
WIDE_LONG_DOUBLE = np.finfo(np.longdouble).nmant > 60
needs_wide = pytest.mark.skipif(not WIDE_LONG_DOUBLE, reason="long double is no wider than double here")


def _ids(cases: list[tuple[ElementwiseOp, DataType]]) -> list[str]:
    return [f"{op.name}-{dtype.name}" for op, dtype in cases]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL | None:
    """The CUDA text of all rows as functions of the host; None: there is no C++ compiler on this machine."""
    if spelled.HOST_COMPILER is None:
        return None
    names: set[str] = set()
    functions = []
    for op, dtype in ON_HOST:
        names |= spelled.needed(op, dtype)
        functions.append(spelled.function(op, dtype, f"{op.name}_{dtype.name}"))
        precise = op.spelling(dtype).precise
        if precise is not None:
            names |= spelled.needed(op, dtype, precise)
            functions.append(spelled.function(op, dtype, f"{op.name}_{dtype.name}_precise", precise))
    return spelled.host_library(names, functions, tmp_path_factory.mktemp("accuracy"))


@pytest.mark.sampled(0.5, "op", "dtype")
@needs_wide
@pytest.mark.parametrize(("op", "dtype"), COMPUTED, ids=_ids(COMPUTED))
def test_row_is_within_its_bound(library: ctypes.CDLL | None, op: ElementwiseOp, dtype: DataType) -> None:
    """In the simulator, and its CUDA text on the host: the exact results take longer than both."""
    given, expected = given_for(op, dtype)
    got = {"simulated": op.spelling(dtype).torch(*given)}
    if library is not None and (op, dtype) in ON_HOST:
        for suffix in ("", "_precise") if op.spelling(dtype).precise else ("",):
            function = getattr(library, f"{op.name}_{dtype.name}{suffix}")
            got[f"on the host{suffix}"] = spelled.call(function, given, op.result_of(dtype).torch)
    for where, results in got.items():
        ulp, at = worst(errors(op, results, expected), given)
        assert ulp <= allowed(op, dtype), f"{op.name} of {dtype} is off by {ulp:.4g} ulp {where} at {at}"


@pytest.mark.gpu
@needs_wide
@pytest.mark.parametrize(("op", "dtype"), ON_GPU, ids=_ids(ON_GPU))
def test_row_on_a_gpu_is_within_its_bound(op: ElementwiseOp, dtype: DataType) -> None:
    found = measured(op, dtype, torch.device("cuda"))
    assert found.ulp <= found.bound, found


@pytest.mark.parametrize(
    "device", [torch.device("cpu"), pytest.param(torch.device("cuda"), marks=pytest.mark.gpu)], ids=str
)
@pytest.mark.parametrize("op", APPROXIMATE, ids=lambda op: op.name)
def test_approximate_row_is_within_its_bound(op: ElementwiseOp, device: torch.device) -> None:
    assert approximate_error(op, device)[-1] <= 1


@needs_wide
def test_cuda_text_of_approximate_rows_on_the_host_is_within_its_bound(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    if spelled.HOST_COMPILER is None:
        pytest.skip("no C++ compiler on this machine")
    names: set[str] = set()
    for op in APPROXIMATE:
        names |= spelled.needed(op, DataType.Float)
    functions = [spelled.function(op, DataType.Float, op.name) for op in APPROXIMATE]
    text = spelled.host_library(names, functions, tmp_path_factory.mktemp("approximate"))
    for op in APPROXIMATE:
        given = given_for_approximate(op)
        result = spelled.call(getattr(text, op.name), list(given), torch.float32)
        assert approximate_errors(op, given, result)[-1] <= 1, op.name


def test_bounds_are_of_rows() -> None:
    assert set(BOUNDS) <= {op.name for op, _ in ALL}
    for op, dtype in ALL:
        assert 0 < allowed(op, dtype) < 10_000


def test_page_states_the_bounds() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert replace_block(text, "bounds", bounds_table()) == text, "`./dev bench accuracy --write` rewrites it"


def test_page_is_written_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tmp_path / "made.md"
    assert bench(["accuracy", "neg", "--write", str(made)]) == 0
    text = made.read_text(encoding="utf-8")
    assert text.startswith("# Accuracy") and "| neg | Double | 0 |" in text and bounds_table() in text
    assert f"`./dev bench accuracy` on {date.today().isoformat()}: " in text
    assert bench(["accuracy", "neg", "--write", str(made)]) == 0
    assert made.read_text(encoding="utf-8") == text
    monkeypatch.setattr("bench.accuracy.measured", lambda *_: pytest.fail("measured before it is refused"))
    with pytest.raises(SystemExit, match="there is no folder"):
        bench(["accuracy", "--write", str(tmp_path / "missing" / "made.md")])


# ---- the exact results themselves ------------------------------------------------------------------------

# Those that mpmath has.
MULTIPLE = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cos",
    "cosh",
    "exp",
    "expm1",
    "log",
    "log10",
    "log1p",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]


def _awkward(generator: torch.Generator) -> torch.Tensor:
    """Off the cuts, where mpmath tells no zero from another: ordinary ones, and close to 0, +-1 and +-i."""
    drawn = torch.randn(12, 2, generator=generator, dtype=torch.float64)
    near = drawn * torch.exp2(-torch.rand(12, 1, generator=generator, dtype=torch.float64) * 40)
    corners = torch.tensor([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]], dtype=torch.float64)
    points = torch.cat([drawn * 3, *(near + corner for corner in corners)])
    return torch.view_as_complex(points[(points != 0).all(1)])


@needs_wide
@pytest.mark.parametrize("name", MULTIPLE)
def test_wide_functions_agree_with_multiple_precision(name: str) -> None:
    z = _awkward(torch.Generator().manual_seed(1))
    op = ELEMENTWISE[name]
    with mpmath.workprec(300):
        points = [mpmath.mpc(v.real, v.imag) for v in z.tolist()]
        results = [getattr(mpmath, name)(v) for v in points]
        parts = [[np.longdouble(mpmath.nstr(p, 30)) for p in (r.real, r.imag)] for r in results]
    reference = np.empty(len(z), dtype=np.clongdouble)
    reference.real, reference.imag = np.array(parts).T
    ulp, where = worst(errors(op, op.spelling(DataType.ComplexDouble).torch(z), reference), [z])
    assert ulp <= 0.6, f"{name} is off by {ulp:.4g} ulp at {where}"
