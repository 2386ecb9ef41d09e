"""What a row of the operation tables holds, and the rule that types it.

An operation is one row: its name, the rule for its types, its CUDA spelling and the torch function that
gives the same values. Everything else that knows an elementwise operation or a reduction (the `fd.ops`
method, the printer, the simulator, the reference evaluator, constant folding, the generated tests) reads the
row. The rows themselves are in `fusewright.ops`; this module stands in core because kernel, cuda and sim hold
rows without knowing where they come from.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from fusewright.core.code import Code, fill
from fusewright.core.dtype import Category, DataType, PyScalar, promote
from fusewright.core.errors import DtypeError

BOOL, INT, FLOAT, COMPLEX = Category.BOOL, Category.INT, Category.FLOAT, Category.COMPLEX

# One tensor for each state of a reduction.
States = tuple[torch.Tensor, ...]


class Rule(enum.Enum):
    """How the types of the operands decide the type they are converted to and the result's.

    "Common" is the promoted type of the operands; "up" turns a reduced float into Float.
    """

    KEEP = "keep"  # operand 0's type; the others are converted to it
    SAME_UP = "same-up"  # common type, up
    FLOAT_UP = "float-up"  # as SAME_UP, and bools and integers become Float
    FULL_FLOAT = "full-float"  # common type, which must be Float or Double
    COMPARE = "bool"  # operands as SAME_UP, result Bool
    LOGICAL = "logical"  # operands to Bool, result Bool
    PREDICATE = "predicate"  # operand as it is, result Bool
    TO_REAL = "to-real"  # operand as it is, result its real part's type
    MAKE_COMPLEX = "make-complex"  # Float, Float -> ComplexFloat; Double, Double -> ComplexDouble
    SELECT = "select"  # operand 0 Bool; the others to their common type, which is the result's (not up)
    CAST = "cast"  # any type to any type: the node's output says which
    PACK = "pack"  # operands Float; the result is a byte of two Float4
    UNPACK = "unpack"  # operand a byte of two Float4; the result is Float
    TO_FLOAT = "to-float"  # operand as it is; the result is Float
    TO_INTEGER = "to-integer"  # operand as it is; the result is Int32
    BITS = "bits"  # operand and result as `ElementwiseOp.stored` says
    DRAW = "draw"  # operands Int: a place among random numbers; the result is of the compute type


@dataclass(frozen=True, slots=True)
class Domain:
    """Where tests draw an operand from: the values from `low` to `high`, for which the operation is meant."""

    low: float = float("-inf")
    high: float = float("inf")


@dataclass(frozen=True, slots=True, eq=False)
class Spelling:
    """An operation for one category of types, as CUDA text and as a torch function with the same values.

    Attributes:
        cuda: format string over the operands `{0}`, `{1}`, ... and `{T}`, the CUDA name of the compute type.
            Operands are of the compute type already and may be repeated; they are put in parentheses as
            need be. The form itself puts none around the result.
        torch: takes tensors of the compute type, broadcast to each other or of rank 0, and raises for no
            values of them. Where C leaves a result undefined (an integer divided by zero) it returns any.
        snippets: the device snippets (`cuda/snippets/*.cuh`) that the text needs.
        precise: the spelling to use once a row, where accuracy is worth more than a few instructions (see
            `ir.Node.reduced`); None: this one.
        sparing: the spelling to use where registers are scarce (`kernel.ir.spares_registers`); None: this
            one.
        divides: whether the last operand divides an integer, so that C leaves undefined what happens where it
            is 0: a compiler may take it for granted that it never is.
        slots: what it takes in Float, as multiples of an addition's share of the time, for estimates: PTX
            instructions, each by its throughput on sm_90 (CUDA C++ Programming Guide, arithmetic
            instructions): a special function counts as 8.
    """

    cuda: str
    torch: Callable[..., torch.Tensor]
    snippets: tuple[str, ...] = ()
    precise: Spelling | None = None
    sparing: Spelling | None = None
    divides: bool = False
    slots: int = 1

    def render(self, operands: Sequence[str], dtype: DataType) -> Code:
        """The CUDA expression for `operands`, with `dtype` as the compute type."""
        return fill(self.cuda, {str(i): text for i, text in enumerate(operands)}, {"T": dtype.cuda})


@dataclass(frozen=True, slots=True, eq=False)
class ElementwiseOp:
    """One elementwise operation. Rows compare by identity.

    Attributes:
        spellings: by the category of the compute type; a category that is missing is not supported.
        promoting: the number of leading operands whose types decide the common type; the rest follow it.
            None: all.
        symbol: the operator, where printed IR shows one (`T0 + T1`) and not a call.
        commutes: whether its operands may change places.
        domains: one for each operand, or none at all for "everything".
        stored: of Rule.BITS the operand's type and the result's, which are not converted to a compute type.
    """

    name: str
    arity: int
    rule: Rule
    spellings: Mapping[Category, Spelling] = field(repr=False)
    promoting: int | None = None
    symbol: str | None = None
    domains: tuple[Domain, ...] = ()
    commutes: bool = False
    stored: tuple[DataType, DataType] | None = None

    @property
    def supports(self) -> frozenset[Category]:
        return frozenset(self.spellings)

    def spelling(self, dtype: DataType) -> Spelling:
        """The spelling for operands whose compute type is that of `dtype`.

        For `where` that is the type of the chosen values, not of the condition. DtypeError if unsupported.
        """
        found = self.spellings.get(dtype.category)
        if found is None:
            raise _unsupported(self, dtype)
        return found

    def precise_spelling(self, dtype: DataType) -> Spelling:
        """The spelling for a computation that runs once per row."""
        usual = self.spelling(dtype)
        return usual.precise or usual

    def operand_dtypes(self, dtype: DataType) -> tuple[DataType, ...]:
        """The type of each operand when computing in `dtype`: `dtype`, except for a condition, a position and
        bits.
        """
        if self.stored is not None:
            return self.stored[:1]
        if self.rule is Rule.SELECT:
            return (DataType.Bool, *(dtype,) * (self.arity - 1))
        if self.rule is Rule.DRAW:
            return (DataType.Int,) * self.arity
        return (dtype,) * self.arity

    def compute_dtype(self, operands: Sequence[DataType], result: DataType) -> DataType:
        """The type that a node computes in, given the types of its operands and of its result.

        The operands determine it if the result does not. `operands` are the tensors' types, if there are
        tensors: a scalar may have another type and is converted.
        """
        if self.rule is Rule.LOGICAL:
            return DataType.Bool
        return (operands[0] if self.rule in _TYPED_BY_OPERANDS else result).compute

    def result_of(self, dtype: DataType) -> DataType:
        """The type that computing in `dtype` gives: Bool for a comparison, a real type for abs."""
        if self.stored is not None:
            return self.stored[1]
        if self.rule in (Rule.COMPARE, Rule.LOGICAL, Rule.PREDICATE):
            return DataType.Bool
        if self.rule is Rule.TO_REAL:
            return dtype.real
        if self.rule is Rule.PACK:
            return DataType.Float4_e2m1fn_x2
        if self.rule in (Rule.UNPACK, Rule.TO_FLOAT):
            return DataType.Float
        if self.rule is Rule.TO_INTEGER:
            return DataType.Int32
        return dtype.complex if self.rule is Rule.MAKE_COMPLEX else dtype

    def domain(self, operand: int) -> Domain:
        return self.domains[operand] if self.domains else Domain()

    def __copy__(self) -> ElementwiseOp:
        return self

    def __deepcopy__(self, memo: object) -> ElementwiseOp:
        return self


# Rules whose result may be of another type than what they compute in.
_TYPED_BY_OPERANDS = frozenset(
    {
        Rule.COMPARE,
        Rule.PREDICATE,
        Rule.TO_REAL,
        Rule.MAKE_COMPLEX,
        Rule.CAST,
        Rule.PACK,
        Rule.UNPACK,
        Rule.TO_FLOAT,
        Rule.TO_INTEGER,
        Rule.BITS,
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class CombineSpelling:
    """How two sets of states become one.

    Attributes:
        cuda: a statement without semicolon over `{a0}`, `{a1}`, ... (assignable names, one a state, which
            receive the result), `{b0}`, `{b1}`, ... and `{T}`, the CUDA name of the input type.
        torch: takes two `States` and returns one.
        snippets: the device snippets that the text needs.
        in_order: the same statement where the last state is a position, and that of `b` is no less than that
            of `a`, if that takes less; "": it does not.
    """

    cuda: str
    torch: Callable[[States, States], States]
    snippets: tuple[str, ...] = ()
    in_order: str = ""

    def render(self, a: Sequence[str], b: Sequence[str], dtype: DataType, in_order: bool = False) -> str:
        """The CUDA statement that combines the states `b` into the variables `a`."""
        states = {f"a{i}": name for i, name in enumerate(a)} | {f"b{i}": text for i, text in enumerate(b)}
        return fill(self.in_order if in_order else self.cuda, states, {"T": dtype.cuda})


@dataclass(frozen=True, slots=True, eq=False)
class ReductionOp:
    """One reduction: how an element becomes states, and how two sets of states are combined. Rows compare by
    identity.

    A reduction is computed in its input's type, which is never a reduced float. The function that builds the
    node converts before and after (see `ops.reductions`), so that partial results keep their precision.

    Attributes:
        states: the name of each state; a reduction has one output for each.
        state_dtypes: the type of each state, for an input type.
        identity: the neutral value of each state, for an input type. lift: the CUDA expression of each state
        for one element `{x}`; empty if the states are not a function of the element alone, so that the
        definition gives one tensor per state. lift_torch: the same for the tensors that the definition gives.
        combine: how states are combined, by category of the input type. reduce: the whole reduction of the
        tensors that the definition gives, over non-empty, non-negative dims, which it removes. combine_run: a
        CUDA statement that combines the `{W}` values at the address `{x}` into `{a0}`, ... at once; "" if
        that is not faster than one after another. packed_run: the same for halves or bfloat16, if the Float
        state is always one of the values, so that nothing is computed in the narrow type; "" otherwise.
        over_warp: by input type, the function in namespace fw that reduces a value over the lanes of a warp
        and gives each lane the result, if the GPU has an instruction for it. scan: the reductions of the
        elements up to each one along a dimension; None if there are several states. atomic: the types that a
        kernel can combine atomically in memory. slots: the cost of a step for each of its states, in
        multiples of an addition (`Spelling.slots`).
    """

    name: str
    states: tuple[str, ...]
    state_dtypes: Callable[[DataType], tuple[DataType, ...]]
    identity: Callable[[DataType], tuple[PyScalar, ...]]
    lift: tuple[str, ...]
    lift_torch: Callable[..., States]
    combine: Mapping[Category, CombineSpelling] = field(repr=False)
    reduce: Callable[[States, tuple[int, ...]], States]
    combine_run: str = ""
    packed_run: str = ""
    over_warp: Mapping[DataType, str] = field(default_factory=dict, repr=False)
    scan: Callable[[torch.Tensor, int], torch.Tensor] | None = None
    atomic: frozenset[DataType] = frozenset()
    slots: int = 1

    @property
    def supports(self) -> frozenset[Category]:
        return frozenset(self.combine)

    @property
    def operands(self) -> int:
        """The number of tensors that a definition gives it."""
        return 1 if self.lift else len(self.states)

    def combining(self, dtype: DataType) -> CombineSpelling:
        """How the states of inputs of `dtype` are combined. DtypeError if unsupported."""
        found = self.combine.get(dtype.category)
        if found is None:
            raise _unsupported(self, dtype)
        return found

    def render_lift(self, x: str, dtype: DataType) -> list[Code]:
        """The CUDA expression of each state for the element `x`, which is of `dtype`."""
        return [fill(form, {"x": x}, {"T": dtype.cuda}) for form in self.lift]

    def run_of(self, dtype: DataType) -> str:
        """The run statement for this type; "" if there is none."""
        return self.packed_run if dtype.is_reduced_float else self.combine_run

    def render_run(self, a: Sequence[str], x: str, width: int, dtype: DataType) -> str:
        """The CUDA statement that combines the `width` values at address `x` into the variables `a`."""
        operands = {"x": x} | {f"a{i}": name for i, name in enumerate(a)}
        return fill(self.run_of(dtype), operands, {"W": str(width)})

    def __copy__(self) -> ReductionOp:
        return self

    def __deepcopy__(self, memo: object) -> ReductionOp:
        return self


class Overwriting(NamedTuple):
    """How a library computes its result in the memory of an operand of the result's shape and type.

    Attributes:
        operand: its position. function: like `LibraryOp.function`; its function overwrites the operand and
            returns it.
    """

    operand: int
    function: Callable[..., Callable[..., Any]]


@dataclass(frozen=True, slots=True, eq=False)
class LibraryOp:
    """One operation that torch computes as a whole. Rows compare by identity.

    Attributes:
        dtypes: the types that its operands may have. function: takes the device's type ("cuda" or "cpu") and
        a node's options, by name. It returns a function of the operands' values, tensors and numbers, which
        returns the output, or a tuple of several. combined: a function of the tensor inputs: the number of
        elements in the sum for each result element. reference: like `function`, for operands in their compute
        type; None: `function` itself. draws: whether it may take random numbers from torch's generator.
        switch: the option that, if disabled, keeps the operation from torch. strided_rank: up to this number
        of dimensions torch accepts a tensor's strides; beyond it torch would make a copy, which a kernel can
        make as well. anywhere: whether its operands and results of rank 0 may be in host memory. typed:
        whether its operands' types determine those of its results, so that a reference keeps them.
        overwriting: how the result can be computed in the memory of an operand; None: not at all.
    """

    name: str
    dtypes: tuple[DataType, ...]
    function: Callable[..., Callable[..., Any]] = field(repr=False)
    combined: Callable[..., Any] | None = None
    reference: Callable[..., Callable[..., Any]] | None = None
    draws: bool = False
    switch: str | None = None
    strided_rank: int = 0
    anywhere: bool = False
    typed: bool = False
    overwriting: Overwriting | None = None

    def __copy__(self) -> LibraryOp:
        return self

    def __deepcopy__(self, memo: object) -> LibraryOp:
        return self


def _unsupported(op: ElementwiseOp | ReductionOp, dtype: DataType) -> DtypeError:
    wanted = " or ".join(category.name.lower() for category in sorted(op.supports))
    return DtypeError(what=f"the operands of {op.name}", expected=wanted, given=dtype)


def _common(op: ElementwiseOp, operand_types: Sequence[DataType]) -> DataType:
    first = 1 if op.rule is Rule.SELECT else 0
    types = operand_types[first : op.promoting]
    common = types[0]
    for dtype in types[1:]:
        common = promote(common, dtype)
    return common


def result_dtype(
    op: ElementwiseOp, operand_types: Sequence[DataType], common: DataType | None = None
) -> tuple[tuple[DataType, ...], DataType]:
    """The type that each operand is converted to, and the type of the result.

    Args:
        operand_types: one for each operand.
        common: the promoted type of the operands that take part in promotion. By default all of them are
            promoted pairwise, as if none was a scalar; `ops.promotion` tells tensors from scalars.

    Raises:
        DtypeError: the operation does not take such operands.
    """
    if op.rule is Rule.CAST:
        raise ValueError("the types of a cast are those of its node")
    if len(operand_types) != op.arity:
        raise ValueError(f"{op.name} takes {op.arity} operands, not {len(operand_types)}")
    rule = op.rule
    if rule is Rule.LOGICAL:
        return (DataType.Bool,) * op.arity, DataType.Bool
    if rule is Rule.SELECT and operand_types[0] is not DataType.Bool:
        raise DtypeError(
            f"{op.name}: Condition should be of DataType Bool", expected=DataType.Bool, given=operand_types[0]
        )
    if rule is Rule.KEEP or rule is Rule.PREDICATE or rule is Rule.TO_REAL:
        common = operand_types[0]
    elif common is None:
        common = _common(op, operand_types)
    computed = _operand_dtype(op, common, operand_types)
    return op.operand_dtypes(computed), op.result_of(computed)


def _operand_dtype(op: ElementwiseOp, common: DataType, operand_types: Sequence[DataType]) -> DataType:
    """The type that the operands are converted to, checked."""
    rule = op.rule
    dtype = common
    if rule in (Rule.SAME_UP, Rule.FLOAT_UP, Rule.COMPARE, Rule.PACK):
        dtype = common.compute
    if rule is Rule.FLOAT_UP and dtype.category < FLOAT:
        dtype = DataType.Float
    if rule is Rule.MAKE_COMPLEX and len(set(operand_types)) > 1:
        given = " and ".join(map(str, operand_types))
        raise DtypeError(what=f"the operands of {op.name}", expected="one type", given=given)
    if rule in (Rule.FULL_FLOAT, Rule.MAKE_COMPLEX) and dtype not in (DataType.Float, DataType.Double):
        raise DtypeError(
            what=f"the operands of {op.name}", expected=f"{DataType.Float} or {DataType.Double}", given=dtype
        )
    if rule is Rule.KEEP:  # the one rule whose other operands may be of a larger category
        for operand in operand_types[1:]:
            if operand.is_complex and not dtype.is_complex:
                raise DtypeError(what=f"an operand of {op.name}", expected=dtype, given=operand)
    # Seeds and offsets of random numbers are UInt64; torch, and so the simulator, has no arithmetic for it.
    if dtype.category not in op.supports or (dtype is DataType.UInt64 and rule not in _TAKES_UINT64):
        raise _unsupported(op, common)
    return dtype


_TAKES_UINT64 = frozenset({Rule.SELECT, Rule.BITS})


#: Types whose elements torch moves on no device or not on every one, and those of as many bits.
_MOVED_AS = {
    torch.uint64: torch.int64,
    torch.uint16: torch.int16,
    torch.float8_e8m0fnu: torch.uint8,
    torch.float4_e2m1fn_x2: torch.uint8,
}


def movable(values: torch.Tensor) -> torch.Tensor:
    """The same memory viewed as a type that torch can copy, select elements of and store by index."""
    plain = _MOVED_AS.get(values.dtype)
    return values if plain is None else values.view(plain)


def selected(condition: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Elements of `first` where the condition holds, else of `second`. Both have the same type."""
    if first.dtype not in _MOVED_AS:
        return torch.where(condition, first, second)
    return torch.where(condition, movable(first), movable(second)).view(first.dtype)


