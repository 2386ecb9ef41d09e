"""Graphs of torch as definitions: `from_fx` takes graphs that torch.export, AOTAutograd or make_fx traced.

Start with `convert`. `graphs` brings a graph into the form that is converted, `rows` and the `*_rows` modules
are the table of ATen operators, and `recording` records them in a definition. It imports the front end and
the packages below it; nothing imports it.
"""

from fusewright.torch_compile import elementwise_rows as _elementwise  # noqa: F401
from fusewright.torch_compile import index_rows as _indexing  # noqa: F401
from fusewright.torch_compile import pool_rows as _pools  # noqa: F401
from fusewright.torch_compile import reduction_rows as _reductions  # noqa: F401
from fusewright.torch_compile import shape_rows as _shapes  # noqa: F401
from fusewright.torch_compile import upsampling_rows as _upsampling  # noqa: F401
from fusewright.torch_compile import window_rows as _windows  # noqa: F401
from fusewright.torch_compile.convert import ConvertedGraph, from_fx
from fusewright.torch_compile.graphs import decompositions

__all__ = ["ConvertedGraph", "decompositions", "from_fx"]
