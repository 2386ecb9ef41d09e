"""Caches of inputs and outputs: the loads and stores that every scheduler places and vectorizes; and
what lies between them, inlined.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from fusewright.analyze.vectorize import (
    loads_along_lane,
    power_of_two_divisor,
    stores_along_lane,
    unit_stride_axis,
    widest_access,
)
from fusewright.core.enums import ParallelType
from fusewright.core.hardware import MAX_VECTOR_BYTES
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import Facts
from fusewright.sym import Expr, const

# Bytes that torch's allocator aligns a fresh tensor to are more than any vector needs.
FRESH_ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class Ports:
    """loads: tensors in registers, each copied from an input. stores: outputs, each copied from registers."""

    loads: tuple[TensorView, ...]
    stores: tuple[TensorView, ...]


def cache_inputs_and_outputs(schedule: Schedule) -> Ports:
    """Gives every input a load into registers and every output a store from them.

    Where an input is read in another order or rank, that relabeling is a load of its own.
    """
    fusion = schedule.fusion
    for value in fusion.inputs:
        if not isinstance(value, TensorView) or value.is_cpu or not value.uses:
            continue
        plain = [use.output for use in value.uses if not use.traits.relabel]
        if len(plain) == len(value.uses):
            schedule.cache_after(value)
        elif plain:
            schedule.cache_after(value, cached_uses=plain)
    stores: list[TensorView] = []
    for output in fusion.output_tensors():
        if output.definition is None:
            continue
        if output.uses:
            stores.append(schedule.cache_fork(output))
        else:
            schedule.cache_before(output)
            stores.append(output)
    return Ports(find_loads(fusion), tuple(stores))


def find_loads(fusion: Fusion) -> tuple[TensorView, ...]:
    """Tensors in registers that are copied from inputs."""
    outputs = set(fusion.output_tensors())
    return tuple(t for t in fusion.tensors() if _is_load(fusion, t) and t not in outputs)


def _is_load(fusion: Fusion, tensor: TensorView) -> bool:
    node = tensor.definition
    return (
        node is not None
        and node.traits.move
        and isinstance(node.inputs[0], TensorView)
        and fusion.is_input(node.inputs[0])
        and not node.inputs[0].is_cpu
    )


def vectorize_ports(schedule: Schedule, ports: Ports, width: int) -> None:
    """Makes the innermost axis of every load and store that lies along its memory a vector of `width`."""
    if width <= 1:
        return
    for load in ports.loads:
        assert load.definition is not None
        if _innermost_is(load, width) and loads_along_lane(load.definition, width):
            schedule.parallelize(load, -1, ParallelType.vectorize)
    for store in ports.stores:
        if _innermost_is(store, width) and stores_along_lane(store, width):
            schedule.parallelize(store, -1, ParallelType.vectorize)


def inline_rest(schedule: Schedule, placed: Collection[TensorView]) -> None:
    """Inlines whatever is computed and used, but for those `placed` already, as far as it can be."""
    fusion = schedule.fusion
    rest = [t for t in fusion.tensors() if t.definition is not None and t.consumers and t not in placed]
    if rest:
        schedule.inline_most(rest)


def _innermost_is(tensor: TensorView, width: int) -> bool:
    if not tensor.loop:
        return False
    # Several rows a block may be as many as a vector has elements.
    axis = tensor.loop[-1]
    return axis.extent is const(width) and not axis.parallel.is_thread


@dataclass(frozen=True, slots=True)
class _Access:
    """A tensor in global memory whose unit-stride dimension a vector runs along.

    element_bytes: of its dtype. size: the extent of that dimension. position: of the input that it is or is
    stored in, None for fresh memory. outer: the input's other dimensions, and their extents.
    """

    element_bytes: int
    size: Expr
    position: int | None
    outer: tuple[tuple[int, Expr], ...]


class VectorLimits:
    """What bounds the width of vectors along one dimension of a fusion's iteration space.

    Args:
        inner: the dimension. mapped: for each input and output the dimension that corresponds to it, or
            None. A tensor whose unit-stride dimension is another is accessed element by element and sets no
            limit.
    """

    def __init__(
        self, fusion: Fusion, inner: IterDomain, mapped: Mapping[TensorView, IterDomain | None]
    ) -> None:
        self._size = inner.extent
        touched: list[tuple[TensorView, int | None]] = [
            (value, position)
            for position, value in enumerate(fusion.inputs)
            if isinstance(value, TensorView) and not value.is_cpu and value.uses
        ]
        for output in fusion.outputs:
            if output.tensor.definition is not None:
                alias = output.alias
                touched.append((output.tensor, fusion.inputs.index(alias) if alias is not None else None))
        self._accesses = [
            _access(tensor, unit, position)
            for tensor, position in touched
            if (unit := unit_stride_axis(tensor)) is not None and mapped.get(tensor) is unit
        ]

    def width(self, facts: Facts) -> int:
        """The widest vector, in elements, that all inputs and outputs of this call allow."""
        limit = power_of_two_divisor(facts.value(self._size), MAX_VECTOR_BYTES)
        for access in self._accesses:
            alignment, strides = FRESH_ALIGNMENT, []
            if access.position is not None:
                alignment = facts.alignment[access.position]
                own = facts.strides[access.position]
                strides = [own[dim] for dim, size in access.outer if facts.value(size) > 1]
            size = facts.value(access.size)
            limit = widest_access(access.element_bytes, size, strides, alignment, limit)
        return max(1, limit)


def _access(tensor: TensorView, unit: IterDomain, position: int | None) -> _Access:
    axes = enumerate(tensor.shape)
    outer = tuple((dim, a.extent) for dim, a in axes if a is not unit and not a.is_broadcast)
    return _Access(tensor.dtype.size, unit.extent, position, outer if position is not None else ())
