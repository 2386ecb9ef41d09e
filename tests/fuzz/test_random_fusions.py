"""Random fusions against torch: at least 500 in a default run, of eight flavours.

A failure prints the definition as a script. `HYPOTHESIS_PROFILE=fuzz pytest tests/fuzz` draws new ones each
time.
"""

from __future__ import annotations

from collections.abc import Callable

import hypothesis
import torch
from hypothesis import given, settings

from fusewright import FusionDefinition
from tests.fuzz.bounded import disagreement
from tests.fuzz.programs import (
    COMPLEX,
    DISCRETE,
    FLOATS,
    LONG_SIZES,
    SIZES,
    Flavour,
    Program,
    programs,
)

POINTWISE = ("unary", "unary", "binary", "binary", "ternary", "cast")
SHAPES = ("permute", "broadcast", "squeeze", "expand", "back", "order", "factory")
FLAVOURS = {
    "pointwise": Flavour(POINTWISE, (*FLOATS, *DISCRETE)),
    "layouts": Flavour((*POINTWISE, "permute", "back"), FLOATS, layouts=True),
    "shapes": Flavour((*SHAPES, "unary", "binary"), (*FLOATS, *DISCRETE), max_rank=4, layouts=True),
    "discrete": Flavour((*POINTWISE, "reduce", "back"), DISCRETE, max_ops=20),
    "reductions": Flavour(
        ("unary", "binary", "cast", "reduce", "permute"), max_rank=4, max_ops=12, layouts=True
    ),
    "normalizations": Flavour(("normalize", "unary", "binary", "back"), sizes=SIZES + LONG_SIZES),
    "everything": Flavour(
        (*POINTWISE, *SHAPES, "reduce", "reduce", "normalize"), (*FLOATS, *DISCRETE), layouts=True
    ),
    "degenerate": Flavour(
        (*POINTWISE, *SHAPES, "reduce"),
        (*FLOATS, *COMPLEX),
        sizes=(0, 1, 1, 2, 3, 40),
        max_ops=15,
        layouts=True,
    ),
}
EXAMPLES = 70


def check(program: Program) -> None:
    inputs = program.make_inputs()
    with FusionDefinition() as fd:
        program.define(fd, inputs)
    hypothesis.note(fd.repro_script_for(inputs))
    outputs = fd.execute(inputs)
    assert len(outputs) == len(program.outputs)
    for i, (actual, expected, (_, order)) in enumerate(zip(outputs, program.expected, program.outputs)):
        problem = disagreement(actual, expected)
        assert problem is None, f"output {i}: {problem}"
        if order is not None:
            assert actual.numel() == 0 or actual.stride() == _strides(actual, order), f"output {i}"


def _strides(output: torch.Tensor, stride_order: tuple[int, ...]) -> tuple[int, ...]:
    """Those of `stride_order` without gaps; a dimension that is expanded takes no memory."""
    expanded = [size > 1 and stride == 0 for size, stride in zip(output.shape, output.stride())]
    sizes = [1 if e else size for e, size in zip(expanded, output.shape)]
    memory = sorted(range(len(sizes)), key=lambda d: -stride_order[d])
    strides = torch.empty_permuted(sizes, memory, device="meta").stride()
    return tuple(0 if e else stride for e, stride in zip(expanded, strides))


def _test_of(name: str, flavour: Flavour) -> Callable[[], None]:
    def test(program: Program) -> None:
        check(program)

    # Derandomised examples are drawn by the function's name among other things.
    test.__name__ = test.__qualname__ = f"test_{name}"
    return settings(max_examples=EXAMPLES)(given(program=programs(flavour))(test))


for _name, _flavour in FLAVOURS.items():
    globals()[f"test_{_name}"] = _test_of(_name, _flavour)
