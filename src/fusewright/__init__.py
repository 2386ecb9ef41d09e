"""Fusewright: a fusion code generator for NVIDIA GPUs, written in Python.

A user defines a computation over tensors in a :class:`FusionDefinition`; Fusewright cuts it into as few
kernels as it can, schedules each, generates CUDA C++, compiles it with NVRTC and runs it. CPU tensors run
in a simulator of a described GPU.

The names below are the front end's, loaded on first use: ``import fusewright`` itself loads neither torch
nor the CUDA bindings. Start reading at ``fusewright.frontend`` for the interface and at
``docs/architecture.md`` for the layers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fusewright.core.dtype import DataType as DataType
    from fusewright.core.enums import CacheOp as CacheOp
    from fusewright.core.enums import LoadStoreOpType as LoadStoreOpType
    from fusewright.core.enums import MatmulBufferingLoopLevel as MatmulBufferingLoopLevel
    from fusewright.core.enums import MatmulCircularBufferingStrategy as MatmulCircularBufferingStrategy
    from fusewright.core.enums import MatmulTileRasterizationOrder as MatmulTileRasterizationOrder
    from fusewright.core.enums import MatmulTilingStrategy as MatmulTilingStrategy
    from fusewright.core.enums import MemoryType as MemoryType
    from fusewright.core.enums import MmaMacroArch as MmaMacroArch
    from fusewright.core.enums import ParallelType as ParallelType
    from fusewright.core.enums import SchedulerType as SchedulerType
    from fusewright.frontend import FusionCache as FusionCache
    from fusewright.frontend import FusionDefinition as FusionDefinition
    from fusewright.frontend import Scalar as Scalar
    from fusewright.frontend import Tensor as Tensor
    from fusewright.frontend import Vector as Vector
    from fusewright.frontend import compute_contiguity as compute_contiguity
    from fusewright.frontend import compute_tensor_descriptor as compute_tensor_descriptor
    from fusewright.host.profile import FusionProfile as FusionProfile
    from fusewright.host.profile import KernelProfile as KernelProfile
    from fusewright.runtime import HardwareInfo as HardwareInfo
    from fusewright.runtime import RtcKernel as RtcKernel
    from fusewright.schedulers import CircularBufferOptions as CircularBufferOptions
    from fusewright.schedulers import ClusterDims as ClusterDims
    from fusewright.schedulers import CompileParams as CompileParams
    from fusewright.schedulers import GemmTile as GemmTile
    from fusewright.schedulers import HeuristicParams as HeuristicParams
    from fusewright.schedulers import InnerOuterParams as InnerOuterParams
    from fusewright.schedulers import LaunchParams as LaunchParams
    from fusewright.schedulers import MatmulParams as MatmulParams
    from fusewright.schedulers import MatMulTileOptions as MatMulTileOptions
    from fusewright.schedulers import MmaMacro as MmaMacro
    from fusewright.schedulers import MmaMacroEncode as MmaMacroEncode
    from fusewright.schedulers import PointwiseParams as PointwiseParams
    from fusewright.schedulers import ReductionParams as ReductionParams
    from fusewright.schedulers import ResizeParams as ResizeParams
    from fusewright.schedulers import ScanParams as ScanParams
    from fusewright.schedulers import SchedulerHyperParameters as SchedulerHyperParameters
    from fusewright.schedulers import SupportedVectorization as SupportedVectorization
    from fusewright.schedulers import TransposeParams as TransposeParams

__version__ = "0.1.0"

# Public name -> the module that defines it.
_EXPORTS = {
    "CacheOp": "fusewright.core.enums",
    "CircularBufferOptions": "fusewright.schedulers",
    "ClusterDims": "fusewright.schedulers",
    "CompileParams": "fusewright.schedulers",
    "DataType": "fusewright.core.dtype",
    "FusionCache": "fusewright.frontend",
    "FusionDefinition": "fusewright.frontend",
    "FusionProfile": "fusewright.host.profile",
    "GemmTile": "fusewright.schedulers",
    "HardwareInfo": "fusewright.runtime",
    "HeuristicParams": "fusewright.schedulers",
    "KernelProfile": "fusewright.host.profile",
    "InnerOuterParams": "fusewright.schedulers",
    "LaunchParams": "fusewright.schedulers",
    "LoadStoreOpType": "fusewright.core.enums",
    "MatMulTileOptions": "fusewright.schedulers",
    "MatmulBufferingLoopLevel": "fusewright.core.enums",
    "MatmulCircularBufferingStrategy": "fusewright.core.enums",
    "MatmulParams": "fusewright.schedulers",
    "MatmulTileRasterizationOrder": "fusewright.core.enums",
    "MatmulTilingStrategy": "fusewright.core.enums",
    "MemoryType": "fusewright.core.enums",
    "MmaMacro": "fusewright.schedulers",
    "MmaMacroArch": "fusewright.core.enums",
    "MmaMacroEncode": "fusewright.schedulers",
    "ParallelType": "fusewright.core.enums",
    "PointwiseParams": "fusewright.schedulers",
    "ReductionParams": "fusewright.schedulers",
    "ResizeParams": "fusewright.schedulers",
    "RtcKernel": "fusewright.runtime",
    "Scalar": "fusewright.frontend",
    "ScanParams": "fusewright.schedulers",
    "SchedulerHyperParameters": "fusewright.schedulers",
    "SchedulerType": "fusewright.core.enums",
    "SupportedVectorization": "fusewright.schedulers",
    "Tensor": "fusewright.frontend",
    "TransposeParams": "fusewright.schedulers",
    "Vector": "fusewright.frontend",
    "compute_contiguity": "fusewright.frontend",
    "compute_tensor_descriptor": "fusewright.frontend",
}

__all__ = ["__version__", *_EXPORTS]


def __getattr__(name: str) -> Any:
    """Load a public name from its module on first use and keep it here."""
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
