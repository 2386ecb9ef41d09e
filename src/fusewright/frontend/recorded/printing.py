"""Definitions as Python text that runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from fusewright.core.dtype import DataType
from fusewright.cuda.printer import CudaSource
from fusewright.frontend.recorded.records import Arg, Literal, Record, Ref, decode
from fusewright.frontend.recorded.states import Container, Outcome, numbered_outcomes
from fusewright.host.program.plan import LaunchPlan
from fusewright.host.program.programs import BoundProgram
from fusewright.ops import DEFINERS, REGISTERED


def number_text(value: bool | int | float | complex) -> str:
    """A number as Python text that evaluates to it: six digits where those are enough, as C++ shows them."""
    if isinstance(value, complex):
        parts = (value.real, value.imag)
        # re+imj loses the sign of a zero, and cannot say inf or nan.
        if all(math.isfinite(p) and (p != 0 or math.copysign(1, p) > 0) for p in parts):
            return f"({number_text(value.real)}{'' if value.imag < 0 else '+'}{number_text(value.imag)}j)"
        return f"complex({number_text(value.real)}, {number_text(value.imag)})"
    if not isinstance(value, float):
        return repr(value)
    if not math.isfinite(value):
        return f'float("{value}")'
    short = f"{value:#.6g}"
    return short if float(short) == value else repr(value)


def _argument(arg: Arg, names: Sequence[str]) -> str:
    if isinstance(arg, Ref):
        return names[arg.state]
    if isinstance(arg, Literal):
        value = decode(arg, ())
        if isinstance(value, (bool, int, float, complex)):
            return number_text(value)
        return str(value) if isinstance(value, DataType) else repr(value)
    return "[" + ", ".join(_argument(item, names) for item in arg) + "]"


def _is_absent(arg: Arg, default: Any) -> bool:
    """Whether an argument is an absent option, which is not printed."""
    if arg == Literal(type(None), None):
        return default is None
    return arg == () and default == ()


def _line(record: Record, outcome: Outcome, results: Sequence[str], names: Sequence[str]) -> str:
    arguments = []
    by_keyword = False
    for parameter, arg in zip(record.row.parameters, record.args):
        is_symbolic = record.op == "define_scalar" and parameter.name == "value"
        if _is_absent(arg, parameter.default) and not is_symbolic:
            by_keyword = True  # what comes next no longer stands in its place
            continue
        text = _argument(arg, names)
        by_keyword = by_keyword or (parameter.by_keyword and parameter.name != "value")
        arguments.append(f"{parameter.name}={text}" if by_keyword else text)
    prefix = "fd" if record.op in DEFINERS else "fd.ops"
    # One result in a list or tuple is taken out of it.
    comma = "," if len(results) == 1 and outcome.container is not Container.ONE else ""
    target = f"{', '.join(results)}{comma} = " if results else ""
    return f"{target}{prefix}.{record.row.name}({', '.join(arguments)})"


def definition_lines(
    records: Iterable[Record], outcomes: Iterable[Outcome]
) -> Iterator[tuple[list[str], str]]:
    """For each record the names of what it makes, and its line."""
    names: list[str] = []
    for record, (first, outcome) in zip(records, numbered_outcomes(outcomes)):
        names += [""] * (first - len(names))
        results = [f"{s.kind.value}{first + i}" for i, s in enumerate(outcome.states)]
        names += results
        yield results, _line(record, outcome, results, names)


def definition_text(records: Iterable[Record], outcomes: Iterable[Outcome], number: int | None = None) -> str:
    """The records as a function of `fd`; `number` is the id of a complete definition."""
    name = "nvfuser_incomplete_fusion" if number is None else f"nvfuser_fusion_id{number}"
    lines = ["", f"def {name}(fd : FusionDefinition) -> None :"]
    lines += [f"    {line}" for _, line in definition_lines(records, outcomes)]
    if len(lines) == 2:
        lines.append("    pass")
    return "\n".join([*lines, ""])


# ---- scripts that reproduce a run --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InputDescription:
    """What a script needs to know of a tensor to make one like it. Holds no memory of the tensor."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


Input = Any  # an InputDescription, a tensor, or a Python number


