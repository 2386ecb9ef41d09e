"""Fusewright: a fusion code generator for NVIDIA GPUs, written in Python.

A user defines a computation over tensors in a :class:`FusionDefinition`; Fusewright cuts it into as few
kernels as it can, schedules each, generates CUDA C++, compiles it with NVRTC and runs it. CPU tensors run
in a simulator of a described GPU.

The names below are what users import, loaded on first use: ``import fusewright`` itself loads neither torch
nor the CUDA bindings. Start reading at ``fusewright.frontend`` for the interface and at
``docs/architecture.md`` for the layers.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fusewright.core.dtype import Category as Category
    from fusewright.core.dtype import DataType as DataType
    from fusewright.core.enums import CacheOp as CacheOp
    from fusewright.core.enums import CommunicatorBackend as CommunicatorBackend
    from fusewright.core.enums import IdMappingMode as IdMappingMode
    from fusewright.core.enums import LoadStoreOpType as LoadStoreOpType
    from fusewright.core.enums import MatmulBufferingLoopLevel as MatmulBufferingLoopLevel
    from fusewright.core.enums import MatmulCircularBufferingStrategy as MatmulCircularBufferingStrategy
    from fusewright.core.enums import MatmulTileRasterizationOrder as MatmulTileRasterizationOrder
    from fusewright.core.enums import MatmulTilingStrategy as MatmulTilingStrategy
    from fusewright.core.enums import MemoryType as MemoryType
    from fusewright.core.enums import MmaMacroArch as MmaMacroArch
    from fusewright.core.enums import ParallelType as ParallelType
    from fusewright.core.enums import SchedulerType as SchedulerType
    from fusewright.core.errors import CompileError as CompileError
    from fusewright.core.errors import ContiguityError as ContiguityError
    from fusewright.core.errors import DefinitionError as DefinitionError
    from fusewright.core.errors import DeviceError as DeviceError
    from fusewright.core.errors import DtypeError as DtypeError
    from fusewright.core.errors import ExecutionOrderError as ExecutionOrderError
    from fusewright.core.errors import FusewrightError as FusewrightError
    from fusewright.core.errors import InputDtypeError as InputDtypeError
    from fusewright.core.errors import InputError as InputError
    from fusewright.core.errors import InternalError as InternalError
    from fusewright.core.errors import OptionError as OptionError
    from fusewright.core.errors import ParamsError as ParamsError
    from fusewright.core.errors import RejectedError as RejectedError
    from fusewright.core.errors import ScheduleError as ScheduleError
    from fusewright.core.errors import SchedulerError as SchedulerError
    from fusewright.core.errors import ShapeError as ShapeError
    from fusewright.core.errors import SimulationError as SimulationError
    from fusewright.core.errors import UserError as UserError
    from fusewright.core.hardware import described as described
    from fusewright.core.op import ElementwiseOp as ElementwiseOp
    from fusewright.core.op import Rule as Rule
    from fusewright.core.op import Spelling as Spelling
    from fusewright.core.options import Options as Options
    from fusewright.core.serialization import from_dict as from_dict
    from fusewright.core.serialization import from_json as from_json
    from fusewright.core.serialization import to_dict as to_dict
    from fusewright.core.serialization import to_json as to_json
    from fusewright.frontend import DeviceMesh as DeviceMesh
    from fusewright.frontend import FusionCache as FusionCache
    from fusewright.frontend import FusionDefinition as FusionDefinition
    from fusewright.frontend import Scalar as Scalar
    from fusewright.frontend import Tensor as Tensor
    from fusewright.frontend import Vector as Vector
    from fusewright.frontend import clone as clone
    from fusewright.frontend import compute_contiguity as compute_contiguity
    from fusewright.frontend import compute_tensor_descriptor as compute_tensor_descriptor
    from fusewright.frontend import tuning as tuning
    from fusewright.host.kernels.segment_kernels import KernelTensor as KernelTensor
    from fusewright.host.kernels.segment_kernels import SegmentKernel as SegmentKernel
    from fusewright.host.profile import FusionProfile as FusionProfile
    from fusewright.host.profile import KernelProfile as KernelProfile
    from fusewright.ir import Fusion as Fusion
    from fusewright.ir import Pointwise as Pointwise
    from fusewright.ir import Reduction as Reduction
    from fusewright.ir import TensorView as TensorView
    from fusewright.ops import register_op as register_op
    from fusewright.ops import registered_op as registered_op
    from fusewright.ops import unregister_op as unregister_op
    from fusewright.ops.build_elementwise import apply_to_tensor as apply_to_tensor
    from fusewright.ops.registry import ScalarLike as ScalarLike
    from fusewright.runtime import CompiledKernel as CompiledKernel
    from fusewright.runtime import HardwareInfo as HardwareInfo
    from fusewright.runtime import RtcKernel as RtcKernel
    from fusewright.schedule import Schedule as Schedule
    from fusewright.schedulers import CircularBufferOptions as CircularBufferOptions
    from fusewright.schedulers import ClusterDims as ClusterDims
    from fusewright.schedulers import CompileParams as CompileParams
    from fusewright.schedulers import Cost as Cost
    from fusewright.schedulers import Default as Default
    from fusewright.schedulers import Facts as Facts
    from fusewright.schedulers import GemmTile as GemmTile
    from fusewright.schedulers import HeuristicParams as HeuristicParams
    from fusewright.schedulers import InnerOuterParams as InnerOuterParams
    from fusewright.schedulers import LaunchParams as LaunchParams
    from fusewright.schedulers import MatmulParams as MatmulParams
    from fusewright.schedulers import MatMulTileOptions as MatMulTileOptions
    from fusewright.schedulers import MmaMacro as MmaMacro
    from fusewright.schedulers import MmaMacroEncode as MmaMacroEncode
    from fusewright.schedulers import Planner as Planner
    from fusewright.schedulers import PointwiseParams as PointwiseParams
    from fusewright.schedulers import PointwiseScheduler as PointwiseScheduler
    from fusewright.schedulers import Proposal as Proposal
    from fusewright.schedulers import ReductionParams as ReductionParams
    from fusewright.schedulers import Registry as Registry
    from fusewright.schedulers import Reject as Reject
    from fusewright.schedulers import ResizeParams as ResizeParams
    from fusewright.schedulers import Rewrite as Rewrite
    from fusewright.schedulers import ScanParams as ScanParams
    from fusewright.schedulers import Scheduler as Scheduler
    from fusewright.schedulers import SchedulerHyperParameters as SchedulerHyperParameters
    from fusewright.schedulers import SupportedVectorization as SupportedVectorization
    from fusewright.schedulers import TransposeParams as TransposeParams
    from fusewright.schedulers import choice as choice
    from fusewright.schedulers import counts as counts
    from fusewright.schedulers import default_registry as default_registry
    from fusewright.schedulers import heuristic as heuristic
    from fusewright.schedulers import heuristics as heuristics
    from fusewright.schedulers import register_scheduler as register_scheduler
    from fusewright.schedulers import registered_scheduler as registered_scheduler
    from fusewright.schedulers import remove_heuristic as remove_heuristic
    from fusewright.schedulers import unregister_scheduler as unregister_scheduler
    from fusewright.torch_compile import ConvertedGraph as ConvertedGraph
    from fusewright.torch_compile import decompositions as decompositions
    from fusewright.torch_compile import from_fx as from_fx
    from fusewright.tune.heuristic import AutotunerHeuristic as AutotunerHeuristic
    from fusewright.tune.heuristics import default_heuristics as default_heuristics

__version__ = "0.1.0"

# What users import, by the module that defines it.
_MODULES = {
    "fusewright.core.dtype": "Category DataType",
    "fusewright.core.enums": (
        "CacheOp CommunicatorBackend IdMappingMode LoadStoreOpType MatmulBufferingLoopLevel "
        "MatmulCircularBufferingStrategy MatmulTileRasterizationOrder MatmulTilingStrategy MemoryType "
        "MmaMacroArch ParallelType SchedulerType"
    ),
    "fusewright.core.errors": (
        "CompileError ContiguityError DefinitionError DeviceError DtypeError ExecutionOrderError "
        "FusewrightError InputDtypeError InputError InternalError OptionError ParamsError RejectedError "
        "ScheduleError SchedulerError ShapeError SimulationError UserError"
    ),
    "fusewright.core.hardware": "described",
    "fusewright.core.op": "ElementwiseOp Rule Spelling",
    "fusewright.core.options": "Options",
    "fusewright.core.serialization": "from_dict from_json to_dict to_json",
    "fusewright.frontend": (
        "DeviceMesh FusionCache FusionDefinition Scalar Tensor Vector clone compute_contiguity "
        "compute_tensor_descriptor tuning"
    ),
    "fusewright.host.profile": "FusionProfile KernelProfile",
    "fusewright.host.kernels.segment_kernels": "KernelTensor SegmentKernel",
    "fusewright.ir": "Fusion Pointwise Reduction TensorView",
    "fusewright.ops": "register_op registered_op unregister_op",
    "fusewright.ops.build_elementwise": "apply_to_tensor",
    "fusewright.ops.registry": "ScalarLike",
    "fusewright.runtime": "CompiledKernel HardwareInfo RtcKernel",
    "fusewright.schedule": "Schedule",
    "fusewright.schedulers": (
        "CircularBufferOptions ClusterDims CompileParams Cost Default Facts GemmTile HeuristicParams "
        "InnerOuterParams LaunchParams MatMulTileOptions MatmulParams MmaMacro MmaMacroEncode Planner "
        "PointwiseParams PointwiseScheduler Proposal ReductionParams Registry Reject ResizeParams Rewrite "
        "ScanParams Scheduler SchedulerHyperParameters SupportedVectorization TransposeParams choice counts "
        "default_registry heuristic heuristics register_scheduler registered_scheduler remove_heuristic "
        "unregister_scheduler"
    ),
    "fusewright.torch_compile": "ConvertedGraph decompositions from_fx",
    "fusewright.tune.heuristic": "AutotunerHeuristic",
    "fusewright.tune.heuristics": "default_heuristics",
}
_EXPORTS = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = ["__version__", *_EXPORTS]


if not TYPE_CHECKING:  # checkers would take any name for one that it gives

    def __getattr__(name: str) -> Any:
        """Load a public name from its module on first use and keep it here."""
        module = _EXPORTS.get(name)
        if module is None:
            # With the name and the module, Python says which name is spelled like it.
            raise AttributeError(
                f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__]
            )
        value = getattr(importlib.import_module(module), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
