"""The number of parameters of a fusion's kernel."""

from __future__ import annotations

from fusewright.core.hardware import MAX_PARAMETER_BYTES
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Reduction
from fusewright.ir.value import TensorView

# The bytes of the parameters for: a pointer, a size or a stride; a scalar of the widest type; the workspaces
# of one reduction.
WORD_BYTES, SCALAR_BYTES, REDUCTION_BYTES = 8, 16, 32


def too_many_parameters(fusion: Fusion) -> str | None:
    """Why one kernel cannot have all inputs and outputs of a fusion as parameters, or None."""
    borders = [v for v in (*fusion.inputs, *fusion.output_tensors()) if isinstance(v, TensorView)]
    other = SCALAR_BYTES * len(fusion.inputs) + REDUCTION_BYTES * len(fusion.nodes)
    if WORD_BYTES * sum([1 + 2 * len(tensor.shape) for tensor in borders]) + other <= MAX_PARAMETER_BYTES:
        return None
    needed = parameter_bytes(fusion, borders)
    if needed <= MAX_PARAMETER_BYTES:
        return None
    tensors = f"{len(borders)} inputs and outputs"
    return f"its {tensors} take {needed} bytes of parameters, a kernel has {MAX_PARAMETER_BYTES}"


def parameter_bytes(fusion: Fusion, borders: list[TensorView]) -> int:
    """An upper bound on the bytes of the parameters, for any schedule.

    They are the address of each tensor in `borders`, strides if it is not contiguous, sizes and scalars.
    """
    strides = sum(sum(flag is False for flag in tensor.contiguity) for tensor in borders)
    sizes = {symbol for axis in fusion.axes() for symbol in axis.extent.free_symbols}
    for node in fusion.nodes:
        for expression in node.index_expressions():
            sizes |= expression.free_symbols
    scalars = len(fusion.inputs) - sum(isinstance(value, TensorView) for value in fusion.inputs)
    scalars += sum(isinstance(value, TensorView) and value.is_cpu for value in fusion.inputs)
    reductions = sum(isinstance(node, Reduction) for node in fusion.nodes)
    words = len(borders) + strides + len(sizes)
    return WORD_BYTES * words + SCALAR_BYTES * scalars + REDUCTION_BYTES * reductions
