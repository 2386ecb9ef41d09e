"""A host program as one straight-line Python function.

The text uses names for the values that a signature determines (shapes, launches, constant arguments). So one
compilation serves all signatures: binding a program makes a closure over other values.
"""

from __future__ import annotations

import builtins
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fusewright.core.dtype import integers_of
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
    TakeOver,
    View,
)
from fusewright.ir import Scalar, TensorView, Val
from fusewright.runtime.arguments import Pointer, Value, Workspace

Program = Callable[[Sequence[Any]], list[torch.Tensor]]

_INDENT = " " * 4
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")


@dataclass(frozen=True, eq=False)
class HostCode:
    """The text of a program's function, `run(inputs)`."""

    source: str

    def used(self, names: Iterable[str]) -> tuple[str, ...]:
        """The names among `names` that the text uses."""
        words = set(_WORD.findall(self.source))
        return tuple([name for name in names if name in words])

    def function(
        self, constants: Mapping[str, Any], parameters: Sequence[str] = ()
    ) -> Callable[..., Program]:
        """A function from the values of `parameters` to the program.

        `constants` and `parameters` together must contain the names that the text uses (see `codegen`).
        """
        inner = textwrap.indent(self.source, _INDENT)
        source = f"def make({', '.join(parameters)}):\n{inner}{_INDENT}return run\n"
        # When torch calls back into Python, it reads `__import__` from the builtins of this namespace.
        namespace: dict[str, Any] = {"__builtins__": builtins, **constants}
        exec(compile(source, "<fusewright host program>", "exec"), namespace)
        made: Callable[..., Program] = namespace["make"]
        return made


def codegen(program: HostProgram, takes_pointers: bool, has_stream: bool, several_devices: bool) -> HostCode:
    """Writes and compiles the function `run(inputs)`.

    The caller binds the names that the function uses:

    - for a tensor T3 that is allocated: `shape_T3`, `stride_T3`, `dtype_T3`;
    - for a tensor T3 that is a view: `shape_T3`, `stride_T3`, `offset_T3`;
    - for an input T3: `bytes_T3`, from its first element to the end of its last; negative if it has none;
    - for launch i: `launch_i`;
    - for argument j of launch i: `c<i>_<j>` if it is constant, `as<i>_<j>` if it is converted,
      `alloc_work<i>_<j>` if it is a zeroed workspace, `shape_work<i>_<j>` and `dtype_work<i>_<j>` if it is
      any other workspace;
    - for segment i that torch computes: `call_i`, or `over_i` if the result takes the memory of an operand,
      and `refused_i`, which translates an error of torch;
    - for argument j of that segment: `look<i>_<j>` if it is a view, which this function makes;
    - for a tensor T3 that torch computes: `lay_out_T3`;
    - for a scalar s: `fixed_s` if a signature fixes it, `eval_s` if it is computed;
    - besides: `draw`, `empty`, `stream`, `current_device`, `device_index`, `on_device`, `copy_into`,
      `conjugated`, `keep_apart`, `view`, `no_storage`, `records_gradients`, `record_gradients`,
      `autocasts`, `without_autocast`.

    Args:
        takes_pointers: whether launches take addresses of tensors.
        has_stream: whether launches go to a stream, or an argument depends on it.
        several_devices: whether a device other than the tensors' may be current.
    """
    writer = _Writer(program, takes_pointers)
    lines: list[str] = []
    if several_devices:
        lines += ["if current_device() != device_index:", f"{_INDENT}with on_device():"]
        lines.append(f"{_INDENT * 2}return run(inputs)")
    if any(isinstance(op, Evaluate) for op in program.operations):
        lines += _PLAIN_TORCH
    names = [writer.input_name(value) for value in program.inputs]
    lines.append(f"{', '.join(names)}, = inputs" if names else "() = inputs")
    for value in program.inputs:
        if isinstance(value, TensorView):
            lines += writer.check_storage(value)
            if value.dtype.is_complex and not value.is_cpu:
                lines.append(f"if {value.name}.is_conj(): {value.name} = conjugated({value.name})")
        elif value not in program.static:
            lines += writer.check_integer(value)
    lines.append("s = stream()" if has_stream else "s = 0")
    for operation in program.operations:
        lines += writer.write(operation)
    return HostCode("def run(inputs):\n" + textwrap.indent("\n".join(lines), _INDENT) + "\n")


