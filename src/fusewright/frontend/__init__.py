"""The interface: definitions that are recorded, cached, printed, scheduled and run.

`definition` (FusionDefinition), `handles`, `operators` and `mesh` (the objects that users hold and call),
`recorded` (a definition as records, and the cache of all definitions), `help` (signatures, errors for unknown
names), `methods.pyi` and `stubs` (declarations for type checkers), `inputs` and `descriptors` (of a call),
`inspection` and `described` (queries about a definition, the kernels of a call), `scheduling` (`fd.sched`),
`segments` (`fd.segment`), `tuned` (tuned calls), `operator` (a definition as one operator of torch),
`tolerances` and `comparison` (`fd.validate`).

It may import everything from core to tune. Start reading at `definition.FusionDefinition`, then
`recorded.recording`.
"""

from fusewright.frontend.definition import FusionDefinition
from fusewright.frontend.descriptors import compute_contiguity, compute_tensor_descriptor
from fusewright.frontend.handles import Scalar, Tensor, Vector
from fusewright.frontend.mesh import DeviceMesh
from fusewright.frontend.pickling import clone
from fusewright.frontend.recorded.cache import FusionCache
from fusewright.frontend.tuned.tuned_calls import tuning

__all__ = [
    "DeviceMesh",
    "FusionCache",
    "FusionDefinition",
    "Scalar",
    "Tensor",
    "Vector",
    "clone",
    "compute_contiguity",
    "compute_tensor_descriptor",
    "tuning",
]
