"""Segments that torch computes: the values by whose names a program calls torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import torch

from fusewright.core.errors import InternalError, LibraryError
from fusewright.core.recorded import computed
from fusewright.host.inputs.layout import size_value
from fusewright.host.inputs.memory import Memory
from fusewright.host.inputs.places import is_kept_by_torch
from fusewright.host.program.ir import Evaluate
from fusewright.ir import LibraryCall, Node, Placement, TensorView, Update, Val
from fusewright.ops.evaluate import updated
from fusewright.runtime.targets import Target
from fusewright.segment import Segment
from fusewright.sym import Symbol

#: The errors that torch raises for arguments that it does not accept. Subclasses report other faults, such as
#: out of memory.
REFUSALS = (RuntimeError, NotImplementedError)


class EvaluatePlan:
    """One evaluation in a program. Sizes change only how operands are viewed."""

    def __init__(self, op: Evaluate, segment: Segment, target: Target) -> None:
        self.op = op
        self.segment = segment
        node = op.node
        #: the values in the program's code that do not depend on sizes, by name
        self.constants: dict[str, Any] = {
            f"refused_{op.segment}": partial(_refuse, node),
            **{f"lay_out_{v.name}": _layout_of(v, target.device.type) for v in op.outputs},
        }
        if isinstance(node, LibraryCall):
            self.constants[f"call_{op.segment}"] = node.op.function(target.device.type, **node.options)
            if (way := node.op.overwriting) is not None:
                self.constants[f"over_{op.segment}"] = way.function(target.device.type, **node.options)

    def bound(self, memory: Memory) -> dict[str, Any]:
        """The values in the program's code that depend on sizes, by name.

        They are the function of an update, and the functions that make the views of operands.
        """
        node, segment = self.op.node, self.op.segment
        if isinstance(node, Update):
            sizes = memory.sizes
            return {f"call_{segment}": computed(_updating, node, tuple(sizes), tuple(sizes.values()))}
        seen = ((i, value, self.op.seen_through(i)) for i, value in enumerate(self.op.inputs))
        return {f"look{segment}_{i}": _look(memory, value, nodes) for i, value, nodes in seen if nodes}


def _look(memory: Memory, source: Val, nodes: Sequence[Node]) -> Any:
    """The function that makes a view of a tensor, as `nodes` define it.

    The function is `recorded.computed`, since it depends on sizes.
    """
    shape, strides, _ = memory.of(source)
    place: Placement | None = Placement(shape, strides)
    for node in nodes:
        shape = tuple([size_value(extent, memory.sizes) for extent in node.output.extents])
        if 0 in shape:
            place = Placement(shape, (0,) * len(shape))
            continue
        place = node.placement(place, shape, memory.sizes) if place is not None else None
    if place is None:
        raise InternalError(problem=f"no strides lead to what {nodes[-1].label} shows")
    return computed(partial, _seen, place.shape, place.strides, place.offset)


def _updating(node: Update, symbols: Sequence[Symbol], sizes: Sequence[int]) -> Callable[..., torch.Tensor]:
    return partial(updated, node, dict(zip(symbols, sizes)))


def _seen(
    shape: tuple[int, ...], strides: tuple[int, ...], offset: int, source: torch.Tensor
) -> torch.Tensor:
    return source.as_strided(shape, strides, source.storage_offset() + offset)


def _refuse(node: Node, error: RuntimeError) -> NoReturn:
    if type(error) not in REFUSALS:
        raise error
    raise LibraryError(op=node.label, problem=str(error)) from error


def _layout_of(tensor: TensorView, device: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """The function that gives a result the layout of the fusion: dense, in the order of `tensor.allocation`.

    A tensor of rank 0 that torch may leave in host memory is copied to the device, if a kernel reads it.
    """
    if not tensor.ndim:
        return _unchanged if is_kept_by_torch(tensor) else partial(_brought, device)
    position = {axis: i for i, axis in enumerate(tensor.shape)}
    order = [position[axis] for axis in tensor.allocation]
    if order == sorted(order):
        return torch.Tensor.contiguous
    return partial(_in_order, order, [order.index(dim) for dim in range(len(order))])


def _unchanged(value: torch.Tensor) -> torch.Tensor:
    return value


def _brought(device: str, value: torch.Tensor) -> torch.Tensor:
    return value if value.device.type == device else value.to(device)


def _in_order(order: Sequence[int], back: Sequence[int], value: torch.Tensor) -> torch.Tensor:
    return value.permute(*order).contiguous().permute(*back)


def plain_torch_names() -> dict[str, Any]:
    """The functions by which a program leaves torch's modes that would change its operations, by name."""
    return {
        "records_gradients": torch.is_grad_enabled,
        "record_gradients": torch._C._set_grad_enabled,
        "autocasts": torch._C._is_any_autocast_enabled,
        "without_autocast": torch._C._DisableAutocast,
    }
