"""Facts about a problem that heuristics read, as numbers: sizes, bytes, arithmetic, and the kernel."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from math import prod

from fusewright.core.hardware import HardwareInfo
from fusewright.ir import Fusion, Reduction, TensorView
from fusewright.schedulers import Facts, type_name
from fusewright.schedulers.cost import OPERATIONS_A_SLOT, Arithmetic, Traffic
from fusewright.segment import Segment

# Hex digits of a segment's key.
KEY_DIGITS = 16
# Bytes of the widest access: by what more an address is a multiple of makes no other kernel.
WIDEST_ACCESS = 16


@dataclass(frozen=True, slots=True)
class ReductionFacts:
    """Facts about the longest reduction of a kernel; if it reduces both rows and columns, about the longest
    of rows.

    Attributes:
        rows: the number of results.
        length: the number of elements per result.
        is_inner: whether the last dimension of the operand is reduced.
        kinds: "inner", "outer" or "both", for all reductions.
    """

    rows: int
    length: int
    is_inner: bool
    kinds: str


@dataclass(frozen=True, slots=True)
class TransposeFacts:
    """Facts about a kernel whose tensors are contiguous along different dimensions.

    Attributes:
        size1, size2: the sizes of the dimension that the outputs are contiguous along, and of the other.
        stride: bytes between neighbours of an input along the first of these dimensions.
    """

    size1: int
    size2: int
    stride: int


@dataclass(frozen=True, slots=True)
class MatmulFacts:
    """Facts about a matrix product.

    Attributes:
        layouts: of both operands, "n" or "t" each.
        dtypes: of both operands, by name.
        epilogue: the number of operations after it in the kernel.
    """

    m: int
    n: int
    k: int
    batch: int = 1
    layouts: str = "nn"
    dtypes: tuple[str, str] = ("BFloat16", "BFloat16")
    epilogue: int = 0


@dataclass(frozen=True, slots=True)
class ProblemFacts:
    """Facts about any kernel.

    Attributes:
        segment: equal for calls of equal kernels with equal sizes, strides, alignment and index type.
        structure: equal for equal kernels, whatever the sizes.
        bytes: the least bytes read and written.
        points: elements of the largest tensor in memory.
        element_bytes, least_element_bytes: of the widest and the narrowest of these tensors.
        slots: arithmetic, in multiples of an addition in one thread.
        inputs, outputs: the numbers of tensors.
        broadcasts: the number of inputs that have fewer elements than the largest tensor.
        reduction, transpose, matmul: further facts, for kernels of these kinds.
    """

    segment: str
    structure: str
    bytes: int
    points: int
    element_bytes: int
    least_element_bytes: int
    slots: int
    inputs: int
    outputs: int
    broadcasts: int
    reduction: ReductionFacts | None = None
    transpose: TransposeFacts | None = None
    matmul: MatmulFacts | None = None

    def least_seconds(self, hardware: HardwareInfo) -> float:
        """Of the arithmetic alone, at the GPU's nominal speed."""
        return self.slots / (hardware.float_tflops * 1e12 / OPERATIONS_A_SLOT)


def segment_key(segment: Segment, facts: Facts, hardware: HardwareInfo) -> str:
    """Equal for calls that the same params serve equally well: of equal segments, sizes, strides and
    alignment.
    """
    parts = [
        segment.text,
        type_name(segment.scheduler.type),
        sorted((str(name), size) for name, size in facts.sizes.items()),
        facts.strides,
        [min(alignment, WIDEST_ACCESS) for alignment in facts.alignment],
        facts.index_dtype.name,
        hardware.name,
        hardware.sm_count,
    ]
    return _digest(json.dumps(parts))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]


def facts_of(segment: Segment, facts: Facts, hardware: HardwareInfo) -> ProblemFacts:
    """What is known of one call of a segment."""
    fusion = segment.fusion
    traffic = Traffic(fusion)
    inputs = [value for value in fusion.inputs if isinstance(value, TensorView)]
    outputs = [tensor for tensor in fusion.output_tensors() if tensor.definition is not None]
    widths = [tensor.dtype.size for tensor in (*inputs, *outputs)]
    points = max([1, *(_elements(tensor, facts) for tensor in (*inputs, *outputs))])
    return ProblemFacts(
        segment_key(segment, facts, hardware),
        _digest(segment.text),
        traffic.read(facts) + traffic.written(facts),
        points,
        max(widths, default=1),
        min(widths, default=1),
        Arithmetic(fusion).slots(facts),
        len(inputs),
        len(outputs),
        sum(_elements(tensor, facts) < points for tensor in inputs),
        _reduction(fusion, facts),
        _transpose(fusion, facts, outputs),
    )


def _elements(tensor: TensorView, facts: Facts) -> int:
    return prod(facts.value(axis.extent) for axis in tensor.iterated if not axis.is_broadcast)


def _reduction(fusion: Fusion, facts: Facts) -> ReductionFacts | None:
    found: list[ReductionFacts] = []
    for node in fusion.nodes:
        if not isinstance(node, Reduction):
            continue
        axes = [axis for axis in node.output.maybe_root if not axis.is_broadcast]
        reduced = [axis for axis in axes if axis.is_reduction]
        length = prod(facts.value(axis.extent) for axis in reduced)
        rows = prod(facts.value(axis.extent) for axis in axes if not axis.is_reduction)
        found.append(ReductionFacts(rows, length, bool(axes) and axes[-1].is_reduction, ""))
    if not found:
        return None
    longest = max(found, key=lambda each: (each.is_inner, each.length))
    inner = {each.is_inner for each in found}
    kinds = "both" if len(inner) > 1 else "inner" if longest.is_inner else "outer"
    return ReductionFacts(longest.rows, longest.length, longest.is_inner, kinds)


def _transpose(fusion: Fusion, facts: Facts, outputs: list[TensorView]) -> TransposeFacts | None:
    """Of the first input that lies along another dimension than the first output of two or more."""
    tensors = [value if isinstance(value, TensorView) else None for value in fusion.inputs]
    target = next((tensor for tensor in outputs if len(tensor.iterated) > 1), None)
    if target is None:
        return None
    size1 = facts.value(target.allocation[-1].extent)
    for tensor, strides in zip(tensors, facts.strides):
        if tensor is None or len(strides) < 2 or 1 not in strides:
            continue
        sizes = [facts.value(axis.extent) for axis in tensor.logical]
        inner = strides.index(1)
        others = [i for i, size in enumerate(sizes) if size == size1 and strides[i] > 1]
        if sizes[inner] != size1 and others:
            return TransposeFacts(size1, sizes[inner], strides[others[0]] * tensor.dtype.size)
    return None
