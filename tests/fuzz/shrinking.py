"""Makes a program that shows a finding smaller while it still does."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from fusewright import DataType
from tests.fuzz.programs import USUAL_GPU, Call, Extent, Input, Output, Program, Ref, TensorArgument
from tests.fuzz.running import Finding, Outcome
from tests.fuzz.values import contiguous_strides

Run = Callable[[Program], Outcome]


def shrink(program: Program, finding: Finding, run: Run, seconds: float) -> tuple[Program, Finding]:
    """The smallest program found in this time that shows a finding of the same class, and that finding."""
    deadline = time.monotonic() + seconds
    best, shown = program, finding
    improved = True
    while improved:
        improved = False
        for edit in EDITS:
            again = True
            while again:
                again = False
                for candidate in edit(best, shown.execution):
                    if time.monotonic() > deadline:
                        return best, shown
                    found = run(candidate).finding
                    if found is not None and _same_class(found, finding):
                        best, shown, again, improved = candidate, found, True, True
                        break
    return best, shown


def _same_class(found: Finding, finding: Finding) -> bool:
    return found.kind == finding.kind and (found.kind == "wrong result" or found.head == finding.head)


def _fewer_executions(program: Program, execution: int) -> Iterator[Program]:
    if len(program.executions) > 1:
        yield replace(program, executions=[program.executions[execution]])
        for i in range(len(program.executions)):
            yield replace(program, executions=program.executions[:i] + program.executions[i + 1 :])


def _fewer_outputs(program: Program, execution: int) -> Iterator[Program]:
    if len(program.outputs) > 2:
        for output in program.outputs:
            yield without_unused(replace(program, outputs=[output]))
    if len(program.outputs) > 1:
        for i in range(len(program.outputs)):
            yield without_unused(replace(program, outputs=program.outputs[:i] + program.outputs[i + 1 :]))
    if program.gpu != USUAL_GPU:
        yield replace(program, gpu=USUAL_GPU)
    for i, spec in enumerate(program.inputs):
        if spec.twin is not None:
            apart = [*program.inputs[:i], replace(spec, twin=None), *program.inputs[i + 1 :]]
            yield replace(program, inputs=apart)
    for i, output in enumerate(program.outputs):
        if output.stride_order is not None:
            plain = Output(output.value, None, output.alias)
            yield replace(program, outputs=[*program.outputs[:i], plain, *program.outputs[i + 1 :]])


def _fewer_calls(program: Program, execution: int) -> Iterator[Program]:
    """What one call gives alone; or a call left out, one of its operands taken in its place."""
    starts = _first_results(program)
    for start in starts[:-1]:  # those that come after it are left out
        if [o.value for o in program.outputs] != [start]:
            yield without_unused(replace(program, outputs=[Output(start)]))
    for position in reversed(range(len(program.calls))):
        call, start = program.calls[position], starts[position]
        for other in dict.fromkeys(_refs(call.args)):
            places = {start + k: other for k in range(call.results)}
            yield without_unused(_substituted(program, places))


def _first_results(program: Program) -> list[int]:
    """The number of the first result of each call."""
    starts, index = [], len(program.inputs)
    for call in program.calls:
        starts.append(index)
        index += call.results
    return starts


def _refs(value: Any) -> list[int]:
    if isinstance(value, Ref):
        return [value.index]
    return [i for v in value for i in _refs(v)] if isinstance(value, (list, tuple)) else []


def _mentioned(value: Any) -> list[int]:
    """The values that an argument is, or is a size of."""
    if isinstance(value, (Ref, Extent)):
        return [value.index if isinstance(value, Ref) else value.value]
    return [i for v in value for i in _mentioned(v)] if isinstance(value, (list, tuple)) else []


def _mapped(value: Any, number: Callable[[int], int]) -> Any:
    if isinstance(value, Ref):
        return Ref(number(value.index))
    if isinstance(value, Extent):
        return Extent(number(value.value), value.dim)
    return tuple(_mapped(v, number) for v in value) if isinstance(value, (list, tuple)) else value


def _substituted(program: Program, places: dict[int, int]) -> Program:
    """The program with some values used in the place of others."""

    def other(index: int) -> int:
        return places.get(index, index)

    calls = [replace(c, args=_mapped(c.args, other)) for c in program.calls]
    return replace(program, calls=calls, outputs=[replace(o, value=other(o.value)) for o in program.outputs])


def without_unused(program: Program) -> Program:
    """The program without the calls and inputs that no output depends on."""
    starts, inputs = _first_results(program), len(program.inputs)
    needed = {o.value for o in program.outputs} | {o.alias for o in program.outputs if o.alias is not None}
    kept: list[int] = []
    for position in reversed(range(len(program.calls))):
        call = program.calls[position]
        if any(starts[position] + k in needed for k in range(call.results)):
            needed |= {*_mentioned(call.args)}
            kept.insert(0, position)
    number: dict[int, int] = {}
    for index in range(inputs):
        if index in needed:
            number[index] = len(number)
    used_inputs = list(number)
    calls: list[Call] = []
    count = len(number)
    for position in kept:
        call = program.calls[position]
        calls.append(replace(call, args=_mapped(call.args, number.__getitem__)))
        for k in range(call.results):
            number[starts[position] + k] = count
            count += 1
    outputs = [
        Output(number[o.value], o.stride_order, None if o.alias is None else number[o.alias])
        for o in program.outputs
    ]
    executions = [[e[i] for i in used_inputs] for e in program.executions]
    inputs_left = [
        replace(spec, twin=None if spec.twin is None else number.get(spec.twin))
        for spec in (program.inputs[i] for i in used_inputs)
    ]
    return replace(program, inputs=inputs_left, calls=calls, outputs=outputs, executions=executions)


# ---- inputs ------------------------------------------------------------------------------------------------


def _smaller_sizes(program: Program, execution: int) -> Iterator[Program]:
    """All dimensions of one size made smaller."""
    sizes = {n for e in program.executions for a in e if isinstance(a, TensorArgument) for n in a.shape}
    sizes |= {n for spec in program.inputs for n in spec.shape if n > 1}
    for size in sorted(sizes, reverse=True):
        for smaller in sorted({1, 2, 3, size // 2, size - 1}):
            if 0 < smaller < size:
                yield _resized(program, {size: smaller})


def _resized(program: Program, sizes: dict[int, int]) -> Program:
    inputs = [replace(s, shape=tuple(sizes.get(n, n) for n in s.shape)) for s in program.inputs]
    executions = [
        [_resized_tensor(a, sizes) if isinstance(a, TensorArgument) else a for a in e]
        for e in program.executions
    ]
    return replace(program, inputs=inputs, executions=executions)


def _resized_tensor(tensor: TensorArgument, sizes: dict[int, int]) -> TensorArgument:
    """The tensor with other sizes, in the same order and with the same gaps."""
    shape = tuple(sizes.get(n, n) for n in tensor.shape)
    order = sorted(range(len(shape)), key=lambda d: (tensor.strides[d], -d))
    strides = [0] * len(shape)
    expected = span = 1
    for dim in order:
        if tensor.strides[dim]:
            strides[dim] = max(span + tensor.strides[dim] - expected, 1)
            expected = tensor.strides[dim] * max(tensor.shape[dim], 1)
            span = strides[dim] * max(shape[dim], 1)
    below = tensor.below and sizes.get(tensor.below, tensor.below)
    return replace(tensor, shape=shape, strides=tuple(strides), below=below)


def _plainer(program: Program, execution: int) -> Iterator[Program]:
    """Inputs that are aligned, contiguous, of Float and declared in the simplest way."""
    for i, spec in enumerate(program.inputs):
        if not spec.is_tensor:
            continue
        column = [a for a in (e[i] for e in program.executions) if isinstance(a, TensorArgument)]
        if any(a.conj for a in column):
            yield _with_input(program, i, spec, [replace(a, conj=False) for a in column])
        if any(a.offset for a in column):
            yield _with_input(program, i, spec, [replace(a, offset=0) for a in column])
        simple = Input(spec.dtype, "define_tensor", _symbolic(spec, column[0].shape), True)
        dense = [replace(a, strides=contiguous_strides(a.shape)) for a in column]
        if dense != column:
            yield _with_input(program, i, simple, dense)
        if spec.form != "define_tensor" or spec.contiguity is not True:
            yield _with_input(program, i, simple, column)
        if spec.dtype is not DataType.Float:
            yield _with_input(program, i, replace(spec, dtype=DataType.Float), column)


def _symbolic(spec: Input, shape: Sequence[int]) -> tuple[int, ...]:
    """The sizes of a definition that serves this shape."""
    if spec.form == "define_tensor":
        return spec.shape
    return tuple(1 if n == 1 else n if spec.form == "static" else -1 for n in shape)


def _with_input(program: Program, index: int, spec: Input, column: Sequence[Any]) -> Program:
    inputs = [*program.inputs[:index], spec, *program.inputs[index + 1 :]]
    executions = [[*e[:index], a, *e[index + 1 :]] for e, a in zip(program.executions, column)]
    return replace(program, inputs=inputs, executions=executions)


def size_of(program: Program) -> tuple[int, int, int]:
    """For choosing the smallest of several programs: calls, inputs, elements."""
    elements = sum(math.prod(a.shape) for e in program.executions for a in e if isinstance(a, TensorArgument))
    return len(program.calls) + len(program.outputs), len(program.inputs), elements


#: Each gives smaller programs, the smallest first. `execution`: the number of the one that shows the finding.
EDITS: tuple[Callable[[Program, int], Iterator[Program]], ...] = (
    _fewer_executions,
    _fewer_outputs,
    _fewer_calls,
    _smaller_sizes,
    _plainer,
)
