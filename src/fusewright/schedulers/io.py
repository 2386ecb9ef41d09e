"""Caches of inputs and outputs: the loads and stores that every scheduler places and vectorizes. The tensors
in between are inlined.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fusewright.analyze.axis_map import is_own_load
from fusewright.analyze.stepped_runs import picked_run
from fusewright.analyze.vectorize import (
    is_shifted,
    loads_along_lane,
    merged_run,
    stores_along_lane,
)
from fusewright.core.enums import CacheOp, ParallelType
from fusewright.core.errors import ParamsError
from fusewright.core.hardware import MAX_VECTOR_BYTES
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.params import HeuristicParams
from fusewright.sym import const


@dataclass(frozen=True, slots=True)
class Ports:
    """The loads and stores of a kernel.

    Attributes:
        loads: tensors in registers, each copied from an input.
        stores: outputs, each copied from registers.
    """

    loads: tuple[TensorView, ...]
    stores: tuple[TensorView, ...]


def input_hint(params: HeuristicParams) -> CacheOp:
    """Returns the cache hint of inputs that are read at every point, by the fields `streams_inputs` and
    `keeps_inputs`.
    """
    if getattr(params, "streams_inputs", False):
        return CacheOp.streaming
    return CacheOp.evict_last if getattr(params, "keeps_inputs", False) else CacheOp.unspecified


def cache_inputs_and_outputs(
    schedule: Schedule, hinted: Collection[TensorView] = (), hint: CacheOp = CacheOp.unspecified
) -> Ports:
    """Gives every input a load into registers and every output a store from them.

    A node that relabels an input, or reads it by index, is already a load; all other uses of an input share
    one.

    Args:
        hinted: inputs whose loads have this hint, except those that an output is written into: the CUDA
            compiler does not know that such a load reads memory, and may move the store before it.
    """
    fusion = schedule.fusion
    written = {output.alias for output in fusion.outputs}
    hinted = {value for value in hinted if hint is not CacheOp.unspecified and value not in written}
    for value in fusion.inputs:
        if not isinstance(value, TensorView) or value.is_cpu or not value.uses:
            continue
        own = [use for use in value.uses if is_own_load(fusion, use) and use.inputs[0] is value]
        plain = [use.output for use in value.uses if use not in own]
        if value in hinted:
            for load in (use.output for use in own if use.traits.indexed):
                schedule.set_cache_op(load, hint)
        if plain and value in hinted:
            schedule.cache_after(value, cache_op=hint, cached_uses=plain)
        elif plain and own:
            schedule.cache_after(value, cached_uses=plain)
        elif plain:
            schedule.cache_after(value)
    stores: list[TensorView] = []
    for output in fusion.output_tensors():
        if output.definition is None:
            continue
        if output.is_placed:  # what computes it is the store
            stores.append(output)
        elif output.uses:
            stores.append(schedule.cache_fork(output))
        else:
            schedule.cache_before(output)
            stores.append(output)
    return Ports(find_loads(fusion), tuple(stores))


def find_loads(fusion: Fusion) -> tuple[TensorView, ...]:
    """Returns the tensors in registers that are copied from inputs."""
    outputs = set(fusion.output_tensors())
    return tuple(t for t in fusion.tensors() if _is_load(fusion, t) and t not in outputs)


def is_read_by_index(load: TensorView) -> bool:
    """Whether other loads say which elements a load reads. It cannot be issued before these have arrived."""
    return load.definition is not None and len(load.definition.tensor_inputs) > 1


def _is_load(fusion: Fusion, tensor: TensorView) -> bool:
    node = tensor.definition
    return (
        node is not None
        and (node.traits.move or node.traits.indexed)
        and isinstance(node.inputs[0], TensorView)
        and fusion.is_input(node.inputs[0])
        and not node.inputs[0].is_cpu
    )


def vectorize_ports(
    schedule: Schedule,
    ports: Ports,
    width: int,
    merged: int = 1,
    unaligned: Collection[int] = (),
    keeps_aligned: bool = False,
    picked: Collection[int] = (),
) -> None:
    """Makes the innermost axis of every load and store along its memory a vector of `width`.

    Args:
        merged: vectors cross this many dimensions; accesses that are not contiguous along these stay element
            by element.
        unaligned: positions of inputs whose vectors may start at any element. With `keeps_aligned`, those of
            their loads that are aligned vectors stay so.
        picked: positions of inputs whose loads take elements backward, or every n-th one, from aligned
            vectors; none where vectors cross several dimensions.
    """
    if width <= 1:
        return
    anywhere = {schedule.fusion.inputs[position] for position in unaligned}
    in_steps = _picked_loads(schedule.fusion, ports, width, picked)
    for load in ports.loads:
        assert load.definition is not None
        if load.definition.inputs[0] not in anywhere or load in in_steps:
            continue
        if not (keeps_aligned and _innermost_is(load, width) and loads_along_lane(load.definition, width)):
            schedule.allow_unaligned(load)
    if merged > 1:
        for port in (*ports.loads, *ports.stores):
            node = port.definition
            assert node is not None
            in_pieces = port.unaligned and loads_along_lane(node, width, port.unaligned)
            if _innermost_is(port, width) and (in_pieces or merged_run(node, width, merged)):
                _split_wide(schedule, port, width)
                schedule.parallelize(port, -1, ParallelType.vectorize)
        return
    for load in ports.loads:
        assert load.definition is not None
        if load not in in_steps:
            if not (_innermost_is(load, width) and loads_along_lane(load.definition, width, load.unaligned)):
                continue
            _split_wide(schedule, load, width)
        schedule.parallelize(load, -1, ParallelType.vectorize)
    for store in ports.stores:
        _order_vectors_last(schedule, store, width)
        own = _split_wide(schedule, store, width) if _innermost_is(store, width) else width
        in_part = store.is_placed and is_shifted(store)
        if _innermost_is(store, own) and stores_along_lane(store, own) and not in_part:
            schedule.parallelize(store, -1, ParallelType.vectorize)


def _picked_loads(
    fusion: Fusion, ports: Ports, width: int, positions: Collection[int]
) -> frozenset[TensorView]:
    """Returns the loads of these inputs whose vectors take their elements from aligned ones."""
    inputs = {fusion.inputs[position] for position in positions}
    nodes = (load.definition for load in ports.loads if _innermost_is(load, width))
    read = (node for node in nodes if node is not None and node.inputs[0] in inputs)
    return frozenset(node.output for node in read if picked_run(node, width) is not None)


def _split_wide(schedule: Schedule, port: TensorView, width: int) -> int:
    """Makes a vector of elements that are too wide for one access several accesses, and returns the elements
    of each.

    Vectors that may start at any element, or may not be whole, stay as they are.
    """
    own = min(width, MAX_VECTOR_BYTES // port.dtype.size)
    if own == width or port.unaligned or is_shifted(port):
        return width
    schedule.parallelize(port, -1, ParallelType.serial)
    schedule.split(port, -1, own)
    schedule.parallelize(port, -2, ParallelType.unroll)
    return own


def check_inputs(fusion: Fusion, positions: Collection[int], name: str) -> None:
    """Raises ParamsError for positions in a field of this name at which a fusion has no tensor that a kernel
    reads.
    """
    for i, position in enumerate(positions):
        value = fusion.inputs[position] if position < len(fusion.inputs) else None
        if not isinstance(value, TensorView) or value.is_cpu:
            raise ParamsError(path=f"{name}[{i}]", expected="the position of an input tensor", given=position)


def inline_rest(schedule: Schedule, placed: Collection[TensorView]) -> None:
    """Inlines all intermediate tensors as far as possible, except those already `placed`."""
    fusion = schedule.fusion
    rest = [t for t in fusion.tensors() if t.definition is not None and t.consumers and t not in placed]
    if rest:
        schedule.inline_most(rest)


def _order_vectors_last(schedule: Schedule, store: TensorView, width: int) -> None:
    """Moves loops of one point, which only a store has, out of that over the elements of its vectors."""
    rank, last = len(store.loop), len(store.loop) - 1
    while last > 0 and store.loop[last].is_broadcast:
        last -= 1
    if 0 <= last < rank - 1 and store.loop[last].extent is const(width):
        schedule.reorder(store, {last: rank - 1})


def _innermost_is(tensor: TensorView, width: int) -> bool:
    if not tensor.loop:
        return False
    # Several rows a block may be as many as a vector has elements.
    axis = tensor.loop[-1]
    return axis.extent is const(width) and not axis.parallel.is_thread
