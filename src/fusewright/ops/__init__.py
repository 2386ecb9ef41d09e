"""Operations: the tables of rows, type promotion, and the functions that build nodes from them.

Elementwise operations are rows of `unary`, `binary` and `ternary`, collected by name in `elementwise`.
Reductions are rows of `reductions`, and operations that torch computes as a whole are rows of `library`.
`promotion` determines the types of operands and results. The builders (`build_*`) append nodes to a fusion.
`OPS` has a row for each, from which the front end makes `fd.ops`, and `DEFINERS` has one for each method of a
definition itself. Users add rows through `plugins`. `evaluate` runs a fusion node by node with torch. It
imports only core, sym and ir. Start with `elementwise`, then `registry` and `build_elementwise`.
"""

# Importing a builder's module fills the tables, in the order in which `OPS` lists them.
from fusewright.ops import build_activation as _activation  # noqa: F401
from fusewright.ops import build_arg_extrema as _arg_extrema  # noqa: F401
from fusewright.ops import build_aten as _aten  # noqa: F401
from fusewright.ops import build_attention as _attention  # noqa: F401
from fusewright.ops import build_elementwise as _elementwise  # noqa: F401
from fusewright.ops import build_embedding as _embedding  # noqa: F401
from fusewright.ops import build_factory as _factory  # noqa: F401
from fusewright.ops import build_grouped as _grouped  # noqa: F401
from fusewright.ops import build_indexing as _indexing  # noqa: F401
from fusewright.ops import build_library as _library  # noqa: F401
from fusewright.ops import build_loss as _loss  # noqa: F401
from fusewright.ops import build_normalization as _normalization  # noqa: F401
from fusewright.ops import build_quantization as _quantization  # noqa: F401
from fusewright.ops import build_random as _random  # noqa: F401
from fusewright.ops import build_reduction as _reduction  # noqa: F401
from fusewright.ops import build_reshape as _reshape  # noqa: F401
from fusewright.ops import build_resize as _resize  # noqa: F401
from fusewright.ops import build_scan as _scan  # noqa: F401
from fusewright.ops import build_scatter as _scatter  # noqa: F401
from fusewright.ops import build_shape as _shape  # noqa: F401
from fusewright.ops import build_softmax as _softmax  # noqa: F401
from fusewright.ops import build_windows as _windows  # noqa: F401
from fusewright.ops.build_inputs import DEFINERS
from fusewright.ops.library import LIBRARY
from fusewright.ops.plugins import REGISTERED, REGISTERED_BY, register_op, registered_op, unregister_op
from fusewright.ops.registry import OPS, OpDef, Parameter, ScalarVector, describe_argument

__all__ = [
    "DEFINERS",
    "LIBRARY",
    "OPS",
    "REGISTERED",
    "REGISTERED_BY",
    "OpDef",
    "Parameter",
    "ScalarVector",
    "describe_argument",
    "register_op",
    "registered_op",
    "unregister_op",
]
