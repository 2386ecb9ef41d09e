"""Lowering a schedule and running its kernel in the simulator, without the host layers above."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import assume

from fusewright.core.errors import SimulationError
from fusewright.core.tracing import Tracer
from fusewright.ir import Fusion, TensorView
from fusewright.lower import (
    Lowered,
    LowerOptions,
    ScalarArgument,
    SizeArgument,
    StrideArgument,
    TensorArgument,
    check_symbols,
    lower,
)
from fusewright.ops.build_elementwise import copy_tensor
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.evaluate import bind_sizes
from fusewright.schedule import Schedule
from fusewright.sim import simulate
from fusewright.sym import evaluate


def lowered(schedule: Schedule) -> Lowered:
    schedule.complete()
    return lower(schedule.fusion, LowerOptions("test"), Tracer())


def run(schedule: Schedule, inputs: Sequence[Any]) -> list[torch.Tensor]:
    """The distinct outputs, in the memory order that the scheduled fusion gives them."""
    fusion = schedule.fusion
    result = lowered(schedule)
    sizes = bind_sizes(fusion, inputs)
    memory: dict[Any, Any] = dict(zip(fusion.inputs, inputs))
    for tensor in fusion.output_tensors():
        if tensor not in memory:
            memory[tensor] = _empty(tensor, [evaluate(e, sizes) for e in tensor.extents])

    def size_of(argument: SizeArgument | StrideArgument) -> int:
        if isinstance(argument, SizeArgument):
            return evaluate(argument.extent, sizes)
        return memory[argument.tensor].stride(argument.dim)

    symbols = {s: size_of(argument) for s, argument in result.symbols.items()}
    check_symbols(symbols)
    arguments: list[Any] = []
    for argument in result.arguments:
        if isinstance(argument, TensorArgument):
            arguments.append(memory[argument.tensor])
        elif isinstance(argument, ScalarArgument):
            arguments.append(memory[argument.value])
        elif isinstance(argument, (SizeArgument, StrideArgument)):
            arguments.append(size_of(argument))
        else:
            make = torch.zeros if argument.zeroed else torch.empty
            arguments.append(make(evaluate(argument.size, symbols), dtype=argument.dtype.torch))
    simulate(result.kernel, arguments)
    return [memory[tensor] for tensor in fusion.output_tensors()]


def run_if_launchable(schedule: Schedule, inputs: Sequence[Any]) -> list[torch.Tensor]:
    """`run` for hypothesis: passes over schedules that ask for more threads than a block has."""
    try:
        return run(schedule, inputs)
    except SimulationError as error:
        assume("the number of threads a block" not in str(error))
        raise


def _empty(tensor: TensorView, shape: Sequence[int]) -> torch.Tensor:
    order = [tensor.shape.index(a) for a in tensor.allocation if not a.is_reduction]
    stored = torch.empty([shape[d] for d in order], dtype=tensor.dtype.torch)
    return stored.permute([order.index(d) for d in range(len(order))])


def copy_fusion(shape: Sequence[int], copies: int = 1) -> Fusion:
    """x -> set -> ... -> output, with `copies` sets; -1 in `shape` is a symbolic size."""

    fusion = Fusion()
    tensor = define_tensor(fusion, list(shape), True)
    for _ in range(copies):
        tensor = copy_tensor(fusion, tensor)
    add_output(fusion, tensor)
    return fusion
