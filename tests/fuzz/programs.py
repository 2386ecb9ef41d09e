"""Random programs as data: inputs, calls of `fd.ops`, outputs, and the arguments of each execution.

A program is plain data so that it can be kept as JSON, made smaller piece by piece and printed as a script.
What it must give is stated by `evaluate`, in torch and with error bounds (see `bounded`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

import torch

from fusewright import DataType, FusionDefinition
from tests.fuzz import values as input_values
from tests.fuzz.bounded import Bounded, convert, exact
from tests.fuzz.operations import OPERATIONS
from tests.fuzz.values import strided

#: The described GPU that most programs are simulated on, and others, whose schedules differ.
USUAL_GPU, OTHER_GPUS = "h200", ("a100", "l4", "b200")

#: How an input may be defined. `symbolic`: from_pytorch; `static`: from_pytorch with static sizes; `strided`:
#: define_tensor(sizes, strides), each as the tensor of the first execution is; `number`: a scalar of the same
#: value in all executions.
FORMS = ("define_tensor", "symbolic", "static", "strided", "cpu_scalar", "scalar", "number")


@dataclass(frozen=True)
class Input:
    """How one input is defined.

    shape, contiguity and stride_order: of the form `define_tensor`. twin: the number of an earlier input, if
    calls pass one tensor for both.
    """

    dtype: DataType
    form: str
    shape: tuple[int, ...] = ()
    contiguity: bool | tuple[bool | None, ...] = False
    stride_order: tuple[int, ...] = ()
    twin: int | None = None

    @property
    def is_tensor(self) -> bool:
        return self.form not in ("scalar", "number", "cpu_scalar")

    @property
    def is_scalar(self) -> bool:
        """Whether it is defined by define_scalar."""
        return self.form in ("scalar", "number")


@dataclass(frozen=True)
class TensorArgument:
    """A tensor that is passed: see `values.strided`. below: of index tensors."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    seed: int
    conj: bool = False
    below: int | None = None

    def make(self, dtype: DataType) -> torch.Tensor:
        return strided(dtype.torch, self.shape, self.strides, self.offset, self.seed, self.conj, self.below)


Argument = TensorArgument | bool | int | float | complex


@dataclass(frozen=True)
class Ref:
    """Value number `index` of the program: its inputs, then the results of its calls."""

    index: int


@dataclass(frozen=True)
class Extent:
    """The size of one dimension of a value, as an operand."""

    value: int
    dim: int


@dataclass(frozen=True)
class Call:
    """`fd.ops.<op>(*args, **kwargs)`; `results`: how many values it makes, in a tuple if not just one."""

    op: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()
    results: int = 1


@dataclass(frozen=True)
class Output:
    """An output, with a memory order or the input into which it is written."""

    value: int
    stride_order: tuple[int, ...] | None = None
    alias: int | None = None


@dataclass
class Program:
    """A definition, and the arguments of each execution: one an input. gpu: what the simulator stands for."""

    inputs: list[Input] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    executions: list[list[Argument]] = field(default_factory=list)
    gpu: str = USUAL_GPU

    @property
    def returned(self) -> list[Output]:
        """The outputs that `execute` returns."""
        return [output for output in self.outputs if output.alias is None]

    def home(self, index: int) -> int:
        """The first input whose tensor is that of input `index`."""
        twin = self.inputs[index].twin
        if twin is None or any(execution[index] != execution[twin] for execution in self.executions):
            return index
        return twin


# ---- Fusewright's side -------------------------------------------------------------------------------------


def define(program: Program, fd: FusionDefinition, first: Sequence[Any]) -> None:
    """Writes the program down inside `with FusionDefinition() as fd`; `first`: of the first execution."""
    made = [_declared(fd, spec, tensor) for spec, tensor in zip(program.inputs, first)]
    for call in program.calls:
        args = [_handles(arg, made) for arg in call.args]
        results = getattr(fd.ops, call.op)(*args, **dict(call.kwargs))
        made += results if isinstance(results, tuple) else [results]
    for output in program.outputs:
        if output.alias is not None:
            fd.add_output(made[output.value], alias_input=made[output.alias])
        elif output.stride_order is not None:
            fd.add_output(made[output.value], stride_order=list(output.stride_order))
        else:
            fd.add_output(made[output.value])


