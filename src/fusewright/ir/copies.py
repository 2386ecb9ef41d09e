"""Copies of values with all scheduling information."""

from __future__ import annotations

from fusewright.ir.axis import IterDomain, transforms_between
from fusewright.ir.value import Scalar, Storage, TensorView, Val


def copy_value(value: Val, axes: dict[IterDomain, IterDomain]) -> Val:
    """A copy that no node computes or uses yet; `axes` leads to the copies of axes and is added to."""
    if isinstance(value, Scalar):
        return Scalar(value.name, value.dtype, value.value, value.extent)
    copy_axes(value, axes)
    new = TensorView(
        value.number,
        value.dtype,
        [axes[a] for a in value.logical],
        root=[axes[a] for a in value.root] if value.root is not None else None,
        memory=value.memory,
        allocation=[axes[a] for a in value.allocation],
        contiguity=value.contiguity,
        is_cpu=value.is_cpu,
        label=value.label,
    )
    new.prefetched = value.prefetched
    new.loop = [axes[a] for a in value.loop]
    if value.storage is not None:
        new.storage = Storage(tuple([axes[a] for a in value.storage.axes]), value.storage.padding)
    new.circular = value.circular
    new.part = value.part
    new.inline_at = value.inline_at
    new.unaligned = value.unaligned
    new.everywhere = value.everywhere
    return new


def copy_axes(tensor: TensorView, axes: dict[IterDomain, IterDomain]) -> None:
    """Adds to `axes` a copy of every axis of `tensor`, related by copies of its transforms."""
    leaves = tensor.maybe_root if tensor.root is None else (*tensor.root, *tensor.logical)
    for axis in leaves:
        if axis not in axes and (axis.definition is None or axis in tensor.maybe_root):
            axes[axis] = axis.bare_copy()
    stored = tensor.storage.axes if tensor.storage is not None else ()
    for transform in transforms_between(
        tensor.maybe_root, (*tensor.logical, *tensor.loop, *tensor.allocation, *stored)
    ):
        outputs = tuple([a.bare_copy() for a in transform.outputs])
        axes.update(zip(transform.outputs, outputs))
        reads = tuple([axes[a] for a in transform.reads])
        transform.copy(tuple([axes[a] for a in transform.inputs]), outputs, reads)
