"""What every operation refuses, by class and message: arguments of another kind, types, dimensions, values.

The first three are made of the cells of the matrix, for every parameter of every operation; the last is a row
for each operation that refuses more than these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from fusewright import DataType, FusionDefinition
from fusewright.cli.survey import TYPES
from fusewright.core.errors import (
    ArgumentTypeError,
    DefinitionError,
    DtypeError,
    RankError,
    ShapeError,
    UnsupportedHardwareError,
    UserError,
)
from fusewright.ops import OPS, Parameter
from fusewright.ops.elementwise import ELEMENTWISE
from tests.fuzz.programs import Call, Input, Program, Ref, arguments, define
from tests.matrix.cells import DTYPES, FOR_ALL_TYPES, accepted, program, takes
from tests.matrix.layouts import Shape
from tests.matrix.rows import ROWS

SHAPE = Shape((4, 16), (16, 1))
Float, Half, Int = DataType.Float, DataType.Half, DataType.Int
DIMENSIONS = ("dim", "dims", "start_dim", "end_dim", "broadcast_dims")
# Types whose tensors are defined some other way.
PACKED = (DataType.Float4_e2m1fn,)


def _refusal(written: Program) -> UserError | None:
    """What the definition is refused with."""
    written = replace(written, outputs=[])
    try:
        with FusionDefinition() as fd:
            define(written, fd, arguments(written, 0))
            fd.add_output(fd.ops.full([1], 1.0, Float))
    except UserError as error:
        return error
    return None


def _last_call(op: str) -> tuple[Program, Call, Callable[[tuple[Any, ...]], Program]]:
    """A program that ends in a call of an operation, that call, and the program with other arguments."""
    dtype = next(dtype for dtype in DTYPES if takes(op, dtype))
    written = program([op], dtype, SHAPE)
    at = max(i for i, call in enumerate(written.calls) if call.op == op)
    call = written.calls[at]

    def called(args: tuple[Any, ...]) -> Program:
        return replace(written, calls=[*written.calls[:at], replace(call, args=args)])

    return written, call, called


class _Other:
    """No kind of argument."""


def test_arguments_of_another_kind() -> None:
    wrong = []
    for op in ROWS:
        _, call, called = _last_call(op)
        for i in range(len(call.args)):
            error = _refusal(called((*call.args[:i], _Other(), *call.args[i + 1 :])))
            if not (
                isinstance(error, ArgumentTypeError)
                and f"{op}(): incompatible function arguments. Expected (" in str(error)
                and "_Other" in str(error)
            ):
                wrong.append((op, i, repr(error)))
    assert not wrong


def test_types_that_an_operation_does_not_take() -> None:
    wrong = []
    for op in ROWS:
        for dtype in TYPES if op not in FOR_ALL_TYPES else ():
            if dtype not in accepted()[op] and dtype not in PACKED:
                error = _refusal(_of_type(op, dtype))
                if not (isinstance(error, DtypeError) and dtype.name in str(error)):
                    wrong.append((op, dtype.name, repr(error)))
    assert not wrong


def _of_type(op: str, dtype: DataType) -> Program:
    """A call of which all tensors have the type."""
    if op not in ELEMENTWISE:
        return program([op], dtype, SHAPE)
    args = [Ref(0) if _is_tensor(p) else 1 for p in OPS[op].parameters]
    plain = program(["set"], dtype, SHAPE)
    return Program([Input(dtype, "symbolic")], [Call(op, tuple(args))], [], plain.executions)


def _is_tensor(parameter: Parameter) -> bool:
    return parameter.kind.text.startswith("Tensor")


def test_dimensions_that_are_not_there() -> None:
    wrong = []
    for op in ROWS:
        _, call, called = _last_call(op)
        for i, parameter in enumerate(OPS[op].parameters):
            if parameter.name not in DIMENSIONS:
                continue
            args = [*call.args, *(p.default for p in OPS[op].parameters[len(call.args) : i + 1])]
            for outside in (9, -9):
                is_list = isinstance(args[i], (list, tuple))
                args[i] = tuple(outside for _ in args[i]) if is_list else outside
                error = _refusal(called(tuple(args)))
                if not isinstance(error, ShapeError):
                    wrong.append((op, parameter.name, outside, repr(error)))
    assert not wrong


def test_operands_of_sizes_that_differ() -> None:
    wrong = []
    for op in ELEMENTWISE:
        count = sum(map(_is_tensor, OPS[op].parameters))
        if count < 2 or op in ("where", "threshold", "clamp"):
            continue
        dtype = next(dtype for dtype in DTYPES if takes(op, dtype))
        one, other = (
            program(["set"], dtype, Shape((4, n), (n, 1), form="static")).executions[0][0] for n in (16, 7)
        )
        args = [1] * len(OPS[op].parameters)
        args[:count] = [Ref(0), *[Ref(1)] * (count - 1)]
        inputs = [Input(dtype, "static")] * 2
        error = _refusal(Program(inputs, [Call(op, tuple(args))], [], [[one, other]]))
        if not (
            isinstance(error, ShapeError) and "a conflict was found with 2 different sizes" in str(error)
        ):
            wrong.append((op, repr(error)))
    assert not wrong


class _Tensors:
    """What rows make their calls of; `s`: of constant sizes; `v`, `v3`, `r0`, `h4`: of that rank."""

    def __init__(self, fd: FusionDefinition) -> None:
        self.x, self.s = fd.define_tensor([-1, -1]), fd.define_tensor([4, 16])
        self.s7 = fd.define_tensor([4, 7])
        self.v, self.v3, self.r0 = (fd.define_tensor([-1] * rank) for rank in (1, 3, 0))
        self.i, self.i1 = (fd.define_tensor([-1] * rank, dtype=Int) for rank in (2, 1))
        self.h3, self.h4 = (fd.define_tensor([-1] * rank, dtype=Half) for rank in (3, 4))


TWICE = "reduction: a dimension is listed twice"
NO_SIZE = "The value -2 at index 0 was neither symbolic"
NOT_ALONE = "rng_seed and rng_offset go together"
Row = tuple[str, type[UserError], str, Callable[[Any, _Tensors], Any]]
REFUSED: list[Row] = [
    ("where", DtypeError, "Condition should be of DataType Bool", lambda o, t: o.where(t.x, t.x, t.x)),
    ("cast", DtypeError, "a type with values", lambda o, t: o.cast(t.x, DataType.Null)),
    ("bitcast", DtypeError, "4 bytes an element and", lambda o, t: o.bitcast(t.x, DataType.Int)),
    ("add_alpha", ShapeError, "2 different sizes", lambda o, t: o.add_alpha(t.s, t.s7, 2)),
    ("sub_alpha", ShapeError, "2 different sizes", lambda o, t: o.sub_alpha(t.s, t.s7, 2)),
    ("gelu", DefinitionError, "must be either none or tanh", lambda o, t: o.gelu(t.x, "tan")),
    ("masked_fill", DtypeError, "the mask of masked_fill", lambda o, t: o.masked_fill(t.x, t.x, 1)),
    ("broadcast", RankError, "number of false entries", lambda o, t: o.broadcast(t.x, [True, False])),
    (
        "broadcast_in_dim",
        RankError,
        "The broadcast dimensions should match the input dimensions",
        lambda o, t: o.broadcast_in_dim(t.x, [2, 4, 16], [1]),
    ),
    ("expand", ShapeError, "expand, dimension 0: a conflict", lambda o, t: o.expand(t.s, [5, 16])),
    ("squeeze", ShapeError, "dimension 0 is no broadcast", lambda o, t: o.squeeze(t.s, [0])),
    ("permute", ShapeError, "duplicated dimension entries", lambda o, t: o.permute(t.x, [0, 0])),
    ("stride_order", ShapeError, "duplicated stride_order", lambda o, t: o.stride_order(t.x, [0, 0])),
    ("at", ShapeError, "out of boundary index 2", lambda o, t: o.at(o.shape(t.x), 2)),
    ("full", ShapeError, NO_SIZE, lambda o, t: o.full([-2], 1, Float)),
    ("zeros", ShapeError, NO_SIZE, lambda o, t: o.zeros([-2], Float)),
    ("ones", ShapeError, NO_SIZE, lambda o, t: o.ones([-2], Float)),
    ("iota", ShapeError, "step value must not equal zero", lambda o, t: o.iota(4, 0, 0, Int)),
    ("sum", ShapeError, TWICE, lambda o, t: o.sum(t.x, [0, 0])),
    ("prod", ShapeError, TWICE, lambda o, t: o.prod(t.x, [0, -2])),
    ("max", ShapeError, TWICE, lambda o, t: o.max(t.x, [0, 0])),
    ("min", ShapeError, TWICE, lambda o, t: o.min(t.x, [0, 0])),
    ("any", ShapeError, TWICE, lambda o, t: o.any(t.x, [0, 0])),
    ("all", ShapeError, TWICE, lambda o, t: o.all(t.x, [0, 0])),
    ("mean", ShapeError, TWICE, lambda o, t: o.mean(t.x, [0, 0])),
    ("logsumexp", ShapeError, TWICE, lambda o, t: o.logsumexp(t.x, [0, 0])),
    ("welford", RankError, "the input of welford", lambda o, t: o.welford(t.r0, [0])),
    ("max_sum_exp", RankError, "the input of max_sum_exp", lambda o, t: o.max_sum_exp(t.r0, [0])),
    ("var", ShapeError, "correction must not be negative", lambda o, t: o.var(t.x, [0], -1)),
    ("std", ShapeError, "correction must not be negative", lambda o, t: o.std(t.x, [0], -1)),
    ("var_mean", ShapeError, "correction must not be negative", lambda o, t: o.var_mean(t.x, [0], -1)),
    ("matmul", ShapeError, "matmul, the dimension that is summed", lambda o, t: o.matmul(t.s, t.s)),
    ("matmul", RankError, "a of matmul to have at least 1", lambda o, t: o.matmul(t.r0, t.x)),
    ("linear", RankError, "arg2 of linear to have 2", lambda o, t: o.linear(t.x, t.v3)),
    ("topk", ShapeError, "selected index k out of range", lambda o, t: o.topk(t.s, 17, 1)),
    ("sdpfa_fwd", RankError, "query of sdpfa_fwd", lambda o, t: o.sdpfa_fwd(t.h3, t.h3, t.h3)),
    (
        "sdpfa_bwd",
        ArgumentTypeError,
        "philox_seed and philox_offset",
        lambda o, t: o.sdpfa_bwd(t.h4, t.h4, t.h4, t.h4, t.h4, t.v3),
    ),
    ("grouped_mm", RankError, "got 3 for both", lambda o, t: o.grouped_mm(t.v3, t.v3, t.i1)),
    ("scaled_mm", RankError, "mat1 of scaled_mm", lambda o, t: o.scaled_mm(t.v3, t.x, t.x, t.x)),
    ("select", ShapeError, "index 16 is out of range", lambda o, t: o.select(t.s, 16, 1)),
    ("index_select", RankError, "index_select: the index", lambda o, t: o.index_select(t.x, t.i, 1)),
    ("gather", RankError, "Tensor arguments have dimension 2 and 1", lambda o, t: o.gather(t.x, t.i1, 1)),
    ("take_along_axis", DtypeError, "the index", lambda o, t: o.take_along_axis(t.x, t.x, 1)),
    ("embedding_fwd", RankError, "the weight to have 2", lambda o, t: o.embedding_fwd(t.i, t.v3)),
    ("embedding_fwd", DtypeError, "Int or Int32", lambda o, t: o.embedding_fwd(t.x, t.x)),
    ("triu", RankError, "must have 2 or more dims, but got 1", lambda o, t: o.triu(t.v)),
    ("tril", RankError, "must have 2 or more dims, but got 1", lambda o, t: o.tril(t.v)),
    ("cross_entropy", RankError, "the target of cross_entropy", lambda o, t: o.cross_entropy(t.x, t.i)),
    ("reshape", ShapeError, "element counts across view", lambda o, t: o.reshape(t.s, [5, -1])),
    ("reshape", ShapeError, "one value of -1 can be specified", lambda o, t: o.reshape(t.s, [-1, -1])),
    ("flatten", ShapeError, "start_dim comes after end_dim", lambda o, t: o.flatten(t.x, 1, 0)),
    ("layer_norm", RankError, "the normalized_shape of layer_norm", lambda o, t: o.layer_norm(t.x, 3)),
    ("rms_norm", RankError, "the normalized_shape of rms_norm", lambda o, t: o.rms_norm(t.x, 0)),
    ("group_norm", ShapeError, "num_groups", lambda o, t: o.group_norm(t.x, 0)),
    ("instance_norm", RankError, "the input of instance_norm", lambda o, t: o.instance_norm(t.v)),
    (
        "batch_norm",
        ShapeError,
        "running_mean and running_var go together",
        lambda o, t: o.batch_norm(t.x, None, None, t.v, None, 0.1, 1e-5, True),
    ),
    (
        "nv_block_quantize",
        ShapeError,
        "the block size of",
        lambda o, t: o.nv_block_quantize(t.s, None, False, 8),
    ),
    ("uniform", DefinitionError, NOT_ALONE, lambda o, t: o.uniform(0.0, 1.0, [4], rng_seed=1)),
    ("normal", DefinitionError, NOT_ALONE, lambda o, t: o.normal(0.0, 1.0, [4], rng_offset=1)),
    ("rand_like", DefinitionError, NOT_ALONE, lambda o, t: o.rand_like(t.x, rng_seed=1)),
    ("randn_like", DefinitionError, NOT_ALONE, lambda o, t: o.randn_like(t.x, rng_offset=1)),
    ("dropout", DefinitionError, "between 0 and 1, but got 1.5", lambda o, t: o.dropout(t.x, 1.5)),
    ("slice", RankError, "does not match slice dimensions", lambda o, t: o.slice(t.x, [0], [1])),
    ("slice", ShapeError, "strides must be positive", lambda o, t: o.slice(t.x, [0, 0], [1, 1], [0, 1])),
    ("chunk", ShapeError, "no number of parts", lambda o, t: o.chunk(t.s, 0)),
    ("split", ShapeError, "2 different sizes", lambda o, t: o.split(t.s, [1, 2], 1)),
    ("pad", ShapeError, "Invalid number of padding widths", lambda o, t: o.pad(t.x, [1])),
    ("cat", RankError, "Unexpected number of dimensions of tensor 1", lambda o, t: o.cat([t.x, t.v], 0)),
    ("stack", ShapeError, "2 different sizes", lambda o, t: o.stack([t.s, t.s7], 0)),
    ("flip", ShapeError, "a dimension is listed twice", lambda o, t: o.flip(t.x, [0, 0])),
    ("roll", RankError, "the list of shifts", lambda o, t: o.roll(t.x, [1, 2], [0])),
    ("unfold", ShapeError, "got size 2 and step 0", lambda o, t: o.unfold(t.x, 0, 2, 0)),
    ("unfold", ShapeError, "out of boundary", lambda o, t: o.unfold(t.x, 2, 2, 1)),
    ("repeat", RankError, "the list of repeats", lambda o, t: o.repeat(t.x, [2])),
    ("repeat_interleave", ShapeError, "negative", lambda o, t: o.repeat_interleave(t.x, -1, 0)),
    ("scatter", DtypeError, "index of scatter", lambda o, t: o.scatter(t.x, t.x, t.x, 0)),
    (
        "index_put_accumulate",
        RankError,
        "value of index_put_accumulate",
        lambda o, t: o.index_put_accumulate(t.x, t.i1, t.v),
    ),
    (
        "aten",
        DefinitionError,
        "ATen has no operator 'nothing.default'",
        lambda o, t: o.aten("nothing.default", (t.x,), ((4,),), (DataType.Float,)),
    ),
    ("embedding_bwd", RankError, "grad_output of embedding_bwd", lambda o, t: o.embedding_bwd(t.x, t.i, 4)),
    (
        "nv_grouped_block_quantize",
        UnsupportedHardwareError,
        "needs an NVIDIA Blackwell GPU",
        lambda o, t: o.nv_grouped_block_quantize(t.x, t.i1, t.i1),
    ),
    (
        "preprocess_grouped_matmul_input_sf",
        UnsupportedHardwareError,
        "needs an NVIDIA Blackwell GPU",
        lambda o, t: o.preprocess_grouped_matmul_input_sf(t.x, t.i1, t.i1),
    ),
    (
        "cutlass_nvfp4_grouped_mm",
        UnsupportedHardwareError,
        "needs an NVIDIA Blackwell GPU",
        lambda o, t: o.cutlass_nvfp4_grouped_mm(t.x, t.x, t.x, t.x, t.x, t.x, t.i1, t.i1),
    ),
]


@pytest.mark.parametrize(("op", "kind", "message", "call"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refused(op: str, kind: type[UserError], message: str, call: Callable[[Any, _Tensors], Any]) -> None:
    with FusionDefinition() as fd:
        tensors = _Tensors(fd)
        fd.add_output(fd.ops.neg(tensors.x))
        with pytest.raises(kind) as raised:
            call(fd.ops, tensors)
    assert message in str(raised.value)


def _checked_otherwise() -> Iterator[str]:
    """The operations that refuse no arguments but those of another kind, type, size or dimension."""
    for op, row in OPS.items():
        if op in ELEMENTWISE or {p.name for p in row.parameters} & set(DIMENSIONS):
            yield op
    yield from ("set", "segment_set", "shape", "tensor_sizes", "full_like", "zeros_like", "ones_like")


def test_every_operation_refuses_something_here() -> None:
    assert OPS.keys() == {row[0] for row in REFUSED} | set(_checked_otherwise())
