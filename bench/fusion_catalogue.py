"""The catalogue of fusions: what users of torch write, as rows of `./dev bench fusions`."""

from __future__ import annotations

from bench.fusion_attention import ATTENTION
from bench.fusion_elementwise import ELEMENTWISE
from bench.fusion_layouts import LAYOUTS
from bench.fusion_models import MODELS
from bench.fusion_moves import MOVES
from bench.fusion_quantization import QUANTIZATION
from bench.fusion_reductions import REDUCTIONS
from bench.operation import Operation

CATALOGUE: tuple[Operation, ...] = (
    *MOVES,
    *REDUCTIONS,
    *ELEMENTWISE,
    *ATTENTION,
    *QUANTIZATION,
    *MODELS,
    *LAYOUTS,
)
