"""The rows of reductions, and their types."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from fusewright.core.dtype import Category, DataType, PyScalar
from fusewright.core.errors import DtypeError
from fusewright.core.op import CombineSpelling, ReductionOp, States
from fusewright.ops import complex_functions

BOOL, INT, FLOAT, COMPLEX = Category.BOOL, Category.INT, Category.FLOAT, Category.COMPLEX
Tensor = torch.Tensor
Dims = tuple[int, ...]


def _typed(value: int, dtype: DataType) -> PyScalar:
    """A number as a constant of `dtype`."""
    kinds: dict[Category, type[bool | int | float | complex]]
    kinds = {BOOL: bool, INT: int, FLOAT: float, COMPLEX: complex}
    return kinds[dtype.category](value)


def _lift_one(x: Tensor) -> States:
    return (x,)


def _single(
    name: str,
    identity: Callable[[DataType], PyScalar],
    combine: dict[Category, CombineSpelling],
    reduce: Callable[[Tensor, Dims], Tensor],
    scan: Callable[[Tensor, int], Tensor],
    atomic: Iterable[DataType] = (),
    packed_run: str = "",
    over_warp: Mapping[DataType, str] = MappingProxyType({}),
    slots: int = 1,
) -> ReductionOp:
    """A reduction with one state, of the input's type."""
    return ReductionOp(
        name,
        states=(name,),
        state_dtypes=lambda dtype: (dtype,),
        identity=lambda dtype: (identity(dtype),),
        lift=("{x}",),
        lift_torch=_lift_one,
        combine=MappingProxyType(combine),
        reduce=lambda given, dims: (reduce(given[0], dims),),
        packed_run=packed_run,
        over_warp=over_warp,
        scan=scan,
        atomic=frozenset(atomic),
        slots=slots,
    )


def _combine(
    value: str, function: Callable[[Tensor, Tensor], Tensor], snippets: tuple[str, ...] = ()
) -> CombineSpelling:
    """`value` is an expression over the two accumulators."""
    return CombineSpelling(f"{{a0}} = {value}", lambda a, b: (function(a[0], b[0]),), snippets)


# ---- sum and product ---------------------------------------------------------------------------------------


def _sum(x: Tensor, dims: Dims) -> Tensor:
    return torch.sum(x, dims, dtype=x.dtype)  # torch would widen int32


def _prod(x: Tensor, dims: Dims) -> Tensor:
    for dim in sorted(dims, reverse=True):
        x = torch.prod(x, dim, dtype=x.dtype)
    return x


_ADD = _combine("{a0} + {b0}", torch.add)
_INT_ADD = _combine("fw::wrapping_add({a0}, {b0})", torch.add, ("wrapping",))
_MULTIPLY = _combine("{a0} * {b0}", torch.mul)
_INT_MULTIPLY = _combine("fw::wrapping_mul({a0}, {b0})", torch.mul, ("wrapping",))

#: Complex numbers are two floats, each of which is added by itself.
_ADDED_AT_ONCE = (
    DataType.Int32,
    DataType.Int,
    DataType.Float,
    DataType.Double,
    DataType.ComplexFloat,
    DataType.ComplexDouble,
)

SUM = _single(
    "sum",
    lambda dtype: _typed(0, dtype),
    {INT: _INT_ADD, FLOAT: _ADD, COMPLEX: _combine("{a0} + {b0}", complex_functions.add, ("complex",))},
    _sum,
    lambda x, dim: torch.cumsum(x, dim, dtype=x.dtype),  # torch would widen int32
    atomic=_ADDED_AT_ONCE,
    over_warp=MappingProxyType({DataType.Int32: "warp_sum"}),
)
PROD = _single(
    "prod",
    lambda dtype: _typed(1, dtype),
    {INT: _INT_MULTIPLY, FLOAT: _MULTIPLY, COMPLEX: _combine("{a0} * {b0}", torch.mul, ("complex",))},
    _prod,
    lambda x, dim: torch.cumprod(x, dim, dtype=x.dtype),
)

# ---- extrema -----------------------------------------------------------------------------------------------


