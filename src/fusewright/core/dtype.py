"""Data types: one row of facts for each type, and the maps to and from torch and Python.

Arithmetic on a reduced float (Half, BFloat16, the Float8 and Float4 types) is done in Float, and on an
integer of 8 or 16 bits in Int32. Values are converted to `DataType.compute` before an operation, and its
result is rounded, or wrapped, afterwards. The tables of operations, the CUDA printer, the simulator and
constant folding all follow this rule.
"""

from __future__ import annotations

import enum
import math
from typing import cast

import torch

from fusewright.core.enums import KeyEnum, with_entries
from fusewright.core.errors import DtypeError

TorchDtype = torch.dtype
PyScalar = bool | int | float | complex


class Category(enum.IntEnum):
    """The families of types, ordered: a value of a smaller family converts implicitly to a larger one.

    PAIR is special: two numbers in a byte, which only packing and unpacking use.
    """

    BOOL = 0
    INT = 1
    FLOAT = 2
    COMPLEX = 3
    PAIR = 4


@with_entries
class DataType(KeyEnum):
    """The type of an element or a scalar.

    Attributes:
        ir_name: the word for the type in printed IR.
        cuda: its name in CUDA source. `fw::` types come from the device snippets; `fw::index_t` is the
            kernel's index type, a typedef of `int` or `long long` that the printer emits.
        size: bytes per element; 0 for Null. For Index it is 8, although a kernel with 32-bit indexing uses 4.
    """

    # name   = ir word,            CUDA name,             bytes, torch dtype,           category
    Double = ("double", "double", 8, torch.float64, Category.FLOAT)
    Float = ("float", "float", 4, torch.float32, Category.FLOAT)
    Half = ("__half", "fw::half", 2, torch.float16, Category.FLOAT)
    Int = ("int64_t", "long long", 8, torch.int64, Category.INT)
    Int32 = ("int", "int", 4, torch.int32, Category.INT)
    UInt64 = ("uint64_t", "unsigned long long", 8, torch.uint64, Category.INT)
    Bool = ("bool", "bool", 1, torch.bool, Category.BOOL)
    BFloat16 = ("__bfloat", "fw::bfloat16", 2, torch.bfloat16, Category.FLOAT)
    Float8_e4m3fn = ("__e4m3", "fw::e4m3", 1, torch.float8_e4m3fn, Category.FLOAT)
    Float8_e5m2 = ("__e5m2", "fw::e5m2", 1, torch.float8_e5m2, Category.FLOAT)
    Float8_e8m0fnu = ("__e8m0", "fw::e8m0", 1, torch.float8_e8m0fnu, Category.FLOAT)
    # By itself a Float4 takes a byte: that of the e4m3 of equal value.
    Float4_e2m1fn = ("__e2m1", "fw::e2m1", 1, torch.float8_e4m3fn, Category.FLOAT)
    Float4_e2m1fn_x2 = ("__e2m1_x2", "fw::e2m1_x2", 1, torch.float4_e2m1fn_x2, Category.PAIR)
    ComplexFloat = ("std::complex<float>", "fw::complex<float>", 8, torch.complex64, Category.COMPLEX)
    ComplexDouble = ("std::complex<double>", "fw::complex<double>", 16, torch.complex128, Category.COMPLEX)
    Index = ("nvfuser_index_t", "fw::index_t", 8, torch.int64, Category.INT)
    Null = ("null", "void", 0, None, None)
    # Behind the reference's, which has none of them: the number of a type is part of its interface.
    Int8 = ("int8_t", "signed char", 1, torch.int8, Category.INT)
    UInt8 = ("uint8_t", "unsigned char", 1, torch.uint8, Category.INT)
    Int16 = ("int16_t", "short", 2, torch.int16, Category.INT)
    UInt16 = ("uint16_t", "unsigned short", 2, torch.uint16, Category.INT)

    ir_name: str
    cuda: str
    size: int
    _torch: TorchDtype | None
    _category: Category | None

    def __new__(
        cls,
        ir_name: str,
        cuda: str,
        size: int,
        torch_dtype: TorchDtype | None,
        category: Category | None,
    ) -> DataType:
        member = object.__new__(cls)
        member._value_ = len(cls.__members__)
        member.ir_name = ir_name
        member.cuda = cuda
        member.size = size
        member._torch = torch_dtype
        member._category = category
        return member

    def __int__(self) -> int:
        return cast(int, self._value_)

    @property
    def torch(self) -> TorchDtype:
        """The torch dtype that holds such elements (Index: int64). ValueError for Null."""
        if self._torch is None:
            raise ValueError(f"{self} has no torch dtype")
        return self._torch

    @property
    def values(self) -> TorchDtype:
        """The torch dtype, of the same size, that torch can copy and compute with: bytes for pairs, which
        torch can otherwise only hold; `torch` for any other type. ValueError for Null.
        """
        return torch.uint8 if self is DataType.Float4_e2m1fn_x2 else self.torch

    @property
    def category(self) -> Category:
        """ValueError for Null."""
        if self._category is None:
            raise ValueError(f"{self} has no category")
        return self._category

    @property
    def is_bool(self) -> bool:
        return self._category is Category.BOOL

    @property
    def is_integral(self) -> bool:
        """Int, Int32, UInt64, Index, Int8, UInt8, Int16 or UInt16; Bool is no integer here."""
        return self._category is Category.INT

    @property
    def is_floating(self) -> bool:
        return self._category is Category.FLOAT

    @property
    def is_complex(self) -> bool:
        return self._category is Category.COMPLEX

    @property
    def is_reduced_float(self) -> bool:
        return self in _REDUCED_FLOATS

    @property
    def is_short_integer(self) -> bool:
        """Whether it is an integer type that is narrower than integer arithmetic (32 bits)."""
        return self in _SHORT_INTEGERS

    @property
    def compute(self) -> DataType:
        """The type that arithmetic on such values is done in."""
        if self in _SHORT_INTEGERS:
            return DataType.Int32
        return DataType.Float if self in _REDUCED_FLOATS else self

    @property
    def in_memory(self) -> DataType:
        """The type of a tensor's elements outside kernels, as in `torch`: Int for Index, whose width differs
        between kernels; any other type itself.
        """
        return DataType.Int if self is DataType.Index else self

    @property
    def real(self) -> DataType:
        """The type of the real and imaginary parts of a complex type; any other type itself."""
        return _REAL_PART.get(self, self)

    @property
    def complex(self) -> DataType:
        """The complex type whose parts are of this type: of Float and Double only, else ValueError."""
        for whole, part in _REAL_PART.items():
            if self in (whole, part):
                return whole
        raise ValueError(f"{self} has no complex type")

    @property
    def largest(self) -> float:
        """The greatest finite value of a float or complex type."""
        return 6.0 if self is DataType.Float4_e2m1fn else torch.finfo(self.torch).max

    @property
    def zero(self) -> PyScalar:
        """Zero, or False, as the Python number of the type's category; the byte 0 for pairs."""
        return _ZEROS[self.category]

    @property
    def lowest(self) -> float | int | bool:
        """The least value, from which a running maximum starts: -inf if the type has it."""
        return _LIMITS[self][0]

    @property
    def highest(self) -> float | int | bool:
        """The greatest value, from which a running minimum starts: inf if the type has it."""
        return _LIMITS[self][1]


INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_REDUCED_FLOATS = frozenset(
    {
        DataType.Half,
        DataType.BFloat16,
        DataType.Float8_e4m3fn,
        DataType.Float8_e5m2,
        DataType.Float8_e8m0fnu,
        DataType.Float4_e2m1fn,
    }
)

_SHORT_INTEGERS = frozenset({DataType.Int8, DataType.UInt8, DataType.Int16, DataType.UInt16})

_ZEROS: dict[Category, PyScalar] = {
    Category.BOOL: False,
    Category.INT: 0,
    Category.FLOAT: 0.0,
    Category.COMPLEX: 0j,
    Category.PAIR: 0,
}

_REAL_PART = {DataType.ComplexFloat: DataType.Float, DataType.ComplexDouble: DataType.Double}

_INF = float("inf")
_LIMITS: dict[DataType, tuple[float | int | bool, float | int | bool]] = {
    DataType.Double: (-_INF, _INF),
    DataType.Float: (-_INF, _INF),
    DataType.Half: (-_INF, _INF),
    DataType.BFloat16: (-_INF, _INF),
    DataType.Float8_e5m2: (-_INF, _INF),
    # "fn": finite only. e8m0 is a bare power of two: no sign, no zero, no infinity.
    DataType.Float8_e4m3fn: (-448.0, 448.0),
    DataType.Float8_e8m0fnu: (2.0**-127, 2.0**127),
    DataType.Float4_e2m1fn: (-6.0, 6.0),
    DataType.Float4_e2m1fn_x2: (0, 0xFF),  # the bytes
    DataType.Int: (-INT64_MAX - 1, INT64_MAX),
    DataType.Index: (-(2**31), 2**31 - 1),  # must hold for 32-bit indexing as well
    DataType.Int32: (-(2**31), 2**31 - 1),
    DataType.UInt64: (0, 2**64 - 1),
    DataType.Int8: (-(2**7), 2**7 - 1),
    DataType.UInt8: (0, 2**8 - 1),
    DataType.Int16: (-(2**15), 2**15 - 1),
    DataType.UInt16: (0, 2**16 - 1),
    DataType.Bool: (False, True),
}

# Rank within C++'s usual arithmetic conversions; the greater type of two wins.
_ARITHMETIC_RANK = {
    dtype: rank
    for rank, dtype in enumerate(
        (
            DataType.Bool,
            DataType.UInt8,
            DataType.Int8,
            DataType.Int16,
            DataType.UInt16,
            DataType.Int32,
            DataType.Int,
            DataType.UInt64,
            DataType.Float,
            DataType.Double,
            DataType.ComplexFloat,
            DataType.ComplexDouble,
        )
    )
}