def _declared(fd: FusionDefinition, spec: Input, tensor: Any) -> Any:
    if spec.is_scalar:
        return fd.define_scalar(None, spec.dtype)
    if spec.form == "cpu_scalar":
        return fd.define_tensor([], [], spec.dtype, is_cpu=True)
    if spec.form == "symbolic":
        return fd.from_pytorch(tensor)
    if spec.form == "static":
        return fd.from_pytorch(tensor, static_sizes=True)
    if spec.form == "strided":
        return fd.define_tensor(sizes=list(tensor.shape), strides=list(tensor.stride()), dtype=spec.dtype)
    contiguity = spec.contiguity if isinstance(spec.contiguity, bool) else list(spec.contiguity)
    return fd.define_tensor(
        list(spec.shape), contiguity=contiguity, dtype=spec.dtype, stride_order=list(spec.stride_order)
    )


def _handles(value: Any, made: Sequence[Any]) -> Any:
    if isinstance(value, Ref):
        return made[value.index]
    if isinstance(value, Extent):
        return made[value.value].size(value.dim)
    return [_handles(item, made) for item in value] if isinstance(value, (list, tuple)) else value


def arguments(program: Program, execution: int) -> list[Any]:
    """The tensors and numbers of one execution, on the CPU."""
    return [make_argument(s, a) for s, a in zip(program.inputs, program.executions[execution])]


def make_argument(spec: Input, argument: Argument) -> Any:
    """One tensor or number that is passed."""
    if isinstance(argument, TensorArgument):
        return argument.make(spec.dtype)
    return torch.tensor(argument, dtype=spec.dtype.torch) if spec.form == "cpu_scalar" else argument


# ---- torch's side ------------------------------------------------------------------------------------------


def input_value(spec: Input, argument: Any) -> Bounded:
    """What a tensor or number that is passed is worth."""
    return exact(argument, dtype=spec.dtype) if spec.is_scalar else exact(argument)


def evaluate(program: Program, given: Sequence[Any]) -> list[Bounded]:
    """All values of the program for these inputs."""
    found = [input_value(spec, value) for spec, value in zip(program.inputs, given)]
    for call in program.calls:
        results = OPERATIONS[call.op](
            *[operand(arg, found.__getitem__) for arg in call.args], **dict(call.kwargs)
        )
        found += results if isinstance(results, tuple) else (results,)
    return found


def operand(value: Any, value_of: Callable[[int], Bounded]) -> Any:
    """An argument of a call as `OPERATIONS` take it."""
    if isinstance(value, Ref):
        return value_of(value.index)
    if isinstance(value, Extent):
        return value_of(value.value).data.shape[value.dim]
    return [operand(v, value_of) for v in value] if isinstance(value, (list, tuple)) else value


def written_value(program: Program, output: Output, found: Sequence[Bounded]) -> Bounded:
    """What an output is worth: where it aliases an input, in that input's type."""
    value = found[output.value]
    return value if output.alias is None else convert(value, program.inputs[output.alias].dtype.torch)


# ---- as JSON -----------------------------------------------------------------------------------------------


def to_json(program: Program) -> dict[str, Any]:
    """The program as JSON's types."""
    return {
        "inputs": [
            [i.dtype.name, i.form, list(i.shape), _plain(i.contiguity), list(i.stride_order), i.twin]
            for i in program.inputs
        ],
        "calls": [
            [c.op, [_plain(a) for a in c.args], {name: _plain(v) for name, v in c.kwargs}, c.results]
            for c in program.calls
        ],
        "outputs": [[o.value, _plain(o.stride_order), o.alias] for o in program.outputs],
        "executions": [[_plain(a) for a in execution] for execution in program.executions],
        "gpu": program.gpu,
    }


