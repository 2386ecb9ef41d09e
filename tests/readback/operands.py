"""Whether a parsed expression computes a value of the kernel IR: an operand, or an op row of operands.

A row's spelling is parsed by itself, so that its operators group as they do there whatever its operands
are; the printed text must then have that tree, each operand in its place.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import torch

from fusewright.core.dtype import DataType, PyScalar
from fusewright.core.op import converted as converted_tensor
from fusewright.kernel.ir import Buffer, Imm, IndexValue, Operand, Ref, ScalarParam, ScalarRef, Space
from fusewright.sym import ZERO, Const, Expr, Symbol, as_int
from tests.readback.indices import Mismatch, check_index
from tests.readback.syntax import Expression, parse_form
from tests.readback.values import Undefined, evaluate

# Checks the expression that stands where an operand does.
Matcher = Callable[[Expression], None]


_QUOTIENTS = {"fw::quotient": "/", "fw::rest": "%"}


class Names:
    """What the names in scope stand for.

    Attributes:
        index_dtype: Int32 or Int.
        memory: buffers and scalar parameters, each with the type that the text declares.
        variables: names that hold a symbol: their type and the symbol's name.
    """

    def __init__(self, index_dtype: DataType) -> None:
        self.index_dtype = index_dtype
        self.memory: dict[str, tuple[Buffer | ScalarParam, str]] = {}
        self.variables: dict[str, tuple[str, str]] = {}

    def copy(self) -> Names:
        made = Names(self.index_dtype)
        made.memory, made.variables = dict(self.memory), dict(self.variables)
        return made

    def add(self, name: str) -> None:
        if name in self.memory or name in self.variables:
            raise Mismatch(f"{name} is declared twice")

    def declare(self, name: str, what: Buffer | ScalarParam, type_: str) -> None:
        self.add(name)
        self.memory[name] = what, type_

    def define(self, name: str, type_: str, symbol: Symbol | str) -> None:
        self.add(name)
        self.variables[name] = type_, symbol if isinstance(symbol, str) else symbol.name

    def type(self, dtype: DataType) -> str:
        return (self.index_dtype if dtype is DataType.Index else dtype).cuda

    def index(self, e: Expression, expr: Expr, type_: str | None = None) -> None:
        check_index(self._divided(e), expr, self.variables, self.index_dtype is DataType.Int, type_)

    def _divided(self, e: Expression) -> Expression:
        """`e` with the division for each quotient by multiplication, whose multiplier is the divisor's."""
        if e[0] == "call" and e[1] in _QUOTIENTS:
            x, divisor, over = e[3]
            param = self.memory[over[1]][0]
            if not isinstance(param, ScalarParam) or param.divisor is None:
                raise Mismatch(f"{over[1]} is no multiplier")
            self.index(divisor, param.divisor)
            return ("binary", _QUOTIENTS[e[1]], self._divided(x), divisor)
        return tuple([self._divided(part) if isinstance(part, tuple) and part else part for part in e])


def is_variable(buffer: Buffer) -> bool:
    """Whether the buffer is one variable instead of an array."""
    return buffer.space is Space.LOCAL and as_int(buffer.size) == 1


# ---- memory ------------------------------------------------------------------------------------------------


def check_element(names: Names, e: Expression, ref: Ref, offset: Expr = ZERO) -> None:
    """`e` is the element of `ref`, `offset` further."""
    if not is_variable(ref.buffer):
        if e[0] != "[]":
            raise Mismatch(f"no element of {ref.buffer.name}")
        names.index(e[2], ref.index + offset)
        e = e[1]
    _check_memory(names, e, ref.buffer)


def check_address(names: Names, e: Expression, ref: Ref) -> None:
    """`e` is the address of `ref`."""
    if e[:2] == ("unary", "&"):
        check_element(names, e[2], ref)
        return
    if is_variable(ref.buffer) or as_int(ref.index) != 0:
        raise Mismatch(f"no address of {ref.buffer.name}[{ref.index}]")
    _check_memory(names, e, ref.buffer)


def _check_memory(names: Names, e: Expression, wanted: Buffer | ScalarParam) -> None:
    if e[0] != "name" or e[1] not in names.memory:
        raise Mismatch(f"{e} is no name of memory here")
    found, type_ = names.memory[e[1]]
    dtype = names.type(wanted.dtype)
    if found is not wanted:
        raise Mismatch(f"{e[1]} is {found.name}, not {wanted.name}")
    if type_ != dtype:
        raise Mismatch(f"{e[1]} is declared as {type_}, not {dtype}")


# ---- operands ----------------------------------------------------------------------------------------------


def check_operand(
    names: Names, e: Expression, operand: Operand, dtype: DataType, offset: Expr = ZERO
) -> None:
    """`e` is the value of `operand` (`offset` elements further), converted to `dtype`."""
    if isinstance(operand, Ref):
        ref = operand
        source = ref.buffer.dtype
        match(_converted(names, source, dtype), e, {"x": lambda e: check_element(names, e, ref, offset)})
    elif isinstance(operand, ScalarRef):
        param = operand.param
        match(_converted(names, param.dtype, dtype), e, {"x": lambda e: _check_memory(names, e, param)})
    elif isinstance(operand, Imm):
        check_constant(names, e, operand.value, operand.dtype, dtype)
    else:
        _check_index_value(names, e, operand, dtype)


