"""Checks whether a tensor's memory holds its values, and handles tensors for which it does not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import mul
from typing import Any

import torch

_PLAIN_DISPATCH = torch.Tensor.__torch_dispatch__


def is_plain(given: type) -> bool:
    """Whether tensors of this class are torch's own or differ from them in Python only.

    Other classes (fake, functional, distributed tensors) implement operations themselves.
    """
    return getattr(given, "__torch_dispatch__", None) is _PLAIN_DISPATCH


def has_no_memory(inputs: Iterable[Any]) -> bool:
    """Whether some of the tensors, such as fake ones, have no address that may be read."""
    return any(isinstance(value, torch.Tensor) and not is_plain(type(value)) for value in inputs)


def not_dense(tensor: torch.Tensor) -> tuple[str, str | None] | None:
    """What a tensor is whose elements have no strides, or other values than stated, and a hint; else None."""
    if tensor.is_nested:
        return "a nested tensor", None
    if tensor.layout is not torch.strided:
        return f"one of layout {tensor.layout}", None
    if tensor.is_quantized:
        return "a quantized tensor", "pass its int_repr(), with scale and zero point, or dequantize() it"
    return None


def unreadable(tensor: torch.Tensor) -> tuple[str, str | None] | None:
    """Why the memory of `tensor` does not hold its values, and a hint; None if it does.

    Each property checked here is part of a call's key (`signature`), or computing the key raises an error. So
    a bound program never gets such a tensor. `storage_fault` checks the size of the storage separately: it is
    not part of the key, so bound programs check it at every call.
    """
    if not is_plain(type(tensor)):
        return f"a {type(tensor).__name__}, which holds no values in memory of its own", None
    described = not_dense(tensor)
    if described is not None:
        return described
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor) or torch._is_functional_tensor(tensor):
        return "one that a transform (of torch.func, say) wraps", None
    if tensor._is_zerotensor():
        return (
            "zeros without memory, as forward-mode differentiation makes them",
            "pass torch.zeros_like of it",
        )
    return None


def storage_fault(tensor: torch.Tensor, span: int) -> str | None:
    """A description of the storage of a dense tensor that does not hold all its elements; None if it does.

    span: the number of elements from the first to the last (`spanned_elements`).
    """
    held = tensor.untyped_storage().nbytes()
    end = (tensor.storage_offset() + span) * tensor.element_size()
    if held >= end or not span:
        return None
    return f"a storage of {held} bytes, where its elements end at byte {end}"


def spanned_elements(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The number of elements from the first of a tensor in memory to the last; 0 if it has none."""
    if not shape:
        return 1
    return 0 if 0 in shape else 1 + sum(map(mul, shape, strides)) - sum(strides)


def in_own_memory(view: torch.Tensor) -> torch.Tensor:
    """The values of a tensor, such as a lazily conjugated view, in separate memory with its strides."""
    own = torch.empty_strided(view.shape, view.stride(), dtype=view.dtype, device=view.device)
    # An expanded dimension has one element in memory, so only one is written.
    once: list[Any] = [slice(1) if stride == 0 else slice(None) for stride in view.stride()]
    own[tuple(once)].copy_(view[tuple(once)])
    return own
