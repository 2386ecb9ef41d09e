"""The rows of operations on three operands, and addcmul, whose fourth operand is the factor."""

from __future__ import annotations

from types import MappingProxyType

import torch

from fusewright.core.dtype import Category
from fusewright.core.op import ElementwiseOp, Rule, Spelling, selected
from fusewright.ops import complex_functions

BOOL, INT, FLOAT, COMPLEX = Category.BOOL, Category.INT, Category.FLOAT, Category.COMPLEX
Tensor = torch.Tensor


def _lerp(start: Tensor, end: Tensor, weight: Tensor) -> Tensor:
    """From the nearer end, so that weight 1 gives exactly `end`."""
    near_start, distance = start + weight * (end - start), end - start
    return torch.where(weight < 0.5, near_start, end - distance * (1 - weight))


def _lerp_from_start(start: Tensor, end: Tensor, weight: Tensor) -> Tensor:
    return start + weight * (end - start)


def _complex_lerp(start: Tensor, end: Tensor, weight: Tensor) -> Tensor:
    distance = complex_functions.sub(end, start)
    far = distance * complex_functions.sub(torch.ones_like(weight), weight)
    near = complex_functions.add(start, weight * distance)
    return torch.where(weight.real < 0.5, near, complex_functions.sub(end, far))


def _complex_addcmul(a: Tensor, b: Tensor, c: Tensor, alpha: Tensor) -> Tensor:
    return complex_functions.add(a, alpha * b * c)


def _addcmul(a: Tensor, b: Tensor, c: Tensor, alpha: Tensor) -> Tensor:
    return a + alpha * b * c


def _clamp(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """NaN if x or a bound is; with low > high the result is high."""
    raised = torch.where((x < low) | low.isnan(), low, x)
    return torch.where((raised > high) | high.isnan(), high, raised)


def _threshold(x: Tensor, threshold: Tensor, value: Tensor) -> Tensor:
    return torch.where(x <= threshold, value, x)


_WHERE = Spelling("{0} ? {1} : {2}", selected)
_ADDCMUL = Spelling("{0} + {3} * {1} * {2}", _addcmul)
_INT_ADDCMUL = Spelling(
    "fw::wrapping_add({0}, fw::wrapping_mul(fw::wrapping_mul({3}, {1}), {2}))", _addcmul, ("wrapping",)
)
_INT_LERP = Spelling(
    "fw::wrapping_add({0}, fw::wrapping_mul({2}, fw::wrapping_sub({1}, {0})))",
    _lerp_from_start,
    ("wrapping",),
)
_CLAMP = Spelling("fw::clamp({0}, {1}, {2})", _clamp, ("clamp",))
_THRESHOLD = Spelling("{0} <= {1} ? {2} : {0}", _threshold)

TERNARY: tuple[ElementwiseOp, ...] = (
    ElementwiseOp(
        "where",
        3,
        Rule.SELECT,
        MappingProxyType(
            {BOOL: _WHERE, INT: _WHERE, FLOAT: _WHERE, COMPLEX: Spelling(_WHERE.cuda, selected, ("complex",))}
        ),
    ),
    ElementwiseOp(
        "lerp",
        3,
        Rule.SAME_UP,
        MappingProxyType(
            {
                INT: _INT_LERP,
                FLOAT: Spelling("fw::lerp({0}, {1}, {2})", _lerp, ("lerp",)),
                COMPLEX: Spelling("fw::lerp({0}, {1}, {2})", _complex_lerp, ("complex_lerp",)),
            }
        ),
    ),
    ElementwiseOp(
        "addcmul",
        4,
        Rule.SAME_UP,
        MappingProxyType(
            {
                BOOL: Spelling("{0} || ({3} && {1} && {2})", lambda a, b, c, alpha: a | (alpha & b & c)),
                INT: _INT_ADDCMUL,
                FLOAT: _ADDCMUL,
                COMPLEX: Spelling(_ADDCMUL.cuda, _complex_addcmul, ("complex",)),
            }
        ),
        promoting=3,
    ),
    ElementwiseOp("clamp", 3, Rule.KEEP, MappingProxyType({BOOL: _CLAMP, INT: _CLAMP, FLOAT: _CLAMP})),
    ElementwiseOp(
        "threshold", 3, Rule.KEEP, MappingProxyType({BOOL: _THRESHOLD, INT: _THRESHOLD, FLOAT: _THRESHOLD})
    ),
)
