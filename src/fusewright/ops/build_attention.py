"""Builders of scaled dot-product attention."""

from __future__ import annotations

from collections.abc import Mapping

from fusewright.core.dtype import DataType
from fusewright.core.errors import ArgumentTypeError, DtypeError, RankError
from fusewright.ir import Fusion, Scalar, TensorView, Val
from fusewright.ops.attention import RANKS, SDPFA_BWD, SDPFA_FWD, SEED_SIZE
from fusewright.ops.build_elementwise import convert
from fusewright.ops.build_factory import scalar_of
from fusewright.ops.build_library import call_library, check_same_dtype
from fusewright.ops.registry import ScalarLike, op
from fusewright.sym import const


def _scalar(fusion: Fusion, value: ScalarLike, dtype: DataType) -> Scalar:
    scalar = convert(fusion, scalar_of(fusion, value), dtype)
    assert isinstance(scalar, Scalar)
    return scalar


def _scalars(
    fusion: Fusion, dropout_p: ScalarLike | None, is_causal: ScalarLike | None, scale: ScalarLike | None
) -> tuple[list[Scalar], list[Scalar]]:
    """Dropout and causality, by default none, and the scale, if there is one."""
    first = [
        _scalar(fusion, 0.0 if dropout_p is None else dropout_p, DataType.Double),
        _scalar(fusion, False if is_causal is None else is_causal, DataType.Bool),
    ]
    return first, [] if scale is None else [_scalar(fusion, scale, DataType.Double)]


def _equate(fusion: Fusion, name: str, a: TensorView, b: TensorView, *pairs: tuple[int, int]) -> None:
    for i, j in pairs:
        fusion.equate(a.extents[i], b.extents[j], name)


def _check_ranks(name: str, rank: int, operands: Mapping[str, TensorView | None]) -> None:
    for what, operand in operands.items():
        if operand is not None and operand.ndim != rank:
            raise RankError(what=f"{what} of {name}", expected=rank, given=operand.ndim)


def _check_operands(
    fusion: Fusion, name: str, query: TensorView, key: TensorView, value: TensorView
) -> DataType:
    """Types, ranks and sizes of query, key and value; their type."""
    dtype = check_same_dtype(SDPFA_FWD, {"query": query, "key": key, "value": value})
    if query.ndim not in RANKS:
        raise RankError(what=f"query of {name}", expected="4 or 5", given=query.ndim)
    _check_ranks(name, query.ndim, {"key": key, "value": value})
    batch = [(dim, dim) for dim in range(query.ndim - 2)]
    _equate(fusion, f"{name}, query and key", query, key, *batch, (-1, -1))
    _equate(fusion, f"{name}, key and value", key, value, *batch, (-2, -2))
    return dtype


@op()
def sdpfa_fwd(
    fusion: Fusion,
    query: TensorView,
    key: TensorView,
    value: TensorView,
    bias: TensorView | None = None,
    mask: TensorView | None = None,
    dropout_p: ScalarLike | None = None,
    is_causal: ScalarLike | None = None,
    scale: ScalarLike | None = None,
) -> tuple[TensorView, TensorView, TensorView, TensorView]:
    """(out, logsumexp, philox_seed, philox_offset) of attention over [N, H, L, E], which torch computes.

    bias is added to the scores, mask (Bool) marks the visible positions; both broadcast to [N, H, L, S]. By
    default nothing is dropped, all positions are visible, and the scale is 1 / sqrt(E). out has the query's
    type, logsumexp is Float [N, H, L]. The dropped elements follow from the seed, UInt64 [2], and the offset,
    UInt64.
    """
    name = SDPFA_FWD.name
    dtype = _check_operands(fusion, name, query, key, value)
    _check_ranks(name, query.ndim, {"bias": bias, "mask": mask})
    if bias is not None and bias.dtype is not dtype:
        raise DtypeError(what=f"bias of {name}", expected=f"{dtype}, as query", given=bias.dtype)
    if mask is not None and mask.dtype is not DataType.Bool:
        raise DtypeError(what=f"mask of {name}", expected=DataType.Bool, given=mask.dtype)
    first, last = _scalars(fusion, dropout_p, is_causal, scale)
    terms = [t for t in (bias, mask) if t is not None]
    results = [
        ((*query.extents[:-1], value.extents[-1]), dtype),
        (query.extents[:-1], DataType.Float),
        ((const(SEED_SIZE),), DataType.UInt64),
        ((), DataType.UInt64),
    ]
    options = {"terms": len(terms), "scaled": bool(last)}
    operands: list[Val] = [query, key, value, *terms, *first, *last]
    out, logsumexp, seed, offset = call_library(fusion, SDPFA_FWD, operands, results, options)
    return out, logsumexp, seed, offset


@op()
def sdpfa_bwd(
    fusion: Fusion,
    grad_output: TensorView,
    query: TensorView,
    key: TensorView,
    value: TensorView,
    output: TensorView,
    logsumexp: TensorView,
    dropout_p: ScalarLike | None = None,
    is_causal: ScalarLike | None = None,
    philox_seed: TensorView | None = None,
    philox_offset: TensorView | None = None,
    scale: ScalarLike | None = None,
) -> tuple[TensorView, TensorView, TensorView]:
    """(grad_query, grad_key, grad_value) of `sdpfa_fwd`, from its results. torch computes it."""
    name = SDPFA_BWD.name
    if philox_seed is None or philox_offset is None:
        raise ArgumentTypeError(function=name, expected="philox_seed and philox_offset: Tensor", given="None")
    dtype = _check_operands(fusion, name, query, key, value)
    check_same_dtype(SDPFA_BWD, {"query": query, "grad_output": grad_output, "output": output})
    _check_ranks(name, query.ndim, {"grad_output": grad_output, "output": output})
    _check_ranks(name, query.ndim - 1, {"logsumexp": logsumexp})
    rows = [(dim, dim) for dim in range(query.ndim - 1)]
    _equate(fusion, f"{name}, query and output", query, output, *rows)
    _equate(fusion, f"{name}, value and output", value, output, (-1, -1))
    _equate(fusion, f"{name}, output and its gradient", output, grad_output, *rows, (-1, -1))
    _equate(fusion, f"{name}, query and logsumexp", query, logsumexp, *rows)
    first, last = _scalars(fusion, dropout_p, is_causal, scale)
    tensors = (grad_output, query, key, value, output, logsumexp)
    operands: list[Val] = [*tensors, *first, philox_seed, philox_offset, *last]
    results = [(t.extents, dtype) for t in (query, key, value)]
    dq, dk, dv = call_library(fusion, SDPFA_BWD, operands, results, {"scaled": bool(last)})
    return dq, dk, dv