def converted(value: torch.Tensor, target: DataType) -> torch.Tensor:
    """`value` cast to `target` as generated code casts it.

    These are C's conversions. A float outside an integer type's range becomes the nearest value, as with
    PTX's `cvt`; for integers of 8 and 16 bits it becomes the nearest 32-bit integer, which wraps. Complex to
    real drops the imaginary part. Floats are rounded to reduced floats as in torch.
    """
    if value.dtype == target.values and target is not DataType.Float4_e2m1fn:
        return value
    if target.is_bool:
        return value != 0
    if value.is_complex() and not target.is_complex:
        value = value.real
    if target.is_reduced_float:
        return _rounded(value.to(torch.float32), target)
    if value.is_floating_point() and target.is_integral:
        return _saturated(value, target.compute).to(target.torch)
    return value.to(target.torch)


def _rounded(value: torch.Tensor, target: DataType) -> torch.Tensor:
    """Float to a reduced float as the device does it: e4m3 and e2m1, which have no infinity, saturate.

    torch does the same since 2.13 for e4m3; before, what is out of range became NaN. It has no e2m1.
    """
    if target is DataType.Float4_e2m1fn:
        value = _rounded_to_e2m1(value)
    elif target is DataType.Float8_e4m3fn:
        value = value.clamp(-target.largest, target.largest)
    return value.to(target.torch)


