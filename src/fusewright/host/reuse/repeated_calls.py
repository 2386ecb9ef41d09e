"""Recognizes a call that repeats the previous one without computing the key of its inputs.

The key of a tensor reads seven of its properties from Python. torch.compile's guards compare most of these
for all tensors of a call at once, in a tenth of the time. They also distinguish tensors that have equal keys
(one needs a gradient, the other does not). So if the guards fail, the key decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fusewright.host.inputs.signature import ALIGNMENT_BYTES, address_part
from fusewright.host.program.programs import Matches
from fusewright.ir import Fusion, TensorView, Val

_guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
_TensorGuards = getattr(_guards, "TensorGuards", None)


def matcher(fusion: Fusion, sizes: frozenset[Val], inputs: Sequence[Any]) -> Matches:
    """A function that returns whether other flat inputs have the same key as `inputs`.

    If it returns False, the keys may still be equal. It raises AttributeError, TypeError or ValueError for
    inputs that no call accepts.

    Args:
        sizes: the scalars whose value is part of the key.
    """
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if _TensorGuards is None or not tensors:
        return _never
    shapes, strides = [list(t.shape) for t in tensors], [list(t.stride()) for t in tensors]
    guard = _TensorGuards(*tensors, dynamic_dims_sizes=shapes, dynamic_dims_strides=strides).check
    if not guard(*tensors):  # the guard fails if a tensor is passed twice
        return _never
    names = [f"a{i}" for i in range(len(inputs))]
    known: dict[str, Any] = {"guard": guard, "strided": torch.strided}
    of_tensors, plain, conditions = list[str](), list[str](), list[str]()
    for name, value, given in zip(names, fusion.inputs, inputs):
        if isinstance(value, TensorView):
            of_tensors.append(name)
            # The guard reads strides, and ends the process for a tensor without strides.
            plain.append(f"{name}.layout is strided and not {name}.is_nested")
            if not value.is_cpu:
                part = address_part(name)
                conditions.append(f"{part} == {(given.data_ptr() or 0.5) % ALIGNMENT_BYTES!r}")
            continue
        known[f"class_{name}"] = type(given)
        conditions.append(f"{name}.__class__ is class_{name}")
        if value in sizes:
            known[f"value_{name}"] = given
            conditions.append(f"{name} == value_{name}")
    asked = " and ".join([*plain, f"guard({', '.join(of_tensors)})", *conditions])
    source = f"def matches(inputs):\n {', '.join(names)}, = inputs\n return {asked}\n"
    exec(compile(source, "<fusewright repeated call>", "exec"), known)
    matches: Matches = known["matches"]
    return matches


def _never(inputs: Sequence[Any]) -> bool:
    return False
