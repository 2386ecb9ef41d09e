"""A whole fusion as text: inputs, outputs and, in order, the node that computes each value.

The form is that of nvFuser's `print_math`: `fusion_text` prints the computation, and `scheduled_text` adds
the transforms that made each tensor's loops.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from fusewright.ir.axis import axes_text, transforms_between
from fusewright.ir.node import Node, Pointwise
from fusewright.ir.value import Scalar, TensorView

if TYPE_CHECKING:
    from fusewright.ir.fusion import Fusion, Output


def fusion_text(fusion: Fusion) -> str:
    """Inputs, outputs and the expressions that outputs depend on, as one `%kernel_math` block."""
    return "\n".join([*_header(fusion), "%kernel_math {", *_body(fusion), "} // %kernel_math ", ""])


def scheduled_text(fusion: Fusion, transforms: bool = True) -> str:
    """The same as a `%kernel` block, with how each tensor's loop axes were made from its logical ones."""
    lines = [*_header(fusion), "%kernel {", *_body(fusion)]
    if transforms:
        lines += ["", "TransformPrinter : "]
        lines += [line for tensor in fusion.tensors() for line in tensor_transforms(tensor)]
    return "\n".join([*lines, "} // %kernel", ""])


def _header(fusion: Fusion) -> list[str]:
    return [
        "Inputs:",
        *(f"  {value}" for value in fusion.inputs),
        "Outputs:",
        *(f"  {_output_text(output)}" for output in fusion.outputs),
        "",
    ]


def _output_text(output: Output) -> str:
    return f"{output.tensor}" if output.alias is None else f"{output.tensor} alias of {output.alias.name}"


def _body(fusion: Fusion) -> list[str]:
    return [line for node in fusion.ordered_nodes() for line in node_text(node)]


def node_text(node: Node) -> list[str]:
    """The lines of one expression: the output first, then what it equals."""
    outputs = ", ".join(map(str, node.outputs))
    if isinstance(node, Pointwise) and node.op.symbol is not None and len(node.inputs) == 2:
        left, right = node.inputs
        return [outputs, f"   = {left}", f"   {node.op.symbol} {right};"]
    if isinstance(node, Pointwise):
        return [outputs, f"   = {node.label}({', '.join(map(str, node.inputs))});"]
    parameters = (f"{name}={_parameter(value)}" for name, value in node.parameters().items())
    arguments = [*map(str, node.inputs), *parameters]
    return [outputs, f"   = {node.label}( {', '.join(arguments)} );"]


def _parameter(value: object) -> str:
    if isinstance(value, Enum):
        return "".join(word.capitalize() for word in value.name.split("_"))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "{" + ", ".join(map(_parameter, value)) + "}"
    return "new" if value is None else str(value)


# ---- transforms ------------------------------------------------------------------------------------------


def tensor_transforms(tensor: TensorView) -> list[str]:
    """The domains of a tensor and, in order, the transforms between them."""
    lines = [str(tensor)]
    if tensor.root is not None:
        lines.append(f" root domain : ({axes_text(tensor.root)})")
        lines += [f"  {t}" for t in transforms_between(tensor.root, tensor.logical)]
    lines.append(f" logical domain : ({axes_text(tensor.logical)})")
    if tensor.allocation != tensor.logical:
        lines.append(f" allocation domain : ({axes_text(tensor.allocation)})")
    lines.append(f" contiguity: {' '.join('n' if c is None else 'tf'[not c] for c in tensor.contiguity)}")
    lines += [f"  {t}" for t in transforms_between(tensor.logical, tensor.loop)]
    ahead = ", loaded an iteration ahead" if tensor.prefetched else ""
    lines.append(f" loop domain : ({axes_text(tensor.loop)}){ahead}")
    if tensor.storage is not None:
        axes, padding = tensor.storage.axes, tensor.storage.padding
        lines.append(f" stored along : ({axes_text(axes)}), padding {padding}")
    if tensor.unaligned:
        lines.append(" vectors start at any element")
    if (ring := tensor.circular) is not None:
        by = f", by warps along {ring.parallel.name}" if ring.parallel is not None else ""
        registers = f", registers {ring.registers}" if ring.registers else ""
        lines.append(
            f" circular : {ring.stages} stages counted by {ring.position} loops, {ring.prefetch} ahead"
            f"{by}{registers}"
        )
    if tensor.part is not None:
        lines.append(f" held : {tensor.part.steps} iterations of loop {tensor.part.position}")
    if tensor.everywhere:
        lines.append(" reduced everywhere")
    return lines


def value_name(value: TensorView | Scalar) -> str:
    """How messages call a value: `T3`, `d2`, or a constant's number."""
    return value.name if isinstance(value, TensorView) else str(value)
