"""Fusion IR: tensors, their axes, and the nodes that compute them.

What lives here: `axis` (IterDomain and its transforms), `value` (TensorView, Scalar), `index_map` (the source
element at each position of a shape operation's result), `node` (the nodes, and how their axes map to those of
their inputs), `node_order`, `view` (nodes that only index their input in another way), `fusion` (the
container), `copies` of values, `canonical` (the text of a group of nodes without names), `verify` and `text`.
It may import core and sym. Start reading at `value.TensorView`, then `node`.
"""

from fusewright.ir.axis import IterDomain, IterKind, Merge, Split, Swizzle
from fusewright.ir.fusion import INDEX_HEADROOM, Fusion, Output, check_offsets
from fusewright.ir.index_map import (
    IndexMap,
    index_value,
    position,
    position_of,
    positions,
    value_extent,
    value_of,
)
from fusewright.ir.node import (
    Choose,
    Copy,
    Full,
    Indexed,
    Iota,
    Join,
    LibraryCall,
    Node,
    Piece,
    Pointwise,
    Random,
    RandomState,
    Reduction,
    Scan,
    Stored,
    Traits,
    Update,
)
from fusewright.ir.placement import Placement
from fusewright.ir.text import fusion_text, scheduled_text
from fusewright.ir.value import Scalar, Storage, TensorView, Val
from fusewright.ir.verify import verify_fusion
from fusewright.ir.view import Broadcast, Expand, Permute, Relabel, Squeeze

__all__ = [
    "INDEX_HEADROOM",
    "Broadcast",
    "Choose",
    "Copy",
    "Expand",
    "Full",
    "Fusion",
    "IndexMap",
    "Indexed",
    "Iota",
    "IterDomain",
    "IterKind",
    "Join",
    "LibraryCall",
    "Merge",
    "Node",
    "Output",
    "Permute",
    "Piece",
    "Placement",
    "Pointwise",
    "Random",
    "RandomState",
    "Reduction",
    "Relabel",
    "Scalar",
    "Scan",
    "Split",
    "Squeeze",
    "Storage",
    "Stored",
    "Update",
    "Swizzle",
    "TensorView",
    "Traits",
    "Val",
    "check_offsets",
    "fusion_text",
    "index_value",
    "position",
    "position_of",
    "positions",
    "scheduled_text",
    "value_extent",
    "value_of",
    "verify_fusion",
]