def promote(a: DataType, b: DataType) -> DataType:
    """The common type of two types, by C++'s conversions and these further rules.

    Two different reduced floats, or one with Float, give Float. A reduced float with an integer or a bool
    gives the reduced float; with Double or a complex type it gives that type. Double with ComplexFloat gives
    ComplexDouble. Index with an integer or a bool gives Index. UInt8 with Int8 gives Int16. UInt16 with Int8,
    UInt8 or Int16 gives Int32. ValueError for Null and for pairs.
    """
    if a is b:
        return a
    if {DataType.Null, DataType.Float4_e2m1fn_x2} & {a, b}:
        raise ValueError(f"no common type of {a} and {b}")
    if DataType.Index in (a, b):
        other = b if a is DataType.Index else a
        return other if other.category > Category.INT else DataType.Index
    if a.is_reduced_float or b.is_reduced_float:
        reduced, other = (a, b) if a.is_reduced_float else (b, a)
        if other.is_reduced_float or other is DataType.Float:
            return DataType.Float
        return reduced if other.category < Category.FLOAT else other
    if {a, b} == {DataType.UInt8, DataType.Int8}:
        return DataType.Int16
    if DataType.UInt16 in (a, b) and a.is_short_integer and b.is_short_integer:
        return DataType.Int32
    wider = a if _ARITHMETIC_RANK[a] > _ARITHMETIC_RANK[b] else b
    if wider is DataType.ComplexFloat and DataType.Double in (a, b):
        return DataType.ComplexDouble
    return wider


# The public map of the reference (`pytorch_utils`): UInt64 and Index are left out on purpose, and torch has
# no Float4 by itself.
_NOT_TORCHS = (DataType.Null, DataType.Index, DataType.UInt64, DataType.Float4_e2m1fn)
torch_dtype_to_datatype: dict[torch.dtype | type, DataType] = {
    **{d.torch: d for d in DataType if d not in _NOT_TORCHS},
    bool: DataType.Bool,
    int: DataType.Int,
    float: DataType.Double,
    complex: DataType.ComplexDouble,
}


def from_torch(dtype: torch.dtype) -> DataType:
    """The type of a torch tensor's elements, uint64 included. DtypeError for a dtype without counterpart."""
    found = DataType.UInt64 if dtype is torch.uint64 else torch_dtype_to_datatype.get(dtype)
    if found is None:
        known = sorted(str(d.torch) for d in set(torch_dtype_to_datatype.values()) | {DataType.UInt64})
        raise DtypeError(what="a tensor of a definition", expected=f"one of {', '.join(known)}", given=dtype)
    return found


def integers_of(dtype: DataType) -> tuple[int, int]:
    """The least and the greatest integer that a scalar of the type accepts."""
    if dtype.is_integral:
        limits = torch.iinfo(dtype.torch)
        return limits.min, limits.max
    low, high = -INT64_MAX - 1, 2**64 - 1
    if dtype.is_bool:
        return low, high
    largest = int(dtype.largest)
    return max(low, -largest), min(high, largest)


def fits(value: PyScalar, dtype: DataType) -> bool:
    """Whether the type's range includes the number. Every float's range includes infinities and NaN.

    Bool includes every number. An integer must have at most 64 bits, whatever the type.
    """
    low, high = integers_of(dtype)
    if isinstance(value, int) or dtype.is_integral:
        return low <= value.real <= high
    if dtype.is_bool:
        return True
    limit = dtype.largest
    return all(not math.isfinite(part) or abs(part) <= limit for part in (value.real, value.imag))


def represents(wide: DataType, narrow: DataType) -> bool:
    """Whether every value of `narrow` is known to be one of `wide`, so that a cast there rounds nothing."""
    if wide is narrow:
        return True
    known = (Category.BOOL, Category.INT, Category.FLOAT)
    if wide.category not in known or narrow.category not in known or wide is DataType.Float4_e2m1fn:
        return False
    if narrow.is_bool or wide.is_bool:
        return narrow.is_bool and wide is not DataType.Float8_e8m0fnu  # which has no zero
    if narrow.is_integral:
        low, high = integers_of(narrow)
        if wide.is_integral:
            least, most = integers_of(wide)
            return least <= low and high <= most
        exact = int(1 / torch.finfo(wide.torch).eps) * 2
        return max(-low, high) <= min(exact, wide.largest)
    if wide.is_integral:
        return False
    ours, theirs = torch.finfo(wide.torch), torch.finfo(narrow.torch)
    return (
        ours.eps <= theirs.eps and ours.max >= theirs.max and ours.tiny * ours.eps <= theirs.tiny * theirs.eps
    )


def dtype_of_python_type(kind: type) -> DataType:
    """Bool, Int, Double or ComplexDouble for bool, int, float or complex; KeyError for any other class."""
    return torch_dtype_to_datatype[kind]


def of_python_value(value: PyScalar) -> DataType:
    """The type that a Python number has as a constant of a fusion. KeyError for a value that is no number."""
    return torch_dtype_to_datatype[type(value)]
