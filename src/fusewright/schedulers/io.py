"""Caches of inputs and outputs: the loads and stores that every scheduler places and vectorizes."""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.analyze.vectorize import (
    loads_along_lane,
    power_of_two_divisor,
    stores_along_lane,
    unit_stride_axis,
    widest_access,
)
from fusewright.core.enums import CacheOp, LoadStoreOpType, ParallelType
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Broadcast, Copy, Expand, Permute, Relabel, Squeeze
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import Facts
from fusewright.sym import const

# Bytes that torch's allocator aligns a fresh tensor to are more than any vector needs.
FRESH_ALIGNMENT = 256

_RELABELS = (Broadcast, Squeeze, Permute, Relabel)


@dataclass(frozen=True, slots=True)
class Ports:
    """loads: tensors in registers, each copied from an input. stores: outputs, each copied from registers."""

    loads: tuple[TensorView, ...]
    stores: tuple[TensorView, ...]


def cache_inputs_and_outputs(schedule: Schedule, cache_op: CacheOp = CacheOp.unspecified) -> Ports:
    """Gives every input a load into registers and every output a store from them.

    Where an input is read in another order or rank, that relabeling is a load of its own.
    """
    fusion = schedule.fusion
    for value in fusion.inputs:
        if not isinstance(value, TensorView) or value.is_cpu or not value.uses:
            continue
        plain = [use.output for use in value.uses if not isinstance(use, _RELABELS)]
        if len(plain) == len(value.uses):
            schedule.cache_after(value, LoadStoreOpType.set, cache_op)
        elif plain:
            schedule.cache_after(value, LoadStoreOpType.set, cache_op, plain)
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
        and not node.is_scalar
        and len(node.inputs) == 1
        and isinstance(node.inputs[0], TensorView)
        and fusion.is_input(node.inputs[0])
        and not node.inputs[0].is_cpu
        and isinstance(node, (Copy, Expand, *_RELABELS))
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


def _innermost_is(tensor: TensorView, width: int) -> bool:
    return bool(tensor.loop) and tensor.loop[-1].extent is const(width)


def vector_width(
    fusion: Fusion, facts: Facts, inner: IterDomain, mapped: dict[TensorView, IterDomain | None]
) -> int:
    """The widest vector that all inputs and outputs along `inner` allow.

    `mapped` gives for each input and output the dimension that corresponds to `inner`, or None. A
    tensor whose unit-stride dimension is another is accessed element by element and sets no limit.
    """
    limit = power_of_two_divisor(facts.value(inner.extent), 16)
    for position, value in enumerate(fusion.inputs):
        if isinstance(value, TensorView) and not value.is_cpu and value.uses:
            limit = _limited(value, mapped.get(value), facts, limit, position)
    for output in fusion.outputs:
        tensor = output.tensor
        if tensor.definition is None:
            continue
        source = fusion.inputs.index(output.alias) if output.alias is not None else None
        limit = _limited(tensor, mapped.get(tensor), facts, limit, source)
    return max(1, limit)


def _limited(
    tensor: TensorView, axis: IterDomain | None, facts: Facts, limit: int, position: int | None
) -> int:
    unit = unit_stride_axis(tensor)
    if unit is None or axis is not unit:
        return limit
    alignment = facts.alignment[position] if position is not None else FRESH_ALIGNMENT
    outer: list[int] = []
    if position is not None:
        strides = dict(zip(tensor.shape, facts.strides[position]))
        outer = [
            strides[a]
            for a in tensor.shape
            if a is not unit and not a.is_broadcast and facts.value(a.extent) > 1
        ]
    return widest_access(tensor.dtype.size, facts.value(unit.extent), outer, alignment, limit)