def describe(value: Any) -> InputDescription | Any:
    """The description of a tensor; a number is its own."""
    if not isinstance(value, torch.Tensor):
        return value
    return InputDescription(tuple(value.shape), tuple(value.stride()), value.dtype, value.device)


def made_like(value: InputDescription | Any) -> torch.Tensor | Any:
    """An uninitialised tensor of a description; a number is its own."""
    if not isinstance(value, InputDescription):
        return value
    return torch.empty_strided(value.sizes, value.strides, dtype=value.dtype, device=value.device)


def _environment() -> list[str]:
    """Comment lines that say where a script was made."""
    lines = ["# CUDA devices:"]
    if torch.cuda.is_available():
        lines += [f"#  {i}: {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
    return [*lines, f"# torch version: {torch.__version__}", f"# cuda version: {torch.version.cuda}"]


def _row_major(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(sizes[i + 1 :]) for i in range(len(sizes)))


def _input_text(value: Input) -> str:
    tensor = describe(value)
    if not isinstance(tensor, InputDescription):
        return number_text(tensor)
    sizes, strides = tensor.sizes, tensor.strides
    options = f"dtype={tensor.dtype}, device='{tensor.device}'"
    if tensor.dtype == DataType.Float4_e2m1fn_x2.torch:  # of which torch makes none but from bytes
        bytes_ = _input_text(replace(tensor, dtype=DataType.Float4_e2m1fn_x2.values))
        return f"{bytes_}.view({tensor.dtype})"
    if strides == _row_major(sizes):
        return f"torch.testing.make_tensor({sizes}, {options})"
    # As many elements as the strides reach over.
    span = 1 + sum((n - 1) * s for n, s in zip(sizes, strides)) if math.prod(sizes) else 0
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        base = f"torch.randn({span}, {options})"
    else:
        base = f"torch.randint(0, {2 if tensor.dtype == torch.bool else 10}, ({span},), {options})"
    return f"{base}.as_strided({sizes}, {strides})"


def repro_script(
    records: Sequence[Record],
    outcomes: Sequence[Outcome],
    number: int | None,
    inputs: Sequence[Input] | None = None,
    options: Mapping[str, Any] | None = None,
) -> str:
    """A script that makes the definition and, with `inputs`, runs it on tensors like them."""
    text = definition_text(records, outcomes, number)
    name = "nvfuser_incomplete_fusion" if number is None else f"nvfuser_fusion_id{number}"
    registered = dict.fromkeys(record.row.name for record in records if record.op in REGISTERED)
    lines = [
        *_environment(),
        *(
            f"# fusewright.register_op has to make the operation {operation} first"
            for operation in registered
        ),
        "import torch",
        "from fusewright import FusionDefinition, DataType",
        text,
        "with FusionDefinition() as fd:",
        f"    {name}(fd)",
    ]
    if inputs is not None:
        arguments = "".join(f", {key}={value!r}" for key, value in (options or {}).items() if value)
        lines += ["", "inputs = [", *(f"    {_input_text(value)}," for value in inputs), "]"]
        lines.append(f"fd.execute(inputs{arguments})")
    return "\n".join(lines) + "\n"


def scheduled_text(launches: Sequence[LaunchPlan], transforms: bool) -> str:
    """The scheduled fusion of each launch, in the definition's names; with `transforms`, how each tensor's
    loop axes were made.
    """
    found: dict[str, None] = {}
    for part in (part for launch in launches for part in launch.parts):
        text = part.op.kernel.scheduled_ir(transforms)
        found[text if part.segment is None else part.segment.names.translated(text)] = None
    return "\n".join(found)


def cuda_text(program: BoundProgram, complete: bool) -> str:
    """The CUDA text of each kernel, or its complete source, below what its names stand for in each launch."""
    found: dict[str, tuple[CudaSource, list[str]]] = {}
    for launch in program.launches:
        shape = program.shapes[launch]
        source = launch.op.kernel.source_for(None if shape is None else shape.threads)
        comments = found.setdefault(source.text, (source, []))[1]
        for i, part in enumerate(launch.parts):
            names = "" if part.segment is None else str(part.segment.names)
            if names:
                comments.append(f"// {f'in part p{i} ' if launch.is_combined else ''}where {names}\n")
    return "\n".join(
        f"{''.join(comments)}{source.text if complete else source.kernel}"
        for source, comments in found.values()
    )
