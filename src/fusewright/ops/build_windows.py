"""Builds windows along a dimension: parts at constant distances, which may overlap."""

from __future__ import annotations

from fusewright.core.errors import ShapeError
from fusewright.ir import Fusion, IndexMap, IterDomain, TensorView, position
from fusewright.ops.build_indexed import indexed, own_positions, sized_axis
from fusewright.ops.build_shape import wrap_index
from fusewright.ops.registry import op
from fusewright.sym import ONE, ZERO, Expr, const, floordiv, le


@op()
def unfold(fusion: Fusion, arg: TensorView, dim: int, size: int, step: int) -> TensorView:
    """Windows of `size` elements along a dimension, one every `step` elements, as torch.Tensor.unfold.

    Dimension `dim` of the result counts the windows, of which the last is complete. Their elements are a new
    last dimension.

    Raises:
        ShapeError: no such dimension, a negative size, a step that is not positive, or a window that is
            longer than the dimension (for sizes that a call states, when it does).
    """
    if size < 0 or step < 1:
        raise ShapeError(
            f"unfold: expected a size of 0 or more and a step of 1 or more, got size {size} and step {step}"
        )
    if not arg.ndim:
        raise ShapeError("unfold: expected a tensor with dimensions, got one of rank 0")
    along = wrap_index(dim, arg.ndim)
    length, width = arg.shape[along].visible_extent, const(size)
    fusion.require(le(width, length), f"unfold: a window of {size} is longer than dimension {along}")
    count = floordiv(length - width, step) + 1
    axes = [
        sized_axis(fusion, count) if i == along else fusion.copy_axis(axis)
        for i, axis in enumerate(arg.shape)
    ]
    axes.append(sized_axis(fusion, width))
    indices = list(own_positions(arg))
    if not arg.shape[along].is_broadcast:
        indices[along] = step * _place(axes, along) + _place(axes, arg.ndim)
    return indexed(fusion, "Unfold", arg, axes, IndexMap(tuple(indices)))


def _place(axes: list[IterDomain], dim: int) -> Expr:
    extent = axes[dim].extent
    return ZERO if extent is ONE else position(dim, extent)
