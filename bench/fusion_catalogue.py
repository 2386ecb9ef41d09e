"""The catalogue of fusions: what users of torch write, as rows of `./dev bench fusions`."""

from __future__ import annotations

from bench.fusion_arrays import ARRAYS
from bench.fusion_attention import ATTENTION
from bench.fusion_elementwise import ELEMENTWISE
from bench.fusion_geometry import GEOMETRY
from bench.fusion_joins import JOINED
from bench.fusion_language import LANGUAGE
from bench.fusion_layouts import LAYOUTS
from bench.fusion_models import MODELS
from bench.fusion_moves import MOVES
from bench.fusion_native import NATIVE
from bench.fusion_quantization import QUANTIZATION
from bench.fusion_reductions import REDUCTIONS
from bench.fusion_sciences import SCIENCES
from bench.fusion_serving import SERVING
from bench.fusion_signals import SIGNAL_ROWS
from bench.fusion_tokens import TOKENS
from bench.fusion_training import TRAINING
from bench.fusion_vision import VISION
from bench.fusion_windows import WINDOWS
from bench.operation import Operation

CATALOGUE: tuple[Operation, ...] = (
    *MOVES,
    *REDUCTIONS,
    *ELEMENTWISE,
    *ATTENTION,
    *QUANTIZATION,
    *MODELS,
    *LAYOUTS,
    *VISION,
    *TRAINING,
    *LANGUAGE,
    *ARRAYS,
    *GEOMETRY,
    *NATIVE,
    *SERVING,
    *SIGNAL_ROWS,
    *SCIENCES,
    *TOKENS,
    *JOINED,
    *WINDOWS,
)