def _extremum(
    name: str,
    identity: Callable[[DataType], PyScalar],
    on_bools: str,
    function: Callable[[Tensor, Tensor], Tensor],
    reduce: Callable[[Tensor, Dims], Tensor],
    scan: Callable[[Tensor, int], Any],
) -> ReductionOp:
    """NaN, where there is one among the elements, is the result."""
    elementwise = f"{name}imum"
    of_numbers = _combine(f"fw::{elementwise}({{a0}}, {{b0}})", function, (elementwise,))
    of_bools = _combine(f"{{a0}} {on_bools} {{b0}}", function)
    combine = {BOOL: of_bools, INT: of_numbers, FLOAT: of_numbers}

    def reduce_or_identity(x: Tensor, dims: Dims) -> Tensor:
        if all(x.shape[dim] for dim in dims):
            return reduce(x, dims)
        kept = [extent for dim, extent in enumerate(x.shape) if dim not in dims]
        return torch.full(kept, identity(_dtype_of(x)), dtype=x.dtype, device=x.device)

    def scan_values(x: Tensor, dim: int) -> Tensor:
        values: Tensor = scan(x, dim).values if x.numel() else x.clone()  # which torch refuses
        return values

    packed = f"fw::{elementwise}_run<{{W}}>({{a0}}, {{x}})"
    vote = {"||": "warp_any", "&&": "warp_all"}[on_bools]
    in_warp = MappingProxyType({DataType.Float: f"warp_{elementwise}", DataType.Bool: vote})
    return _single(
        name, identity, combine, reduce_or_identity, scan_values, packed_run=packed, over_warp=in_warp
    )


def _dtype_of(x: Tensor) -> DataType:
    return next(dtype for dtype in DataType if dtype is not DataType.Null and dtype.torch == x.dtype)


MAX = _extremum("max", lambda dtype: dtype.lowest, "||", torch.maximum, torch.amax, torch.cummax)
MIN = _extremum("min", lambda dtype: dtype.highest, "&&", torch.minimum, torch.amin, torch.cummin)

# ---- where the extrema are ---------------------------------------------------------------------------------

# The position of no element, in front of which any other comes.
NOWHERE = -1


def _arg_extremum(
    name: str,
    extremum: ReductionOp,
    better: Callable[[Tensor, Tensor], Tensor],
    reduce: Callable[..., Tensor],
) -> ReductionOp:
    """The extreme value and its position: the least of several. NaN, where there is one, is extreme.

    The positions are given with the values, as a second tensor. So the result depends on no order.
    """

    def combine(a: States, b: States) -> States:
        (a_value, a_at), (b_value, b_at) = a, b
        equal = (a_value == b_value) | (a_value.isnan() & b_value.isnan())
        first = (b_at != NOWHERE) & ((a_at == NOWHERE) | (b_at < a_at))
        taken = better(b_value, a_value) | (b_value.isnan() & ~a_value.isnan()) | (equal & first)
        return torch.where(taken, b_value, a_value), torch.where(taken, b_at, a_at)

    def reduce_both(given: States, dims: Dims) -> States:
        x, at = torch.broadcast_tensors(*given)
        (value,) = extremum.reduce((x,), dims)
        if not all(x.shape[dim] for dim in dims):
            return value, torch.full_like(value, NOWHERE, dtype=at.dtype)
        extreme = reduce(x, dims, keepdim=True)
        is_extreme = (x == extreme) | (x.isnan() & extreme.isnan())
        beyond = torch.iinfo(at.dtype).max
        return value, torch.amin(torch.where(is_extreme, at, beyond), dims)

    states = "({a0}, {a1}, {b0}, {b1})"
    spelling = CombineSpelling(
        f"fw::{name}_combine{states}", combine, ("arg_extremum",), f"fw::{name}_next{states}"
    )
    return ReductionOp(
        name,
        states=("value", "position"),
        state_dtypes=lambda dtype: (dtype, DataType.Index),
        identity=lambda dtype: (*extremum.identity(dtype), NOWHERE),
        lift=(),
        lift_torch=lambda x, at: (x, at),
        combine=MappingProxyType({BOOL: spelling, INT: spelling, FLOAT: spelling}),
        reduce=reduce_both,
    )


ARGMAX = _arg_extremum("argmax", MAX, torch.gt, torch.amax)
ARGMIN = _arg_extremum("argmin", MIN, torch.lt, torch.amin)

# ---- Welford -----------------------------------------------------------------------------------------------


def _welford_combine(a: States, b: States) -> States:
    """Chan, Golub and LeVeque's pairwise update of mean, sum of squared deviations and count."""
    a_avg, a_m2, a_n = a
    b_avg, b_m2, b_n = b
    n = a_n + b_n
    share = b_n.to(a_avg.dtype) / n.clamp(min=1).to(a_avg.dtype)
    delta = b_avg - a_avg
    avg = a_avg + delta * share
    m2 = a_m2 + b_m2 + (delta * share) * (delta * a_n.to(a_avg.dtype))
    empty = b_n == 0
    return torch.where(empty, a_avg, avg), torch.where(empty, a_m2, m2), n


def _welford_reduce(given: States, dims: Dims) -> States:
    (x,) = given
    count = math.prod(x.shape[dim] for dim in dims)
    avg = torch.sum(x, dims, keepdim=True) / max(count, 1)
    m2 = torch.sum((x - avg) ** 2, dims)
    avg = avg.squeeze(dims)
    return avg, m2, torch.full_like(avg, count, dtype=torch.int64)


