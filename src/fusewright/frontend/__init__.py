"""The interface: definitions that are recorded, cached, printed, scheduled and run.

What lives here: `definition` (FusionDefinition), `handles` and `operators` (what users hold and call),
`signatures` and `unknown` (what they are told of these), `methods.pyi` and `stubs` (what type checkers are),
`records`, `states` and `recording` (a definition as hashable records, and the fusion built from them),
`cache` (the trie of all definitions), `fusion_schedules` and `fusion_state` (what it keeps of each), `inputs`
(of a call), `scheduling`, `automatic`, `primitives`, `mesh` and `params` (`fd.sched`), `user_schedules`
(which schedule serves which inputs), `segments`, `segment_records` and `segment_borders` (`fd.segment`),
`described` (the kernels of a call), `problems`, `tuned_calls` and `active_tuning` (calls that are tuned),
`operator` (a definition as one operation of torch), `printing` (definitions and reproducing scripts),
`tolerances` and `comparison` (`fd.validate`).
It may import everything from core to tune.
Start reading at `definition.FusionDefinition`, then `recording`.
"""

from fusewright.frontend.cache import FusionCache
from fusewright.frontend.definition import FusionDefinition
from fusewright.frontend.descriptors import compute_contiguity, compute_tensor_descriptor
from fusewright.frontend.handles import Scalar, Tensor, Vector
from fusewright.frontend.mesh import DeviceMesh
from fusewright.frontend.tuned_calls import tuning

__all__ = [
    "DeviceMesh",
    "FusionCache",
    "FusionDefinition",
    "Scalar",
    "Tensor",
    "Vector",
    "compute_contiguity",
    "compute_tensor_descriptor",
    "tuning",
]
