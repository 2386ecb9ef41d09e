"""Programs, kernels and launches that calls of one fusion share if they have the same options or the same
device.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch

from fusewright.core.dtype import DataType
from fusewright.core.enums import SchedulerType
from fusewright.core.hardware import HardwareInfo
from fusewright.core.once import OnceCache
from fusewright.core.options import Options
from fusewright.host.kernels.bundles import Bundles
from fusewright.host.kernels.calls import hardware_for
from fusewright.host.program.evaluation import EvaluatePlan
from fusewright.host.program.plan import LaunchPlan
from fusewright.host.program.programs import BoundProgram, Matches, Programs
from fusewright.host.reuse.recorded_calls import Kind
from fusewright.ir import Fusion, LibraryCall
from fusewright.runtime.compiled_kernel import CompiledKernel
from fusewright.runtime.compiler import KernelCompiler
from fusewright.runtime.targets import Target
from fusewright.schedulers import Registry, type_name
from fusewright.segment import NO_EXCLUSIONS, Exclusions, Segment

# The most programs that a setting keeps, by signature.
MAX_PROGRAMS = 4096
# The most kernels of users' schedules that a setting keeps, and the most launches and evaluations on a
# device.
MAX_KERNELS = 4096
# The most settings (options with a device) that are kept for one fusion.
MAX_SETTINGS = 64
# The most kinds of inputs that a setting keeps (`Rebinding.split`).
MAX_KINDS = 256


class DeviceState:
    """The state that calls with the same settings share on one device.

    Attributes:
        launches: the launches by segment, params and index type. A call with new sizes finds its kernels
            here. For a user's schedule, the key has the segment (None for the whole fusion), the key of the
            schedule and the index type.
        evaluations: the steps of the segments that torch computes.
    """

    def __init__(self, target: Target, programs: Programs, compiler: KernelCompiler) -> None:
        self.target = target
        self.programs = programs
        self.bundles = Bundles(compiler, target)
        self.launches: OnceCache[tuple[Segment | None, Any, DataType], LaunchPlan] = OnceCache(MAX_KERNELS)
        self.evaluations: OnceCache[Segment, EvaluatePlan] = OnceCache(MAX_KERNELS)


class Setting:
    """The state that calls with the same options and device share.

    Attributes:
        views: whether outputs may be views of inputs.
        deterministic: whether torch requires deterministic results. Then no kernel may add in varying order.
        excluded: exclusions that every partition must obey.
    """

    def __init__(
        self,
        options: Options,
        device: torch.device | None,
        views: bool,
        deterministic: bool,
        excluded: Exclusions,
    ) -> None:
        self.use(options)
        self.device = device
        self.views = views
        self.deterministic = deterministic
        self.excluded = excluded
        self.compiler = KernelCompiler(options)
        self.constant_sizes = not options.disabled("constant_sizes")
        self.horizontal = not options.disabled("horizontal_fusion")
        #: the programs by signature, or by a user's schedule and signature: a known call looks up only this
        self.programs: OnceCache[Hashable, BoundProgram] = OnceCache(MAX_PROGRAMS)
        #: the program that last served two calls in a row, and a function that recognizes more such calls
        self.repeated: tuple[Matches, BoundProgram] | None = None
        #: the kernels of users' schedules, by the schedule's text and the hardware
        self.user_kernels: OnceCache[tuple[Hashable, ...], CompiledKernel] = OnceCache(MAX_KERNELS)
        #: the recorded calls of each kind of inputs
        self.kinds: OnceCache[Hashable, Kind] = OnceCache(MAX_KINDS)
        self.places: OnceCache[torch.device, DeviceState] = OnceCache()

    def use(self, options: Options) -> None:
        """Keeps the options object of the latest call.

        Equal options make equal programs. The next call compares its options object by identity, which is
        faster.
        """
        self.options = options
        #: whether the options ask for dumps of how programs are made
        self.dumps = bool(options.dump) or options.dump_dir is not None

    def hardware_for(self, device: torch.device) -> HardwareInfo:
        """The schedulers' description of a device (`calls.hardware_for`)."""
        place = self.places.find(device)  # torch's count of GPUs takes some microseconds
        return hardware_for(device, self.options) if place is None else place.target.hardware


class Settings:
    """The settings of calls of one fusion, each made once.

    Args:
        registry: the schedulers of its kernels.
        as_defined: whether segments consist of the nodes of the definition, without rewrites.

    Attributes:
        unordered: the nodes that kernels compute in an order that differs from run to run.
    """

    def __init__(self, fusion: Fusion, registry: Registry, as_defined: bool) -> None:
        self._registry = registry
        self._as_defined = as_defined
        self.unordered = [node for node in fusion.ordered_nodes() if node.traits.updates]
        #: pairs of a node that torch may compute and the option that disables this
        self._switched = [
            (node, switch)
            for node in fusion.nodes
            if isinstance(node, LibraryCall) and (switch := node.op.switch)
        ]
        self._known: OnceCache[tuple[Hashable, ...], Setting] = OnceCache(MAX_SETTINGS)

    def get(self, options: Options, device: torch.device | None, views: bool = True) -> Setting:
        deterministic = bool(self.unordered) and torch.are_deterministic_algorithms_enabled()
        key = options.key(), device, views, deterministic

        def make() -> Setting:
            excluded = self._excluded_by(options, deterministic)
            return Setting(options, device, views, deterministic, excluded)

        setting = self._known.get(key, make)
        setting.use(options)
        return setting

    def _excluded_by(self, options: Options, deterministic: bool) -> Exclusions:
        """The exclusions of these options.

        Torch does not compute the nodes of a disabled option. Kernels do not compute unordered nodes if
        results must be deterministic.
        """
        excluded = NO_EXCLUSIONS.without_redefinition() if self._as_defined else NO_EXCLUSIONS
        if deterministic:
            evaluated = type_name(SchedulerType.expr_eval)
            kernels = [name for s in self._registry if (name := type_name(s.type)) != evaluated]
            for name in kernels:
                excluded = excluded.without_nodes(name, self.unordered)
        for node, switch in self._switched:
            if options.disabled(switch):
                excluded = excluded.without_nodes(type_name(SchedulerType.expr_eval), [node])
        return excluded
