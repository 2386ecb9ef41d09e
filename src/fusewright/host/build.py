"""Builds the host program of a fusion from its kernels."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.host.ir import (
    Allocate,
    AllocateWorkspace,
    CopyInto,
    DrawRandomState,
    EvaluateScalar,
    Free,
    HostProgram,
    LaunchKernel,
    Operation,
    ReadHostTensor,
    Return,
    Snapshot,
)
from fusewright.host.scalars import closure
from fusewright.ir import Fusion, Node, RandomState, Scalar, TensorView, Val
from fusewright.runtime.arguments import Value, Workspace


def build_program(
    fusion: Fusion,
    launches: Sequence[LaunchKernel],
    in_place: dict[TensorView, TensorView],
    static: frozenset[Val],
) -> HostProgram:
    """The program of these launches, in order.

    Args:
        in_place: outputs that kernels write straight into the input that they alias; other aliased outputs
            are computed in memory of their own and copied.
        static: scalars that a signature fixes.
    """
    setup, operations = _scalars(fusion, launches, static)
    aliases = {o.tensor: o.alias for o in fusion.outputs if o.alias is not None}
    returned = [o.tensor for o in fusion.outputs if not o.hidden]
    inputs = set(fusion.inputs)
    copies = [CopyInto(tensor, alias) for tensor, alias in aliases.items() if tensor not in in_place]
    targets = {copy.target for copy in copies} | set(in_place.values())
    snapshots = [c.source for c in copies if c.source in inputs and c.source in targets]
    operations += [Snapshot(tensor) for tensor in dict.fromkeys(snapshots)]
    owned = {o.tensor for o in fusion.outputs if o.tensor not in aliases and not o.hidden}
    kept = owned | {copy.source for copy in copies}
    last = {tensor: i for i, launch in enumerate(launches) for tensor in _touched(launch)}
    for i, launch in enumerate(launches):
        for tensor in launch.outputs:
            if tensor not in in_place:
                operations.append(Allocate(tensor, tensor in owned))
        for j, source in enumerate(launch.kernel.arguments):
            if isinstance(source, Workspace):
                operations.append(AllocateWorkspace(i, j, source.zeroed))
        operations.append(launch)
        done = [t for t in _touched(launch) if last[t] == i and t not in kept | inputs and t not in in_place]
        operations += [Free(tensor) for tensor in done]
    operations += [CopyInto(c.source, c.target, c.source in snapshots) for c in copies]
    operations.append(Return(tuple(returned)))
    memory = {**in_place, **{copy.source: copy.target for copy in copies if copy.source not in inputs}}
    return HostProgram(tuple(fusion.inputs), tuple(operations), memory, static, setup)


def _touched(launch: LaunchKernel) -> list[TensorView]:
    """The tensors that a kernel reads or writes, each once."""
    return list(dict.fromkeys(v for v in (*launch.values, *launch.outputs) if isinstance(v, TensorView)))


def _scalars(
    fusion: Fusion, launches: Sequence[LaunchKernel], static: frozenset[Val]
) -> tuple[tuple[EvaluateScalar, ...], list[Operation]]:
    """The scalars that kernels take: those that the host computes once for a signature, and at each call."""
    taken = dict.fromkeys(
        launch.values[source.slot]
        for launch in launches
        for source in launch.kernel.arguments
        if isinstance(source, Value)
    )
    read = [ReadHostTensor(value) for value in taken if isinstance(value, TensorView)]
    needed = closure(v for v in taken if isinstance(v, Scalar))
    nodes = [n for n in fusion.nodes if n.is_scalar and needed.intersection(n.outputs)]
    setup = tuple(EvaluateScalar(n) for n in nodes if n.outputs[0] in static)
    return setup, [*read, *(_scalar_operation(n) for n in nodes if n.outputs[0] not in static)]


def _scalar_operation(node: Node) -> Operation:
    return DrawRandomState(node) if isinstance(node, RandomState) else EvaluateScalar(node)
