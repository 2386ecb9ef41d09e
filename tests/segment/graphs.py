"""Hand-built fusions and schedulers with simple rules, so that segmentation is tested by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusewright.core.dtype import DataType
from fusewright.core.enums import SchedulerType
from fusewright.core.op import LibraryOp, ReductionOp
from fusewright.ir import Copy, Fusion, LibraryCall, Pointwise, Reduction, Scalar, TensorView
from fusewright.ir.axis import IterKind
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.schedulers.base import Proposal, Reject
from fusewright.schedulers.params import HeuristicParams

ADD, NEG = ELEMENTWISE["add"], ELEMENTWISE["neg"]
SUM = ReductionOp(
    "sum", ("sum",), lambda d: (d,), lambda d: (0,), ("{x}",), lambda t: (t,), {}, lambda t, d: (t.sum(d),)
)
LIBRARY = LibraryOp("whole", (), lambda device: list)


class Graph:
    """Builds a fusion over tensors of one symbolic shape."""

    def __init__(self, rank: int = 2) -> None:
        self.fusion = Fusion()
        self.extents = [self.fusion.new_extent() for _ in range(rank)]

    def tensor(self) -> TensorView:
        return self.fusion.new_tensor([self.fusion.new_axis(e) for e in self.extents], DataType.Float)

    def input(self) -> TensorView:
        tensor = self.tensor()
        self.fusion.add_input(tensor)
        return tensor

    def scalar(self, dtype: DataType = DataType.Double) -> Scalar:
        scalar = self.fusion.new_scalar(dtype)
        self.fusion.add_input(scalar)
        return scalar

    def op(self, *inputs: TensorView | Scalar) -> TensorView:
        """A pointwise node over `inputs`."""
        out = self.tensor()
        self.fusion.add_node(Pointwise(ADD if len(inputs) == 2 else NEG, inputs, out))
        return out

    def scalar_op(self, *inputs: Scalar) -> Scalar:
        out = self.fusion.new_scalar(inputs[0].dtype)
        self.fusion.add_node(Pointwise(ADD if len(inputs) == 2 else NEG, inputs, out))
        return out

    def sum(self, source: TensorView) -> TensorView:
        """Reduces the last axis. (Users mix ranks freely: only the structure matters here.)"""
        axes = [self.fusion.copy_axis(a) for a in source.shape]
        axes[-1].kind = IterKind.REDUCTION
        out = self.fusion.new_tensor(axes, DataType.Float)
        self.fusion.add_node(Reduction(SUM, (source,), (out,)))
        return out

    def boundary(self, source: TensorView) -> TensorView:
        out = self.tensor()
        self.fusion.add_node(Copy(source, out, segment=True))
        return out

    def whole(self, *inputs: TensorView) -> TensorView:
        """What no kernel contains."""
        out = self.tensor()
        self.fusion.add_node(LibraryCall(LIBRARY, inputs, (out,), {}))
        return out

    def output(self, *tensors: TensorView) -> Fusion:
        for tensor in tensors:
            self.fusion.add_output(tensor)
        return self.fusion


class Rules:
    """A scheduler that takes what `rule` gives no reason against, and counts the nodes it was shown."""

    params_type = HeuristicParams

    def __init__(self, rule: Callable[[Fusion], str], type: SchedulerType = SchedulerType.pointwise) -> None:
        self.rule = rule
        self.type = type
        self.shown = 0
        self.calls = 0

    def prepare(self, fusion: Fusion):
        self.shown += len(fusion.nodes)
        self.calls += 1
        reason = self.rule(fusion)
        return Reject(reason) if reason else lambda facts, hardware: Proposal(HeuristicParams())

    def apply(self, schedule, params) -> None:
        pass


def one_reduction(fusion: Fusion) -> str:
    """At most one reduction, and nothing after it in the same kernel."""
    reductions = [n for n in fusion.nodes if isinstance(n, Reduction)]
    if len(reductions) > 1:
        return "more than one reduction"
    if reductions and reductions[0].output.uses:
        return "a reduction is used in the same kernel"
    return ""


def at_most(count: int) -> Callable[[Fusion], str]:
    return lambda fusion: f"more than {count} nodes" if len(fusion.nodes) > count else ""


def names(values: Sequence) -> list[str]:
    return [v.name for v in values]