def _rounded_to_e2m1(value: torch.Tensor) -> torch.Tensor:
    """The nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6 with the sign of `value`; ties go to even bits.

    NaN becomes 6, as in PTX ISA 9.7.9, `cvt.rn.satfinite.e2m1x2.f32`.
    """
    magnitude = value.abs().clamp(max=DataType.Float4_e2m1fn.largest)
    step = torch.where(magnitude < 2, 0.5, torch.where(magnitude < 4, 1.0, 2.0))
    rounded = torch.copysign((magnitude / step).round() * step, value)
    return torch.where(value.isnan(), DataType.Float4_e2m1fn.largest, rounded)


def _saturated(x: torch.Tensor, target: DataType) -> torch.Tensor:
    """Float to integer, truncating; out of range saturates, and NaN is as in PTX ISA 9.7.9, `cvt`."""
    lowest, highest = torch.iinfo(target.torch).min, torch.iinfo(target.torch).max
    whole = x.to(torch.float64).trunc()
    inside = (whole >= float(lowest)) & (whole < float(highest))
    # "zero if the source is not .f64 and the destination is not 64 bits wide, else 1 << (width - 1)"
    nan = 0 if x.dtype != torch.float64 and target is DataType.Int32 else lowest or 2**63
    low, high, none = (torch.tensor(value, dtype=target.torch) for value in (lowest, highest, nan))
    limit = selected(whole.isnan(), none, selected(whole >= float(highest), high, low))
    return selected(inside, torch.where(inside, whole, 0).to(target.torch), limit)