def _check_index_value(names: Names, e: Expression, operand: IndexValue, dtype: DataType) -> None:
    if isinstance(operand.expr, Const):
        check_constant(names, e, operand.expr.value, operand.dtype, dtype)
        return
    given = DataType.Bool if operand.expr.is_boolean else DataType.Index
    for source, target in ((operand.dtype, dtype), (given, operand.dtype)):
        form = _converted(names, source, target)
        found: list[Expression] = []
        match(form, e, {"x": found.append})
        e = found[0]
    names.index(e, operand.expr, names.type(given))


def check_constant(names: Names, e: Expression, value: PyScalar, source: DataType, target: DataType) -> None:
    """`e` is the constant `value` of `source`, converted to `target`, in value and type."""
    source, target = (names.index_dtype if d is DataType.Index else d for d in (source, target))
    wanted = _constant(repr(value), value, source, target)
    try:
        type_, found = evaluate(e, {})
    except (Undefined, KeyError) as problem:
        raise Mismatch(f"{problem} where {value!r} is expected") from None
    if type_ != target.cuda:
        raise Mismatch(f"a constant of type {type_}, not {target.cuda}")
    exact = isinstance(found, int) and isinstance(wanted, int)
    if not (found == wanted if exact else _is_same(complex(found), complex(wanted))):
        raise Mismatch(f"{found!r} instead of {wanted!r}")


@lru_cache(maxsize=4096)
def _constant(key: str, value: PyScalar, source: DataType, target: DataType) -> PyScalar:
    """As the simulator has it. `key` keeps 0.0, -0.0 and False apart."""
    if source.is_integral and not isinstance(value, bool):
        bits = 8 * source.size
        value = int(value.real) % 2**bits  # constants of the IR may be written out of range
        value = value if source.lowest == 0 or value < 2 ** (bits - 1) else value - 2**bits
    tensor = torch.tensor(value, dtype=source.values, device="cpu")  # whatever the default device is
    result = converted_tensor(tensor, target)
    return (result.float() if target.is_reduced_float else result).item()


def _is_same(a: complex, b: complex) -> bool:
    """Equal, with the signs of zeros; any NaN for a NaN."""
    if cmath.isnan(a) or cmath.isnan(b):
        return all(math.isnan(x) == math.isnan(y) for x, y in ((a.real, b.real), (a.imag, b.imag)))
    signs = [(math.copysign(1, x), math.copysign(1, y)) for x, y in ((a.real, b.real), (a.imag, b.imag))]
    return a == b and all(x == y for x, y in signs)


# ---- conversions and rows ----------------------------------------------------------------------------------

_X: Expression = ("name", "operand_x")


def _converted(names: Names, source: DataType, target: DataType, e: Expression = _X) -> Expression:
    """`e` of type `source` as `target`: what `core.op.converted` does, in C++."""
    source, target = (names.index_dtype if d is DataType.Index else d for d in (source, target))
    if source is target:
        return e
    if source.is_complex and not target.is_complex and not target.is_bool:
        return _converted(names, source.real, target, (".", e, "re"))
    through_float = (target.is_reduced_float and source.compute is not DataType.Float) or (
        source.is_reduced_float and target is not DataType.Float and not target.is_reduced_float
    )
    e = ("cast", "float", e) if through_float else e
    if target.is_short_integer and not source.is_integral:
        e = ("cast", "int", e)
    return "cast", target.cuda, e


def match(form: Expression, e: Expression, operands: Mapping[str, Matcher]) -> None:
    """`e` is the tree `form`, with what the matchers accept in place of its operands."""
    if form[0] == "name" and form[1].startswith("operand_"):
        operands[form[1].removeprefix("operand_")](e)
        return
    if form[0] != e[0] or len(form) != len(e):
        raise Mismatch(f"{e} instead of {form}")
    for wanted, found in zip(form[1:], e[1:]):
        if not isinstance(wanted, tuple):
            if wanted != found:
                raise Mismatch(f"`{found}` instead of `{wanted}`, in {e}")
        elif not isinstance(found, tuple):
            raise Mismatch(f"`{found}` instead of {wanted}, in {e}")
        elif wanted and isinstance(wanted[0], tuple):  # several operands
            if len(wanted) != len(found):
                raise Mismatch(f"{len(found)} operands instead of {len(wanted)}, in {e}")
            for each, other in zip(wanted, found):
                match(each, other, operands)
        elif form[0] == "call" and wanted is form[2]:
            if wanted != found:
                raise Mismatch(f"template arguments {found} instead of {wanted}")
        elif wanted:
            match(wanted, found, operands)
        elif found:
            raise Mismatch(f"operands where there are none, in {e}")


def check_computed(
    names: Names,
    e: Expression,
    form: str,
    dtype: DataType,
    result: tuple[DataType, DataType],
    operands: Sequence[Matcher],
) -> None:
    """`e` is the spelling `form` in `dtype` over `operands`, its result converted as `result` says."""
    tree = parse_form(form, (("T", dtype.cuda),))
    tree = _converted(names, *result, tree)
    match(tree, e, {str(i): matcher for i, matcher in enumerate(operands)})
