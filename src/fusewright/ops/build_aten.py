"""The builder of torch's own operators, which torch computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusewright.core.dtype import DataType
from fusewright.core.errors import ArgumentTypeError, DefinitionError
from fusewright.ir import Fusion, Scalar, TensorView, Val
from fusewright.ops.aten import AtenResult, Operand, aten_row, named_overload
from fusewright.ops.build_factory import shape_extents
from fusewright.ops.build_library import call_library
from fusewright.ops.build_shape import known_size, memory_order
from fusewright.ops.registry import Shape, op


@op()
def aten(
    fusion: Fusion,
    overload: str,
    arguments: Sequence[object],
    shapes: Sequence[Shape],
    dtypes: Sequence[DataType],
    stride_orders: Sequence[Sequence[int]] = (),
) -> TensorView | tuple[TensorView | None, ...]:
    """The result, or the results, of an operator of ATen that torch computes, such as "convolution.default".

    arguments: in the order of its schema, including keyword-only ones; omitted ones at the end have their
    defaults. Dtypes are `DataType`s. shapes, dtypes: of its results, which each call checks; a result of type
    Null is absent. stride_orders: of the results in memory, row-major if omitted.

    Raises:
        DefinitionError: there is no such operator, or it writes into arguments or returns views of them.
    """
    row = aten_row(overload)
    schema = named_overload(overload)._schema
    expected = len(schema.returns)
    for name, given in (("shapes", shapes), ("dtypes", dtypes), ("stride_orders", stride_orders)):
        if len(given) != expected and (given or name != "stride_orders"):
            raise DefinitionError(
                problem=f"aten.{overload} has {expected} result(s), not {len(given)} {name}"
            )
    if len(arguments) > len(schema.arguments):
        raise ArgumentTypeError(
            function=f"aten.{overload}", expected=str(schema), given=f"{len(arguments)} arguments"
        )
    operands: dict[Val, Operand] = {}
    template = _template(arguments, operands)
    if not any(isinstance(value, TensorView) for value in operands):
        raise ArgumentTypeError(function=f"aten.{overload}", expected="a Tensor argument", given="none")
    stated = tuple(AtenResult(d, _sizes(shape, operands)) for d, shape in zip(dtypes, shapes))
    there = [i for i, dtype in enumerate(dtypes) if dtype is not DataType.Null]
    results = [(shape_extents(shapes[i]), dtypes[i]) for i in there]
    orders = [memory_order(stride_orders[i], len(shapes[i])) for i in there] if stride_orders else ()
    options = {"arguments": template, "results": stated}
    outputs = iter(call_library(fusion, row, list(operands), results, options, orders))
    made = tuple(next(outputs) if i in there else None for i in range(expected))
    return made[0] if expected == 1 and made[0] is not None else made


def _template(value: Any, operands: dict[Val, Operand]) -> Any:
    """An argument as the row takes it; adds to `operands` what it reads."""
    if isinstance(value, (TensorView, Scalar)):
        return operands.setdefault(value, Operand(len(operands)))
    if isinstance(value, (list, tuple)):
        return tuple([_template(item, operands) for item in value])
    return value.torch if isinstance(value, DataType) else value


def _sizes(shape: Shape, operands: dict[Val, Operand]) -> tuple[int | Operand, ...]:
    sizes: list[int | Operand] = []
    for size in shape:
        known = known_size(size)
        sizes.append(known if isinstance(known, int) else operands.setdefault(known, Operand(len(operands))))
    return tuple(sizes)
