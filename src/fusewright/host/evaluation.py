"""Segments that torch computes: what a program knows of one by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import torch

from fusewright.core.errors import LibraryError
from fusewright.host.ir import Evaluate
from fusewright.ir import LibraryCall, Node, TensorView, Update
from fusewright.ops.evaluate import updated
from fusewright.runtime.targets import Target
from fusewright.segment import Segment
from fusewright.sym import Symbol

#: What torch raises for arguments that it does not take. Its subclasses tell of other faults: out of memory.
REFUSALS = (RuntimeError, NotImplementedError)


class EvaluatePlan:
    """One evaluation of a program."""

    def __init__(self, op: Evaluate, segment: Segment, target: Target) -> None:
        self.op = op
        self.segment = segment
        node = op.node
        #: of the program's code, by name: what no size changes
        self.constants: dict[str, Any] = {
            f"refused_{op.segment}": partial(_refuse, node),
            **{f"lay_out_{tensor.name}": _layout_of(tensor) for tensor in op.outputs},
        }
        if isinstance(node, LibraryCall):
            self.constants[f"call_{op.segment}"] = node.op.function(target.device.type, **node.options)

    def bind(self, sizes: Mapping[Symbol, int]) -> dict[str, Any]:
        """What else it uses by name."""
        node = self.op.node
        return {f"call_{self.op.segment}": partial(updated, node, sizes)} if isinstance(node, Update) else {}


def _refuse(node: Node, error: RuntimeError) -> NoReturn:
    if type(error) not in REFUSALS:
        raise error
    raise LibraryError(op=node.label, problem=str(error)) from error


def _layout_of(tensor: TensorView) -> Callable[[torch.Tensor], torch.Tensor]:
    """What lays a result out as the fusion states: dense, in the order of `tensor.allocation`."""
    position = {axis: i for i, axis in enumerate(tensor.shape)}
    order = [position[axis] for axis in tensor.allocation]
    if order == sorted(order):
        return torch.Tensor.contiguous
    return partial(_in_order, order, [order.index(dim) for dim in range(len(order))])


def _in_order(order: Sequence[int], back: Sequence[int], value: torch.Tensor) -> torch.Tensor:
    return value.permute(*order).contiguous().permute(*back)


def plain_torch_names() -> dict[str, Any]:
    """How a program leaves modes of torch that would change what its operations do."""
    return {
        "records_gradients": torch.is_grad_enabled,
        "record_gradients": torch._C._set_grad_enabled,
        "autocasts": torch._C._is_any_autocast_enabled,
        "without_autocast": torch._C._DisableAutocast,
    }
