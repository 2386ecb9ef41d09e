"""The allowed difference of an output from its reference: by type, and by the number of elements in its
reductions.

The tables are nvFuser's: measured errors of random sums of N elements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from fusewright.core.dtype import DataType
from fusewright.ir import Fusion, LibraryCall, Scan, TensorView, Update
from fusewright.sym import Symbol, evaluate

# Entry i is for reductions of up to 4 * 2**i elements.
FLOAT_ERRORS = (
    1.68e-6, 2.24e-6, 2.96e-6, 4.48e-6, 6.75e-6, 8.58e-6, 1.31e-5, 2.19e-5, 3.35e-5, 5.78e-5,
    1.08e-4, 1.22e-4, 1.37e-4, 2.49e-4, 4.08e-4, 5.01e-4, 9.23e-4, 1.57e-3, 2.23e-3, 3.43e-3,
)  # fmt: skip
HALF_ERRORS = (
    0.0039, 0.0078, 0.0078, 0.0155, 0.0156, 0.0312, 0.0313, 0.062, 0.0625, 0.125,
    0.125, 0.249, 0.25, 0.499, 0.5, 0.985, 1.0, 1.99, 2.0, 3.99,
)  # fmt: skip
FIRST_SIZE = 4
# Types with fewer bits of mantissa than Half: its errors, times this.
COARSE_FACTOR = 10
RELATIVE = 0.01


def tolerance(dtype: DataType, size: int) -> tuple[float, float]:
    """(absolute, relative) tolerance of an output whose reductions combine `size` elements."""
    if dtype is DataType.Float4_e2m1fn_x2:
        dtype = DataType.Float4_e2m1fn
    if not (dtype.is_floating or dtype.is_complex):
        return 0.0, 0.0
    errors = HALF_ERRORS if dtype.is_reduced_float else FLOAT_ERRORS
    factor = COARSE_FACTOR if dtype.is_reduced_float and dtype is not DataType.Half else 1
    if size <= 1:
        return errors[0] * factor, errors[1] * factor
    entry = next((i for i in range(len(errors)) if FIRST_SIZE << i >= size), len(errors))
    absolute = errors[entry + 1] if entry + 1 < len(errors) else 2 * errors[-1]
    return absolute * factor, absolute * factor * RELATIVE


def reduction_sizes(fusion: Fusion, sizes: Mapping[Symbol, int]) -> dict[TensorView, int]:
    """For each tensor, the most elements that one of its elements combines along one chain of reductions and
    scans."""
    combined: dict[TensorView, int] = {}
    for node in fusion.ordered_nodes():
        whole = isinstance(node, LibraryCall) and node.op.combined
        summed = evaluate(whole(node.tensor_inputs), sizes) if whole else 1
        before = max((combined.get(t, 1) for t in node.tensor_inputs), default=1)
        for out in node.outputs:
            if isinstance(out, TensorView):
                own = math.prod(evaluate(a.extent, sizes) for a in out.maybe_root if a.is_reduction)
                if isinstance(node, Scan):
                    own = evaluate(out.maybe_root[node.dim].extent, sizes)
                if isinstance(node, Update) and node.op is not None:  # all may go to one place
                    own = 1 + math.prod(evaluate(axis.extent, sizes) for axis in out.maybe_root)
                combined[out] = before * max(own, 1) * max(summed, 1)
    return combined


def output_tolerances(fusion: Fusion, sizes: Mapping[Symbol, int]) -> list[tuple[float, float]]:
    """(absolute, relative) for each visible output."""
    combined = reduction_sizes(fusion, sizes)
    return [tolerance(o.tensor.dtype, combined.get(o.tensor, 1)) for o in fusion.outputs if not o.hidden]