# A definition computes no gradients and states its types. So the program leaves torch's modes that would
# record gradients or change types.
_PLAIN_TORCH = [
    "if records_gradients():",
    f"{_INDENT}record_gradients(False)",
    f"{_INDENT}try: return run(inputs)",
    f"{_INDENT}finally: record_gradients(True)",
    "if autocasts():",
    f"{_INDENT}with without_autocast(): return run(inputs)",
]


class _Writer:
    """Writes operations as statements. Each class of operations has a method (`_WRITE`)."""

    def __init__(self, program: HostProgram, takes_pointers: bool) -> None:
        self.program = program
        self.takes_pointers = takes_pointers
        made = {op.tensor for op in program.operations if isinstance(op, Allocate)}
        made.update(op.tensor for op in program.operations if isinstance(op, TakeOver))
        made.update(t for op in program.operations if isinstance(op, Evaluate) for t in op.outputs)
        self.in_place = program.memory.keys() - made
        #: the names of the tensors whose addresses are in variables `at_<name>`
        self.addressed = {
            t.name for op in program.operations if isinstance(op, KeepApart) for t in op.tensors
        }

    def write(self, operation: Operation) -> list[str]:
        return _WRITE[type(operation)](self, operation)

    # ---- names

    def input_name(self, value: Val) -> str:
        return value.name if isinstance(value, TensorView) else f"scalar_{value.name}"

    def name(self, value: Val) -> str:
        """The variable of a tensor, or the expression of a scalar's value."""
        if isinstance(value, TensorView):
            return value.name
        if value.value is not None or value in self.program.static:
            return f"fixed_{value.name}"
        is_size = value.definition is None and value not in self.program.inputs
        return f"fixed_{value.name}" if is_size else f"scalar_{value.name}"

    def home(self, tensor: TensorView) -> str:
        """The variable of the memory where a kernel reads or writes the tensor."""
        return self.program.memory[tensor].name if tensor in self.in_place else tensor.name

    def pointer(self, name: str) -> str:
        """The argument of a launch for the tensor in variable `name`: its address, or the tensor itself."""
        if not self.takes_pointers:
            return name
        return f"at_{name}" if name in self.addressed else f"{name}.data_ptr()"

    # ---- operations

    def check_storage(self, tensor: TensorView) -> list[str]:
        """Checks at each call that the storage holds the tensor.

        A storage may be resized between calls while all other properties of the tensor stay the same.
        """
        name = tensor.name
        end = f"bytes_{name} + {name}.storage_offset() * {tensor.dtype.torch.itemsize}"
        return [f"if len({name}.untyped_storage()) < {end}: no_storage({name})"]

    def check_integer(self, scalar: Val) -> list[str]:
        """Checks at each call that an integer is in the range of its type.

        A launch refuses a float out of range, but may round or wrap an integer.
        """
        if scalar.dtype.is_bool:
            return []
        name, (low, high) = self.input_name(scalar), integers_of(scalar.dtype)
        return [
            f"if {name}.__class__ is int and not {low} <= {name} <= {high}:",
            f"{_INDENT}raise OverflowError({name!r})",
        ]

    def read_host_tensor(self, op: ReadHostTensor) -> list[str]:
        return [f"value_{op.tensor.name} = {op.tensor.name}.item()"]

    def evaluate_scalar(self, op: EvaluateScalar) -> list[str]:
        (result,) = op.node.outputs
        operands = ", ".join(self.name(v) for v in op.node.inputs)
        return [f"scalar_{result.name} = eval_{result.name}({operands})"]

    def draw(self, op: DrawRandomState) -> list[str]:
        return [f"{', '.join(self.name(v) for v in op.node.outputs)} = draw()"]

    def allocate(self, op: Allocate) -> list[str]:
        name = op.tensor.name
        return [f"{name} = empty(shape_{name}, stride_{name}, dtype_{name})"]

    def take_over(self, op: TakeOver) -> list[str]:
        return [f"{op.tensor.name} = {op.base.name}"]

    def workspace(self, op: AllocateWorkspace) -> list[str]:
        if op.zeroed:
            return [f"{op.name} = alloc_{op.name}(s)"]
        return [f"{op.name} = empty(shape_{op.name}, (1,), dtype_{op.name})"]

    def launch(self, op: LaunchKernel) -> list[str]:
        arguments: list[str] = []
        for j, (param, source) in enumerate(zip(op.kernel.kernel.params, op.kernel.arguments)):
            if isinstance(source, Pointer):
                tensor = op.values[source.slot]
                assert isinstance(tensor, TensorView)
                arguments.append(self.pointer(self.home(tensor)))
            elif isinstance(source, Workspace):
                arguments.append(self.pointer(f"work{op.segment}_{j}"))
            elif isinstance(source, Value):
                value = op.values[source.slot]
                text = f"value_{value.name}" if isinstance(value, TensorView) else self.name(value)
                dtype = getattr(param, "dtype", None)
                converts = self.takes_pointers and dtype is not None and dtype is not dtype.compute
                arguments.append(f"as{op.segment}_{j}({text})" if converts else text)
            else:
                arguments.append(f"c{op.segment}_{j}")
        return [f"launch_{op.segment}(s, [{', '.join(arguments)}])"]

    def evaluate(self, op: Evaluate) -> list[str]:
        results = ", ".join(v.name if v in op.outputs else "_" for v in op.results)
        operands = ", ".join(self.operand(op, i, v) for i, v in enumerate(op.inputs))
        function = "call" if op.over is None else "over"
        return [
            f"try: {results} = {function}_{op.segment}({operands})",
            f"except RuntimeError as error: refused_{op.segment}(error)",
            *(f"{v.name} = lay_out_{v.name}({v.name})" for v in op.outputs),
        ]

    def operand(self, op: Evaluate, index: int, value: Val) -> str:
        text = self.home(value) if isinstance(value, TensorView) else self.name(value)
        return f"look{op.segment}_{index}({text})" if op.seen_through(index) else text

    def keep_apart(self, op: KeepApart) -> list[str]:
        names = [tensor.name for tensor in op.tensors]
        tensors, addresses = ", ".join(names), ", ".join(f"at_{name}" for name in names)
        ask = [f"at_{name} = {name}.data_ptr()" for name in names]
        return [
            *ask,
            f"if ({addresses}) not in keep_apart.remembered:",
            f"{_INDENT}{tensors} = keep_apart(({tensors}), ({addresses}))",
            *(_INDENT + line for line in ask),
        ]

    def snapshot(self, op: Snapshot) -> list[str]:
        return [f"old_{op.tensor.name} = {op.tensor.name}.clone()"]

    def copy_into(self, op: CopyInto) -> list[str]:
        source = f"old_{op.source.name}" if op.old else op.source.name
        return [f"copy_into({op.target.name}, {source})"]

    def view(self, op: View) -> list[str]:
        name = op.tensor.name
        return [f"{name} = view({op.source.name}, shape_{name}, stride_{name}, offset_{name})"]

    def free(self, op: Free) -> list[str]:
        return [f"del {op.tensor.name}"]

    def return_(self, op: Return) -> list[str]:
        memory = self.program.memory
        return [f"return [{', '.join(memory.get(t, t).name for t in op.tensors)}]"]


