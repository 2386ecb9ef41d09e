"""Builders called by name on one fusion, for the tests of what they make and of what they refuse."""

from __future__ import annotations

from typing import Any

import torch

from fusewright.core.dtype import DataType, from_torch
from fusewright.ir import Fusion, TensorView
from fusewright.ops import DEFINERS, OPS
from fusewright.ops.evaluate import evaluate_fusion
from tests.reference import reference


class Definition:
    """Calls builders by name on one fusion."""

    def __init__(self) -> None:
        self.fusion = Fusion()
        self.given: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        row = DEFINERS.get(name) or OPS[name]

        def call(*args: Any, **kwargs: Any) -> Any:
            values = row.bind(args, kwargs)
            row.check(values)
            return row.build(self.fusion, *values)

        return call

    def input(self, value: torch.Tensor | complex) -> Any:
        """An input like `value`, which the evaluation then gets."""
        self.given.append(value)
        if not isinstance(value, torch.Tensor):
            return self.define_scalar(None, DataType[_SCALAR_NAMES[type(value)]])
        shape = [1 if n == 1 else -1 for n in value.shape]
        return self.define_tensor(shape, dtype=from_torch(value.dtype))

    def run(self, *outputs: TensorView) -> list[torch.Tensor]:
        """The outputs, which both evaluators must agree on."""
        for output in outputs:
            self.add_output(output)
        self.fusion.unify_extents()
        found = evaluate_fusion(self.fusion, self.given)
        for ours, theirs, tensor in zip(found, reference(self.fusion, self.given), outputs):
            assert ours.dtype == theirs.dtype == tensor.dtype.torch
            torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=2e-6, atol=1e-6)
        return found


_SCALAR_NAMES = {bool: "Bool", int: "Int", float: "Double", complex: "ComplexDouble"}


def tensor_of(
    dtype: DataType, low: float = -3.0, high: float = 3.0, shape: tuple[int, ...] = (4, 5)
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    values = torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low
    if dtype is DataType.Bool:
        return values > (low + high) / 2
    if dtype.is_complex:
        return torch.complex(values, values.flip(0)).to(dtype.torch)
    return values.to(dtype.torch)
