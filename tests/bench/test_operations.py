"""Every operation of the benchmark, end to end at small shapes: from definition to result."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bench.operation import Inputs, Operation, Shape
from bench.operations import OPERATIONS, selected

CASES = [(operation, shape) for operation in OPERATIONS for shape in operation.small]


def name(value: Any) -> str:
    return value.name if isinstance(value, Operation) else "x".join(map(str, value))


@pytest.mark.sampled(0.5, "operation")
@pytest.mark.parametrize(("operation", "shape"), CASES, ids=name)
def test_operation_is_right(operation: Operation, shape: Shape, target: torch.device) -> None:
    inputs = operation.inputs(shape, Inputs(target))
    outputs = operation.definition(inputs).execute(inputs)
    operation.check(shape, inputs, outputs)


# torch's own function takes these types on a GPU only.
ON_CPU = [operation for operation in OPERATIONS if operation.name != "layernorm_bwd"]


@pytest.mark.parametrize("operation", ON_CPU, ids=name)
@pytest.mark.sampled(0.5)
def test_outputs_have_the_type_of_torchs(operation: Operation) -> None:
    """So that both are timed on the same bytes."""
    shape = operation.small[0]
    inputs = operation.inputs(shape, Inputs(torch.device("cpu")))
    outputs = operation.definition(inputs).execute(inputs)
    expected = operation.reference(*inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert [(o.shape, o.dtype) for o in outputs] == [(e.shape, e.dtype) for e in expected]


def test_a_wrong_result_is_found() -> None:
    [operation] = selected(["softmax"])
    shape = operation.small[0]
    inputs = operation.inputs(shape, Inputs(torch.device("cpu")))
    outputs = operation.definition(inputs).execute(inputs)
    outputs[0][2, 3] *= 1.02
    with pytest.raises(AssertionError, match="not close"):
        operation.check(shape, inputs, outputs)


def test_a_sum_that_misses_an_element_is_found() -> None:
    [operation] = selected(["sum_all"])
    shape = (256, 1024)
    inputs = operation.inputs(shape, Inputs(torch.device("cpu")))
    total = inputs[0].double().sum()
    assert operation.check(shape, inputs, [total.float()]) < 1
    with pytest.raises(AssertionError, match="not close"):
        operation.check(shape, inputs, [(total - inputs[0][3, 5].double()).float()])


def test_rows_that_few_threads_sum_may_be_less_exact() -> None:
    [operation] = selected(["layernorm"])
    shape = (2, 20000)
    inputs = operation.inputs(shape, Inputs(torch.device("cpu")))
    x, weight, bias = (tensor.double() for tensor in inputs)

    def outputs(error: float) -> list[torch.Tensor]:
        """Of a variance that is off by this part of it."""
        variance = x.var(-1, correction=0, keepdim=True) * (1 + error)
        y = (x - x.mean(-1, keepdim=True)) * torch.rsqrt(variance + 1e-5) * weight + bias
        return [y.to(inputs[0].dtype)]

    assert operation.check(shape, inputs, outputs(0)) < 1
    # What 25,000 terms that are added in turn in float32 were off by.
    operation.check(shape, inputs, outputs(3e-5), in_turn=25000)
    for error, in_turn in ((3e-5, 1), (1e-2, 25000)):
        with pytest.raises(AssertionError, match="not close"):
            operation.check(shape, inputs, outputs(error), in_turn)


def test_names_select_operations() -> None:
    assert [operation.name for operation in selected(["softmax", "rope"])] == [
        "softmax",
        "rope_static",
        "rope_symbolic",
    ]
    with pytest.raises(ValueError, match="no operation hardmax; there are: add_mul, "):
        selected(["softmax", "hardmax"])