_WRITE: dict[type, Callable[[_Writer, Any], list[str]]] = {
    ReadHostTensor: _Writer.read_host_tensor,
    EvaluateScalar: _Writer.evaluate_scalar,
    DrawRandomState: _Writer.draw,
    Allocate: _Writer.allocate,
    AllocateWorkspace: _Writer.workspace,
    TakeOver: _Writer.take_over,
    LaunchKernel: _Writer.launch,
    Evaluate: _Writer.evaluate,
    KeepApart: _Writer.keep_apart,
    Snapshot: _Writer.snapshot,
    CopyInto: _Writer.copy_into,
    View: _Writer.view,
    Free: _Writer.free,
    Return: _Writer.return_,
}


def fixed_scalars(program: HostProgram) -> dict[str, Scalar]:
    """The scalars that the function reads by a name `fixed_<name>`, by this name."""
    writer = _Writer(program, takes_pointers=False)
    used: list[Val] = []
    for op in program.operations:
        if isinstance(op, EvaluateScalar):
            used += op.node.inputs
        elif isinstance(op, (LaunchKernel, Evaluate)):
            used += op.by_value
    named = {writer.name(value): value for value in used if isinstance(value, Scalar)}
    return {name: scalar for name, scalar in named.items() if name.startswith("fixed_")}
