"""Advice for arguments from other libraries that operations do not accept: what to pass instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fusewright.frontend.handles import Handle
from fusewright.ops import Parameter, describe_argument


def advice(parameters: Sequence[Parameter], values: Sequence[Any]) -> str | None:
    """A hint about the first of these arguments that no definition can hold."""
    for parameter, value in zip(parameters, values):
        found = next(
            filter(None, map(_instead, value if isinstance(value, (list, tuple)) else [value])), None
        )
        if found is not None:
            given = describe_argument(value)
            return f"{parameter.name} must be {parameter.kind.text}, not {given}; {found}"
    return None


def _instead(value: Any) -> str | None:
    if isinstance(value, Handle):
        return None
    if isinstance(value, (torch.Tensor, np.ndarray)):
        of_torch = "" if isinstance(value, torch.Tensor) else " of torch.from_numpy(...)"
        constant = "its item() is a constant, " if value.ndim == 0 else ""
        return f"{constant}fd.from_pytorch{of_torch} is an input like it"
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return f"torch.{np.dtype(value).name} is the torch dtype, which is taken"
    if isinstance(value, range):
        return f"list({value})"
    return None