WELFORD = ReductionOp(
    "welford",
    states=("avg", "m2", "n"),
    state_dtypes=lambda dtype: (dtype, dtype, DataType.Index),
    identity=lambda dtype: (0.0, 0.0, 0),
    lift=("{x}", "0", "1"),
    lift_torch=lambda x: (x, torch.zeros_like(x), torch.ones_like(x, dtype=torch.int64)),
    combine=MappingProxyType(
        {
            FLOAT: CombineSpelling(
                "fw::welford_combine({a0}, {a1}, {a2}, {b0}, {b1}, {b2})", _welford_combine, ("welford",)
            )
        }
    ),
    reduce=_welford_reduce,
    combine_run="fw::welford_combine_run<{W}>({a0}, {a1}, {a2}, {x})",
)

# ---- maximum and sum of exponentials -----------------------------------------------------------------------


def _shift(top: Tensor) -> Tensor:
    """What exponents are less of: finite, so that e^(-inf - shift) is 0 where all elements are -inf."""
    largest = torch.finfo(top.dtype).max
    return top.clamp(-largest, largest)


def _max_sum_exp_combine(a: States, b: States) -> States:
    """Milakov and Gimelshein 2018, "Online normalizer calculation for softmax"."""
    top = torch.maximum(a[0], b[0])
    shift = _shift(top)
    return top, a[1] * torch.exp(a[0] - shift) + b[1] * torch.exp(b[0] - shift)


def _max_sum_exp_reduce(given: States, dims: Dims) -> States:
    (x,) = given
    (top,) = MAX.reduce((x,), dims)
    kept = [1 if dim in dims else extent for dim, extent in enumerate(x.shape)]
    return top, torch.sum(torch.exp(x - _shift(top).reshape(kept)), dims)


#: The maximum m, and the sum of e^(x - m), in one pass; 0 where m is -inf, inf where it is inf.
MAX_SUM_EXP = ReductionOp(
    "max_sum_exp",
    states=("top", "total"),
    state_dtypes=lambda dtype: (dtype, dtype),
    identity=lambda dtype: (*MAX.identity(dtype), 0.0),
    lift=("{x}", "1"),
    lift_torch=lambda x: (x, torch.ones_like(x)),
    combine=MappingProxyType(
        {
            FLOAT: CombineSpelling(
                "fw::max_sum_exp_combine({a0}, {a1}, {b0}, {b1})", _max_sum_exp_combine, ("max_sum_exp",)
            )
        }
    ),
    reduce=_max_sum_exp_reduce,
    combine_run="fw::max_sum_exp_combine_run<{W}>({a0}, {a1}, {x})",
)

#: The logarithm of the sum of exponentials, of one state: what a scan has. MAX_SUM_EXP reduces with fewer
#: exponentials and one logarithm.
LOGSUMEXP = _single(
    "logsumexp",
    lambda dtype: -math.inf,
    {FLOAT: _combine("fw::log_add_exp({a0}, {b0})", torch.logaddexp, ("log_add_exp",))},
    torch.logsumexp,
    torch.logcumsumexp,
    slots=20,
)

REDUCTIONS: Mapping[str, ReductionOp] = MappingProxyType(
    {row.name: row for row in (SUM, PROD, MAX, MIN, ARGMAX, ARGMIN, WELFORD, MAX_SUM_EXP, LOGSUMEXP)}
)
# Whose results stay in the type that they are computed in.
_STATISTICS = (WELFORD, MAX_SUM_EXP)


def reduction_dtypes(
    op: ReductionOp, given: DataType, dtype: DataType = DataType.Null
) -> tuple[DataType, DataType]:
    """The type that the input is cast to and reduced in, and the type that the first state is cast to
    afterwards.

    Sums and products of bools and integers are Int, unless `dtype` states another type. Reduced floats are
    reduced in Float and cast back, except for statistics (Welford, maximum and sum of exponentials), which
    stay Float. Other states are as `op.state_dtypes` of the reduced type says.

    Raises:
        DtypeError: a type that the operation does not accept, or a `dtype` for an operation other than sum
            and prod.
    """
    if dtype is not DataType.Null and op not in (SUM, PROD):
        raise DtypeError(f"{op.name} takes no dtype", expected=DataType.Null, given=dtype)
    result = given if dtype is DataType.Null else dtype
    if op in (SUM, PROD) and dtype is DataType.Null and result.category <= INT:
        result = DataType.Int
    computed = result.compute
    if op in (SUM, PROD) and computed.is_bool:
        computed = DataType.Int  # asked for by dtype=Bool: whether the sum is other than zero
    if computed is DataType.UInt64:
        raise DtypeError(what=f"the input of {op.name}", expected="a signed or floating type", given=given)
    op.combining(given if computed is given.compute else computed)  # an error names the type that was given
    return computed, computed if op in _STATISTICS else result
