"""Builds the host program of a fusion from its kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fusewright.host.inputs.scalars import closure
from fusewright.host.program.ir import (
    Allocate,
    AllocateWorkspace,
    CopyInto,
    DrawRandomState,
    Evaluate,
    EvaluateScalar,
    Free,
    HostProgram,
    KeepApart,
    LaunchKernel,
    Operation,
    ReadHostTensor,
    Return,
    Snapshot,
    Step,
    TakeOver,
    View,
)
from fusewright.ir import Fusion, Node, RandomState, Scalar, TensorView, Val
from fusewright.runtime.arguments import Workspace


def build_program(
    fusion: Fusion,
    steps: Sequence[Step],
    in_place: dict[TensorView, TensorView],
    static: frozenset[Val],
    views: Mapping[TensorView, TensorView],
    empty: Sequence[TensorView] = (),
) -> HostProgram:
    """The program of these steps, in order.

    Args:
        in_place: the outputs that kernels write straight into the input that they alias, each with this
            input. Other aliased outputs are computed in separate memory and copied.
        static: the scalars that a signature fixes.
        views: the outputs that are views, each with the input or output that it views.
        empty: the outputs without elements, which no step makes.
    """
    setup, operations = _scalars(fusion, steps, static)
    aliases = {o.tensor: o.alias for o in fusion.outputs if o.alias is not None}
    returned = [o.tensor for o in fusion.outputs if not o.hidden]
    inputs = set(fusion.inputs)
    copies = [CopyInto(tensor, alias) for tensor, alias in aliases.items() if tensor not in in_place]
    targets = {copy.target for copy in copies} | set(in_place.values())
    snapshots = [c.source for c in copies if c.source in inputs and c.source in targets]
    operations += [Snapshot(tensor) for tensor in dict.fromkeys(snapshots)]
    sources = {c.source for c in copies if c.source in inputs} - set(snapshots)
    operations = [
        *_keeping_apart(steps, fusion.inputs, set(in_place.values()), targets, sources),
        *operations,
    ]
    owned = {o.tensor for o in fusion.outputs if o.tensor not in aliases and not o.hidden} - views.keys()
    kept = owned | {copy.source for copy in copies}
    joins = {step.outputs[0] for step in steps if isinstance(step, Evaluate) and step.is_join}
    last = {tensor: i for i, step in enumerate(steps) for tensor in _touched(step)}
    for i, step in enumerate(steps):
        if isinstance(step, LaunchKernel):
            for tensor in step.outputs:
                if tensor in in_place:
                    continue
                if tensor in step.bases:
                    base = step.bases[tensor]
                    if base in joins:  # its first piece
                        joins.remove(base)
                        operations.append(Allocate(base, base in owned))
                    operations.append(TakeOver(tensor, base))
                else:
                    operations.append(Allocate(tensor, tensor in owned))
            for j, source in enumerate(step.kernel.arguments):
                if isinstance(source, Workspace):
                    operations.append(AllocateWorkspace(step.segment, j, source.zeroed))
        done = [t for t in _touched(step) if last[t] == i and t not in kept | inputs and t not in in_place]
        if not isinstance(step, Evaluate):
            operations.append(step)
        elif not step.is_join:
            operand = step.overwritable
            is_free = operand is not None and operand in done and operand.is_row_major
            operations.append(replace(step, over=operand) if is_free else step)
        operations += [Free(tensor) for tensor in done]
    operations += [CopyInto(c.source, c.target, c.source in snapshots) for c in copies]
    operations += [Allocate(tensor, True) for tensor in empty]
    operations += [View(tensor, source) for tensor, source in views.items()]
    operations.append(Return(tuple(returned)))
    memory = {**in_place, **{copy.source: copy.target for copy in copies if copy.source not in inputs}}
    return HostProgram(tuple(fusion.inputs), tuple(operations), memory, static, setup)


def _keeping_apart(
    steps: Sequence[Step],
    inputs: Sequence[Val],
    early: set[TensorView],
    written: set[TensorView],
    copied: set[TensorView],
) -> list[Operation]:
    """The operation that separates inputs which share memory; none if no write can precede a read.

    Args:
        early: the inputs that kernels write in place.
        written: all inputs that the call writes, by kernels or by copies at the end.
        copied: the inputs whose values are copied into other inputs at the end.
    """
    found = {tensor for step in steps for tensor in _touched(step)} if early else set()
    found |= written | copied
    tensors = tuple([t for t in inputs if isinstance(t, TensorView) and t in found and not t.is_cpu])
    if len(tensors) < 2 or not (early or (written and copied)):
        return []
    return [KeepApart(tensors, frozenset(early), frozenset(written - early), frozenset(copied))]


def _touched(step: Step) -> list[TensorView]:
    """The tensors that a step reads or writes, each once."""
    bases = step.bases.values() if isinstance(step, LaunchKernel) else ()
    return list(dict.fromkeys(v for v in (*step.values, *bases, *step.outputs) if isinstance(v, TensorView)))


def _scalars(
    fusion: Fusion, steps: Sequence[Step], static: frozenset[Val]
) -> tuple[tuple[EvaluateScalar, ...], list[Operation]]:
    """The operations that compute the scalars that steps take: once for a signature, and at each call."""
    taken = dict.fromkeys(value for step in steps for value in step.by_value)
    read = [ReadHostTensor(value) for value in taken if isinstance(value, TensorView)]
    needed = closure(v for v in taken if isinstance(v, Scalar))
    nodes = [n for n in fusion.nodes if n.is_scalar and needed.intersection(n.outputs)]
    setup = tuple(EvaluateScalar(n) for n in nodes if n.outputs[0] in static)
    return setup, [*read, *(_scalar_operation(n) for n in nodes if n.outputs[0] not in static)]


def _scalar_operation(node: Node) -> Operation:
    return DrawRandomState(node) if isinstance(node, RandomState) else EvaluateScalar(node)
