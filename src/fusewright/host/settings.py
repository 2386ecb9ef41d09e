"""What calls of one fusion share that have the same options, or one device: programs, kernels, launches."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch

from fusewright.core.dtype import DataType
from fusewright.core.hardware import HardwareInfo
from fusewright.core.once import OnceCache
from fusewright.core.options import Options
from fusewright.host.bundles import Bundles
from fusewright.host.calls import hardware_for
from fusewright.host.evaluation import EvaluatePlan
from fusewright.host.plan import BoundProgram, LaunchPlan, Programs
from fusewright.host.rebinding import Kinds
from fusewright.host.recorded_calls import RecordedCalls
from fusewright.runtime.compiled_kernel import CompiledKernel
from fusewright.runtime.compiler import KernelCompiler
from fusewright.runtime.targets import Target
from fusewright.segment import Exclusions, Segment

# Kept of a fusion: programs by signature, for options and device; kernels likewise, and as many launches.
MAX_PROGRAMS = 4096
MAX_KERNELS = 4096
# Kinds of inputs that are kept of a fusion.
MAX_KINDS = 64


class DeviceState:
    """What calls with the same settings share on one device.

    launches: by segment, parameters and index type; what a call of a new size finds its kernels by. Of a
    user's schedule: by segment, None for it all, the schedule's key and index type. recorded: what calls of a
    new size find all their steps by. evaluations: what torch computes.
    """

    def __init__(self, target: Target, programs: Programs, compiler: KernelCompiler) -> None:
        self.target = target
        self.programs = programs
        self.bundles = Bundles(compiler, target)
        self.launches: OnceCache[tuple[Segment | None, Any, DataType], LaunchPlan] = OnceCache(MAX_KERNELS)
        self.recorded = RecordedCalls()
        self.evaluations: OnceCache[Segment, EvaluatePlan] = OnceCache(MAX_KERNELS)


class Setting:
    """What calls with the same options and device share.

    views: whether outputs may be views of inputs. deterministic: whether torch asks for results that are the
    same from run to run, of what kernels compute in another order each time. excluded: what no partition may
    do.
    """

    def __init__(
        self,
        options: Options,
        device: torch.device | None,
        views: bool,
        deterministic: bool,
        excluded: Exclusions,
    ) -> None:
        self.options = options
        self.device = device
        self.views = views
        self.deterministic = deterministic
        self.excluded = excluded
        self.compiler = KernelCompiler(options)
        self.constant_sizes = not options.disabled("constant_sizes")
        self.horizontal = not options.disabled("horizontal_fusion")
        #: by signature, or by a user's schedule and signature; the one look-up of a repeated call
        self.programs: OnceCache[Hashable, BoundProgram] = OnceCache(MAX_PROGRAMS)
        #: those of users' schedules, by the schedule's text; devices of one kind share them
        self.user_kernels: OnceCache[tuple[Hashable, ...], CompiledKernel] = OnceCache(MAX_KERNELS)
        #: bindings of the first call of each kind of inputs
        self.kinds: Kinds = OnceCache(MAX_KINDS)
        self.places: OnceCache[torch.device, DeviceState] = OnceCache()

    def hardware_for(self, device: torch.device) -> HardwareInfo:
        """What schedulers read for tensors on a device (`calls.hardware_for`)."""
        place = self.places.find(device)  # torch's count of GPUs takes some microseconds
        return hardware_for(device, self.options) if place is None else place.target.hardware
