"""The registers that the loads of one step of a thread's loop take.

Bytes in flight are counted of loads that have an element for each point, since these keep the memory busy.
Registers hold every load that differs from step to step: also weights along the reduced dimension, and each
element of a short reduction that is computed where it is read.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from math import trunc

from fusewright.analyze.vectorize import unit_stride_axis
from fusewright.core.hardware import REGISTER_BYTES, HardwareInfo
from fusewright.core.once import cached_property
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node, Reduction
from fusewright.ir.value import TensorView, Val
from fusewright.schedulers.params import ReductionParams
from fusewright.schedulers.reduction.space import ReductionSpace
from fusewright.schedulers.reference_map import Access
from fusewright.schedulers.sizes import ceil_div

# Registers of a thread besides loads in flight: addresses, partial results, and what is computed.
REGISTERS_TO_WORK = 32
# Share of its registers that loads in flight take where all of them would take more than there are: most of
# such loads come from the caches, and an SM has room for a second block.
SHARE_OF_LOADS = 0.5


@dataclass(frozen=True, eq=False)
class StepLoads:
    """The loads that a thread repeats in each step along the reduced dimensions, before results are known."""

    fusion: Fusion
    space: ReductionSpace

    def registers(self, width: int, unaligned: Collection[int] = ()) -> int:
        """Returns the registers that hold all loads of a step, in vectors of `width` along the innermost
        dimension. Those of `unaligned` inputs are each chosen from two vectors.
        """
        twice = {self.fusion.inputs[i] for i in unaligned}
        return sum((1 + (load.tensor in twice)) * self._registers_of(load, width) for load in self._loads)

    def held(self, params: ReductionParams) -> int:
        """Returns the registers that hold what a thread has in flight."""
        unaligned = params.unaligned_inputs
        if params.joined_rows > 1:
            return params.unroll_factor_inner_reduction * self._registers_of_rows(params)
        if params.fastest_dim:
            vectors = params.unroll_factor_top_of_vectorization * params.unroll_factor_iter_dom
            return vectors * self.registers(params.unroll_factor_inner_reduction, unaligned)
        return params.unroll_factor_inner_reduction * self.registers(params.unroll_factor_iter_dom, unaligned)

    def fitting(self, params: ReductionParams, hardware: HardwareInfo) -> ReductionParams:
        """Returns the params with no more in flight than registers hold."""
        most = hardware.registers_a_thread(params.lparams.threads)
        name = "unroll_factor_top_of_vectorization" if params.fastest_dim else "unroll_factor_inner_reduction"
        steps, held = getattr(params, name), self.held(params)
        if steps == 1 or held + REGISTERS_TO_WORK <= most:
            return params
        fewer = max(1, steps * trunc(SHARE_OF_LOADS * most) // held)
        why = f"only {fewer} in flight, as each takes {held // steps} registers"
        return replace(params, **{name: fewer}, reason=f"{params.reason}; {why}")

    def _registers_of(self, load: Access, width: int) -> int:
        inner, size = self.space.inner_axis, load.tensor.dtype.size
        if inner is None or inner not in load.concrete:
            return ceil_div(size, REGISTER_BYTES)
        if load.axes.get(inner) is not unit_stride_axis(load.tensor):
            return width * ceil_div(size, REGISTER_BYTES)
        return ceil_div(width * size, REGISTER_BYTES)

    def _registers_of_rows(self, params: ReductionParams) -> int:
        """Returns the registers of several rows that are read as one: of their columns, and of what rows have
        one element of each, which is loaded for every column unless a thread has whole rows.
        """
        rows, inner = params.joined_rows, self.space.iteration[-1]
        columns = params.unroll_factor_iter_dom if params.has_whole_rows else 1
        held = 0
        for load in self._loads:
            size = load.tensor.dtype.size
            if inner in load.concrete:
                held += ceil_div(rows * columns * size, REGISTER_BYTES)
            elif params.has_whole_rows:
                held += ceil_div(rows * size, REGISTER_BYTES)
            else:
                held += rows * ceil_div(size, REGISTER_BYTES)
        return held

    @cached_property
    def _loads(self) -> list[Access]:
        reduced = frozenset(self.space.reduction)
        nodes, inputs = self._read_before_results()
        return [
            load
            for load in self.space.loads
            if not load.concrete.isdisjoint(reduced)
            and (load.tensor in inputs if load.node is None else load.node in nodes)
        ]

    def _read_before_results(self) -> tuple[set[Node], set[Val]]:
        """Returns the nodes that reductions, and outputs that need no result, follow from; and what these
        nodes read.
        """
        space = self.space
        stored = [out for out in self.fusion.output_tensors() if out not in space.after]
        left = [out.definition for out in stored]
        left += [tensor.definition for tensor in space.reductions]
        nodes: set[Node] = set()
        read: set[Val] = set()
        while left:
            node = left.pop()
            if node is None or node in nodes:
                continue
            nodes.add(node)
            read.update(node.inputs)
            left += [value.definition for value in node.inputs if not _is_result(value)]
        return nodes, read


def _is_result(value: Val) -> bool:
    return isinstance(value, TensorView) and isinstance(value.definition, Reduction)
