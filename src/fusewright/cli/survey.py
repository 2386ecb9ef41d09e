"""The types that each operation accepts and what computes it, found by building it: nothing is listed by
hand.

A row of the elementwise table states its types. Any other operation is built with small tensors, first with
any arguments that it accepts, then with each type for its first tensor. `tested.json` has the types with
which an operation is tested; the tests write it and compare it with their cases (tests/matrix).
"""

from __future__ import annotations

import functools
import itertools
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter as Argument
from pathlib import Path
from typing import Any

from fusewright.core.dtype import DataType
from fusewright.core.errors import DtypeError, UnsupportedHardwareError, UserError
from fusewright.core.op import ElementwiseOp, Rule
from fusewright.ir import Fusion, TensorView
from fusewright.ops import DEFINERS, LIBRARY, OPS, OpDef, Parameter, ScalarVector
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.ops.promotion import Tier, promote_operands
from fusewright.ops.registry import KINDS, Dims, Operand, ScalarLike, Shape, Values

TESTED = Path(__file__).parent / "tested.json"
#: The types of elements.
TYPES = tuple(
    dtype for dtype in DataType if dtype not in (DataType.Null, DataType.Index, DataType.Float4_e2m1fn_x2)
)
# Types of the first tensor among which one is taken by every operation.
FIRST_TYPES = (DataType.Float, DataType.Half, DataType.Int, DataType.Bool, DataType.Float8_e4m3fn)
#: Types of the other tensors: None is that of the first.
OTHER_TYPES = (None, DataType.Int, DataType.Bool, DataType.Float)
RANKS = (2, 1, 3, 4)
# Also a block of elements that share a scale.
SIZE = 16
# Tensors that each get a rank and a type of their own; more are all like the first.
MAX_VARIED = 3


@dataclass(frozen=True)
class Surveyed:
    """One operation.

    Attributes:
        dtypes: the types that its first tensor, or without one its result, may have; None: it has no types.
        through: "generated", "torch", or what it needs that is not supported.
        tested: the types, of its first tensor or of its result, that tests compare with torch.
    """

    name: str
    dtypes: tuple[DataType, ...] | None
    through: str
    tested: tuple[DataType, ...]


@dataclass(frozen=True)
class _Call:
    """Arguments of a call, but for the type of the first tensor.

    ranks, types: of the tensors, in order; a type of None is that of the first. others: the remaining
    arguments, by position.
    """

    ranks: tuple[int, ...]
    types: tuple[DataType | None, ...]
    others: tuple[Any, ...]


