"""What is computed, on which inputs, and the ways in which it may be written down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.dtype import from_torch
from fusewright.core.hardware import described
from fusewright.core.tracing import Tracer
from fusewright.host.inputs.binding import Binder
from fusewright.host.inputs.layout import Layout
from fusewright.ir import Fusion, TensorView
from fusewright.rewrite import simplified
from fusewright.schedulers import Cost, Facts, default_registry
from fusewright.schedulers.cost import CostModel
from fusewright.segment import Call, Partitions, Planned

BF16, FLOAT = DataType.BFloat16, DataType.Float
H200 = described("h200")

#: Writes a computation into a definition, whose inputs it is given; returns the results.
Way = Callable[..., Sequence[Any]]


def statistics_over(
    dims: Sequence[int], view: Callable[[torch.Tensor], torch.Tensor] = lambda x: x
) -> Callable[..., Sequence[torch.Tensor]]:
    """dy, x, mean, 1 / deviation, weight, of which the third and the fourth are those of x."""

    def made(dy: torch.Tensor, x: torch.Tensor, *rest: torch.Tensor) -> Sequence[torch.Tensor]:
        variance, mean = torch.var_mean(view(x.double()), tuple(dims), correction=0)
        return [dy, x, mean.float(), (variance + 1e-5).rsqrt().float(), rest[-1]]

    return made


@dataclass(frozen=True)
class Computation:
    """One function of tensors, written in several ways.

    Attributes:
        inputs: the name of each dimension of each input, and its type, as `("nh", torch.bfloat16)`.
        reference: the results, from inputs in float64.
        sizes: of the dimensions, that it is partitioned for.
        kernels: that it takes at these sizes, at most.
        ways: by what is particular about each.
        small: sizes that it is evaluated at.
        statistics: the ways take some inputs to be what follows from others: makes these from all inputs.
    """

    name: str
    inputs: tuple[tuple[str, torch.dtype], ...]
    reference: Callable[..., Sequence[torch.Tensor]]
    sizes: tuple[Mapping[str, int], ...]
    kernels: int
    small: Mapping[str, int]
    statistics: Callable[..., Sequence[torch.Tensor]] | None = None
    ways: dict[str, Way] = field(default_factory=dict, init=False)

    def way(self, what: str) -> Callable[[Way], Way]:
        """Adds a way, of which `what` is particular."""

        def add(function: Way) -> Way:
            self.ways[what] = function
            return function

        return add

    def fusion(self, way: str) -> tuple[FusionDefinition, Fusion]:
        with FusionDefinition() as fd:
            given = [
                fd.define_tensor(shape=[-1] * len(dims), contiguity=True, dtype=from_torch(dtype))
                for dims, dtype in self.inputs
            ]
            for result in self.ways[way](fd, *given):
                fd.add_output(result)
        return fd, fd._complete().fusion

    def example(self, sizes: Mapping[str, int] | None = None, device: str = "cpu") -> list[torch.Tensor]:
        """Inputs of these sizes, or of the small ones."""
        sizes = sizes or self.small
        draw = torch.Generator(device).manual_seed(5)
        inputs = []
        for dims, dtype in self.inputs:
            values = torch.rand([sizes[dim] for dim in dims], generator=draw, device=device) * 2 - 1
            inputs.append(values > 0 if dtype is torch.bool else values.to(dtype))
        return list(self.statistics(*inputs)) if self.statistics is not None else inputs

    def planned(self, way: str, sizes: Mapping[str, int]) -> tuple[Planned, list[Cost]]:
        """The partition for these sizes, and what each of its kernels costs on an H200."""
        fusion = simplified(self.fusion(way)[1])
        inputs = [torch.empty([sizes[d] for d in dims], dtype=dtype) for dims, dtype in self.inputs]
        known = Binder(fusion).shapes(inputs, None).sizes
        layouts = cache(Layout)

        def facts(segment: Any) -> Facts:
            tensors = [v for v in segment.inputs if isinstance(v, TensorView)]
            strides = iter([layouts(tensor).at(known)[1] for tensor in tensors])
            laid_out = [next(strides) if isinstance(v, TensorView) else () for v in segment.inputs]
            sizes = segment.own_sizes(known)
            return Facts(
                sizes,
                segment.own_strides(laid_out, sizes),
                tuple(256 for _ in laid_out),
                DataType.Int32,
                segment.own_stable(frozenset(known)),  # as in a first call
            )

        call = Call(tuple(sizes.items()), lambda segments: None, facts, H200)
        planned = Partitions(fusion, default_registry()).select(call, Tracer())
        costs = []
        for segment, proposal in zip(planned.partition.segments, planned.proposals):
            model = CostModel(segment.fusion)
            estimate = proposal.estimate or model.estimate(facts(segment), H200)
            costs.append(estimate())
        return planned, costs
