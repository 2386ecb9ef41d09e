"""Fusions for the tests of the host, made with the builders that definitions use."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusewright.core.dtype import DataType
from fusewright.host import FusionExecutor
from fusewright.ir import Fusion, Scalar, TensorView
from fusewright.ops import OPS
from fusewright.ops.build_elementwise import apply, segment_set
from fusewright.ops.build_inputs import add_output, define_scalar, define_tensor
from fusewright.ops.build_shape import permute
from fusewright.schedulers import Registry


class Definition:
    """Builds a fusion line by line, as `FusionDefinition` would."""

    def __init__(self) -> None:
        self.fusion = Fusion()

    def tensor(self, shape=(-1, -1), contiguity=True, dtype=DataType.Float, **kwargs) -> TensorView:
        return define_tensor(self.fusion, list(shape), contiguity, dtype, **kwargs)

    def scalar(self, dtype: DataType = DataType.Double) -> Scalar:
        return define_scalar(self.fusion, None, dtype)

    def __getattr__(self, name: str) -> Callable:
        return lambda *operands: apply(self.fusion, name, *operands)

    def reduced(self, name: str, tensor: TensorView, dims: Sequence[int] = (-1,)) -> TensorView:
        """Over these dimensions, which stay with size 1."""
        return OPS[name].build(self.fusion, tensor, list(dims), True, DataType.Null)

    def cut(self, tensor: TensorView) -> TensorView:
        return segment_set(self.fusion, tensor)

    def permute(self, tensor: TensorView, dims) -> TensorView:
        return permute(self.fusion, tensor, dims)

    def output(self, tensor: TensorView, *args, **kwargs) -> None:
        add_output(self.fusion, tensor, *args, **kwargs)

    def executor(self, registry: Registry | None = None) -> FusionExecutor:
        self.fusion.unify_extents()
        return FusionExecutor(self.fusion, registry)