def from_json(data: dict[str, Any]) -> Program:
    """The program that `to_json` gave."""
    return Program(
        [Input(DataType[i[0]], i[1], tuple(i[2]), _object(i[3]), tuple(i[4]), i[5]) for i in data["inputs"]],
        [
            Call(c[0], tuple(map(_object, c[1])), tuple((name, _object(v)) for name, v in c[2].items()), c[3])
            for c in data["calls"]
        ],
        [Output(o[0], _object(o[1]), o[2]) for o in data["outputs"]],
        [[_object(a) for a in execution] for execution in data["executions"]],
        data["gpu"],
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Ref):
        return {"ref": value.index}
    if isinstance(value, Extent):
        return {"extent": [value.value, value.dim]}
    if isinstance(value, DataType):
        return {"dtype": value.name}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, TensorArgument):
        return {"tensor": [_plain(part) for part in astuple(value)]}
    if isinstance(value, dict):
        return {name: _plain(v) for name, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def _object(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_object(v) for v in value)
    if not isinstance(value, dict):
        return value
    if "ref" in value:
        return Ref(value["ref"])
    if "extent" in value:
        return Extent(*value["extent"])
    if "dtype" in value:
        return DataType[value["dtype"]]
    if "complex" in value:
        return complex(*value["complex"])
    if "tensor" in value:
        shape, strides, *others = value["tensor"]
        return TensorArgument(tuple(shape), tuple(strides), *others)
    return {name: _object(v) for name, v in value.items()}


# ---- as a script -------------------------------------------------------------------------------------------


def to_script(program: Program, device: str = "cpu") -> str:
    """A script that defines the program and, for each execution, compares it with torch's own result."""
    lines = ["import torch", "", "from fusewright import DataType, FusionDefinition", ""]
    if any(spec.is_tensor for spec in program.inputs):
        lines += ["", inspect.getsource(input_values.values), ""]
        lines += [inspect.getsource(input_values.span), "", inspect.getsource(input_values.strided), ""]
        lines = [line.replace("Sequence[int]", "list") for line in lines]
    lines.append("executions = [")
    for execution in program.executions:
        parts = [_argument_text(s, a, device) for s, a in zip(program.inputs, execution)]
        lines += ["    [", *(f"        {part}," for part in parts), "    ],"]
    lines.append("]")
    for i in range(len(program.inputs)):
        if program.home(i) != i:
            lines += ["for inputs in executions:", f"    inputs[{i}] = inputs[{program.home(i)}]"]
    options = "" if program.gpu == USUAL_GPU else f"options=Options(sim_device={program.gpu!r})"
    if options:
        lines.insert(3, "from fusewright.core.options import Options")
    lines.append(f"with FusionDefinition({options}) as fd:")
    names = [f"{'S' if not s.is_tensor else 'T'}{i}" for i, s in enumerate(program.inputs)]
    lines += [f"    {_declaration_text(s, i, names[i])}" for i, s in enumerate(program.inputs)]
    for call in program.calls:
        made = [f"T{len(names) + k}" for k in range(call.results)]
        parts = [_operand_text(a, names) for a in call.args]
        parts += [f"{name}={_operand_text(a, names)}" for name, a in call.kwargs]
        lines.append(f"    {', '.join(made)} = fd.ops.{call.op}({', '.join(parts)})")
        names += made
    for output in program.outputs:
        more = "" if output.alias is None else f", alias_input={names[output.alias]}"
        if output.stride_order is not None:
            more = f", stride_order={list(output.stride_order)}"
        lines.append(f"    fd.add_output({names[output.value]}{more})")
    lines += ["for inputs in executions:", "    fd.validate(inputs)", ""]
    return "\n".join(lines)


def _argument_text(spec: Input, argument: Argument, device: str) -> str:
    if isinstance(argument, TensorArgument):
        more = ", conj=True" if argument.conj else ""
        more += "" if argument.below is None else f", below={argument.below}"
        more += "" if device == "cpu" else f", device={device!r}"
        shape, strides = list(argument.shape), list(argument.strides)
        return f"strided({spec.dtype.torch}, {shape}, {strides}, {argument.offset}, {argument.seed}{more})"
    return (
        f"torch.tensor({argument}, dtype={spec.dtype.torch})" if spec.form == "cpu_scalar" else f"{argument}"
    )


def _declaration_text(spec: Input, index: int, name: str) -> str:
    dtype = f"dtype=DataType.{spec.dtype.name}"
    if spec.is_scalar:
        return f"{name} = fd.define_scalar(None, {dtype})"
    if spec.form == "cpu_scalar":
        return f"{name} = fd.define_tensor([], [], {dtype}, is_cpu=True)"
    given = f"executions[0][{index}]"
    if spec.form == "strided":
        return f"{name} = fd.define_tensor(sizes={given}.shape, strides={given}.stride(), {dtype})"
    if spec.form in ("symbolic", "static"):
        static = ", static_sizes=True" if spec.form == "static" else ""
        return f"{name} = fd.from_pytorch({given}{static})"
    contiguity = spec.contiguity if isinstance(spec.contiguity, bool) else list(spec.contiguity)
    order = f", stride_order={list(spec.stride_order)}" if spec.stride_order else ""
    return f"{name} = fd.define_tensor({list(spec.shape)}, contiguity={contiguity}, {dtype}{order})"


def _operand_text(value: Any, names: Sequence[str]) -> str:
    if isinstance(value, Ref):
        return names[value.index]
    if isinstance(value, Extent):
        return f"{names[value.value]}.size({value.dim})"
    if isinstance(value, DataType):
        return f"DataType.{value.name}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_operand_text(v, names) for v in value)}]"
    return f'float("{value}")' if isinstance(value, float) and value - value != 0 else repr(value)