def survey() -> tuple[Surveyed, ...]:
    """All of `OPS` as it is now, in its order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a cast that drops an imaginary part
        tested = json.loads(TESTED.read_text(encoding="utf-8"))
        return tuple(
            _surveyed(row, tuple(DataType[name] for name in tested.get(row.key, ()))) for row in OPS.values()
        )


@functools.cache
def _surveyed(row: OpDef, tested: tuple[DataType, ...]) -> Surveyed:
    typed = any(_is_tensor(p) or p.kind is KINDS[DataType] for p in row.parameters)
    try:
        found = _first_call(row)
    except UnsupportedHardwareError as error:
        return Surveyed(row.name, None, f"needs {error.facts['needed']}", tested)
    if row.name in LIBRARY:
        return Surveyed(row.name, LIBRARY[row.name].dtypes, "torch", tested)
    if row.name in ELEMENTWISE:
        return Surveyed(row.name, _typed_by_row(ELEMENTWISE[row.name]), "generated", tested)
    if found is None:
        return Surveyed(row.name, None, "generated", tested)
    call, fusion = found
    through = "torch" if any(node.traits.whole for node in fusion.nodes) else "generated"
    return Surveyed(row.name, _accepted(row, call) if typed else None, through, tested)


def _typed_by_row(op: ElementwiseOp) -> tuple[DataType, ...]:
    """The types that all operands may have, but for the condition of a choice."""
    if op.rule is Rule.CAST:
        return TYPES
    return tuple(dtype for dtype in TYPES if _promotes(op, dtype))


def _promotes(op: ElementwiseOp, dtype: DataType) -> bool:
    types = [DataType.Bool if op.rule is Rule.SELECT and i == 0 else dtype for i in range(op.arity)]
    try:
        promote_operands(op, [(each, Tier.TENSOR) for each in types])
    except DtypeError:
        return False
    return True


def _accepted(row: OpDef, call: _Call) -> tuple[DataType, ...]:
    """The types of the first tensor, with those of the others that allow the most of them."""
    varied = len(call.types) - 1 if len(call.types) <= MAX_VARIED else 0
    best: tuple[DataType, ...] = ()
    for others in itertools.product(OTHER_TYPES, repeat=max(varied, 0)):
        types = (None, *others) if varied > 0 else call.types
        taken = tuple(d for d in TYPES if _built(row, _Call(call.ranks, types, call.others), d))
        best = max(best, taken, key=len)
    return best


def _first_call(row: OpDef) -> tuple[_Call, Fusion] | None:
    for call in _calls(row):
        for dtype in FIRST_TYPES:
            fusion = _built(row, call, dtype)
            if fusion is not None:
                return call, fusion
    return None


def _calls(row: OpDef) -> Iterator[_Call]:
    """Arguments to try, those that most operations take first."""
    required = [p for p in row.parameters if p.default is Argument.empty]
    tensors = sum(map(_is_tensor, required))
    varied = max(tensors - 1, 0) if tensors <= MAX_VARIED else 0
    for rank in RANKS:
        others = [_values(p, rank) for p in required if not _is_tensor(p)]
        for types in itertools.product(OTHER_TYPES, repeat=varied):
            for ranks in itertools.product((rank, 1), repeat=varied):
                missing = tensors - 1 - varied
                all_ranks = ((rank,) + ranks + (rank,) * missing)[:tensors]
                all_types = ((None,) + types + (None,) * missing)[:tensors]
                for values in itertools.product(*others):
                    yield _Call(all_ranks, all_types, values)


def _is_tensor(parameter: Parameter) -> bool:
    if parameter.optional:
        return False
    return parameter.kind in (KINDS[TensorView], KINDS[Operand], *_LISTS)


#: Lists of tensors.
_LISTS = (KINDS[Sequence[TensorView]], KINDS[Sequence[object]])


def _values(parameter: Parameter, rank: int) -> Sequence[Any]:
    """Values of a required argument that is no tensor; None as a type stands for the type in question."""
    if parameter.optional:
        return (None,)
    by_kind: Mapping[object, Sequence[Any]] = {
        ScalarLike: (1,),
        Shape: ([SIZE] * rank, [SIZE]),
        Dims: ([0], [SIZE]),
        Values: (1, [SIZE]),
        Sequence[int]: ([*range(rank)], [0] * rank, [SIZE] * rank, [SIZE], []),
        Sequence[bool]: ([False] * rank,),
        int: (0, 1),
        bool: (False,),
        DataType: (None,),
        str: ("clone.default",),  # an operator of ATen, which takes any type
        Sequence[Shape]: ([[SIZE] * rank],),
        ScalarVector: (ScalarVector(),),
    }
    return next((values for kind, values in by_kind.items() if parameter.kind is KINDS[kind]), (None,))


def _built(row: OpDef, call: _Call, dtype: DataType) -> Fusion | None:
    """The fusion of one call, or None for one that the operation refuses."""
    fusion = Fusion()
    tensors = iter(zip(call.ranks, call.types))
    others = iter(call.others)
    values = []
    for parameter in row.parameters:
        if parameter.default is not Argument.empty:
            is_type = not call.ranks and parameter.kind is KINDS[DataType]
            values.append(dtype if is_type else parameter.default)
        elif _is_tensor(parameter):
            rank, own = next(tensors)
            tensor = _tensor(fusion, rank, own or dtype)
            values.append([tensor] if parameter.kind in _LISTS else tensor)
        elif parameter.kind is KINDS[ScalarVector]:
            next(others)
            values.append(ScalarVector([fusion.new_scalar(DataType.Int, SIZE)]))
        else:
            value = next(others)
            of_type = {KINDS[DataType].text: dtype, KINDS[Sequence[DataType]].text: [dtype]}
            values.append(of_type.get(parameter.kind.text) if value is None else value)
    try:
        row.check(values)
        row.build(fusion, *values)
    except UnsupportedHardwareError:
        raise
    except UserError:
        return None
    return fusion


def _tensor(fusion: Fusion, rank: int, dtype: DataType) -> TensorView:
    tensor = DEFINERS["define_tensor"].build(fusion, [SIZE] * rank, True, dtype, False, ())
    assert isinstance(tensor, TensorView)
    return tensor
