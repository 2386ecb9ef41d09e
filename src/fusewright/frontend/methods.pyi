"""Written by `./dev stubs`, for type checkers: what is made from tables at run time."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NoReturn, overload

import torch

from fusewright.core.dtype import DataType
from fusewright.core.enums import (
    CacheOp,
    LoadStoreOpType,
    MatmulBufferingLoopLevel,
    MatmulCircularBufferingStrategy,
    MatmulTileRasterizationOrder,
    MatmulTilingStrategy,
    MemoryType,
    MmaMacroArch,
    ParallelType,
    SchedulerType,
)
from fusewright.frontend.definition import FusionDefinition
from fusewright.frontend.handles import Scalar, Tensor, Vector
from fusewright.schedulers import (
    CircularBufferOptions,
    ClusterDims,
    CompileParams,
    GemmTile,
    HeuristicParams,
    InnerOuterParams,
    InnerOuterPersistentParams,
    LaunchParams,
    MatmulParams,
    MatMulTileOptions,
    MmaMacro,
    PointwiseParams,
    ReductionParams,
    ScanParams,
    SupportedVectorization,
    TransposeParams,
)

Number = bool | int | float | complex
DtypeLike = DataType | torch.dtype | type[bool] | type[int] | type[float] | type[complex]
Values = int | Sequence[int | Scalar]
Contiguity = bool | Sequence[bool | None]
Dims = int | Sequence[int]
Shape = Vector | Sequence[int | Scalar]
ScalarLike = Number | Scalar
Operand = ScalarLike | Tensor

class OperatorMethods:
    """The operations: the methods of `fd.ops`."""

    @overload
    def acos(self, x: Tensor, /) -> Tensor:
        """acos(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def acos(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def acosh(self, x: Tensor, /) -> Tensor:
        """acosh(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def acosh(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def asin(self, x: Tensor, /) -> Tensor:
        """asin(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def asin(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def asinh(self, x: Tensor, /) -> Tensor:
        """asinh(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def asinh(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def atan(self, x: Tensor, /) -> Tensor:
        """atan(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def atan(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def atanh(self, x: Tensor, /) -> Tensor:
        """atanh(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def atanh(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def cos(self, x: Tensor, /) -> Tensor:
        """cos(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def cos(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def cosh(self, x: Tensor, /) -> Tensor:
        """cosh(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def cosh(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def exp(self, x: Tensor, /) -> Tensor:
        """exp(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def exp(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def exp2(self, x: Tensor, /) -> Tensor:
        """exp2(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def exp2(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def expm1(self, x: Tensor, /) -> Tensor:
        """expm1(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def expm1(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def erf(self, x: Tensor, /) -> Tensor:
        """erf(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def erf(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def erfc(self, x: Tensor, /) -> Tensor:
        """erfc(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def erfc(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def erfcinv(self, x: Tensor, /) -> Tensor:
        """erfcinv(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def erfcinv(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def erfinv(self, x: Tensor, /) -> Tensor:
        """erfinv(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def erfinv(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def lgamma(self, x: Tensor, /) -> Tensor:
        """lgamma(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def lgamma(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def log(self, x: Tensor, /) -> Tensor:
        """log(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def log(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def log10(self, x: Tensor, /) -> Tensor:
        """log10(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def log10(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def log1p(self, x: Tensor, /) -> Tensor:
        """log1p(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def log1p(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def log2(self, x: Tensor, /) -> Tensor:
        """log2(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def log2(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def reciprocal(self, x: Tensor, /) -> Tensor:
        """reciprocal(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def reciprocal(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def rsqrt(self, x: Tensor, /) -> Tensor:
        """rsqrt(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def rsqrt(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def sigmoid(self, x: Tensor, /) -> Tensor:
        """sigmoid(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def sigmoid(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def sin(self, x: Tensor, /) -> Tensor:
        """sin(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def sin(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def sinh(self, x: Tensor, /) -> Tensor:
        """sinh(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def sinh(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def sqrt(self, x: Tensor, /) -> Tensor:
        """sqrt(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def sqrt(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def tan(self, x: Tensor, /) -> Tensor:
        """tan(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def tan(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def tanh(self, x: Tensor, /) -> Tensor:
        """tanh(x), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def tanh(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def ceil(self, x: Tensor, /) -> Tensor:
        """ceil(x), element by element.

        The result's type is the type of its first operand.
        """
    @overload
    def ceil(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def floor(self, x: Tensor, /) -> Tensor:
        """floor(x), element by element.

        The result's type is the type of its first operand.
        """
    @overload
    def floor(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def round(self, x: Tensor, /) -> Tensor:
        """round(x), element by element.

        The result's type is the type of its first operand.
        """
    @overload
    def round(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def trunc(self, x: Tensor, /) -> Tensor:
        """trunc(x), element by element.

        The result's type is the type of its first operand.
        """
    @overload
    def trunc(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def frac(self, x: Tensor, /) -> Tensor:
        """frac(x), element by element.

        The result's type is the type of its first operand.
        """
    @overload
    def frac(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def relu(self, x: Tensor, /) -> Tensor:
        """relu(x), element by element.

        The result's type is the type of its first operand.
        """
    @overload
    def relu(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def silu(self, x: Tensor, /) -> Tensor:
        """silu(x), element by element.

        The result's type is the type of its first operand.
        """
    @overload
    def silu(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def neg(self, x: Tensor, /) -> Tensor:
        """neg(x), element by element.

        The result's type is the common type of its operands; reduced floats become Float.
        """
    @overload
    def neg(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def abs(self, x: Tensor, /) -> Tensor:
        """abs(x), element by element.

        The result's type is the real type of its operand.
        """
    @overload
    def abs(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def sign(self, x: Tensor, /) -> Tensor:
        """sign(x), element by element.

        The result's type is the type of its first operand.
        """
    @overload
    def sign(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def real(self, x: Tensor, /) -> Tensor:
        """real(x), element by element.

        The result's type is the real type of its operand.
        """
    @overload
    def real(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def imag(self, x: Tensor, /) -> Tensor:
        """imag(x), element by element.

        The result's type is the real type of its operand.
        """
    @overload
    def imag(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def logical_not(self, x: Tensor, /) -> Tensor:
        """logical_not(x), element by element.

        The result's type is Bool, to which its operands are converted first.
        """
    @overload
    def logical_not(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def bitwise_not(self, x: Tensor, /) -> Tensor:
        """bitwise_not(x), element by element.

        The result's type is the type of its first operand.
        """
    @overload
    def bitwise_not(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def signbit(self, x: Tensor, /) -> Tensor:
        """signbit(x), element by element.

        The result's type is Bool.
        """
    @overload
    def signbit(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def isfinite(self, x: Tensor, /) -> Tensor:
        """isfinite(x), element by element.

        The result's type is Bool.
        """
    @overload
    def isfinite(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def isinf(self, x: Tensor, /) -> Tensor:
        """isinf(x), element by element.

        The result's type is Bool.
        """
    @overload
    def isinf(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def isnan(self, x: Tensor, /) -> Tensor:
        """isnan(x), element by element.

        The result's type is Bool.
        """
    @overload
    def isnan(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def isneginf(self, x: Tensor, /) -> Tensor:
        """isneginf(x), element by element.

        The result's type is Bool.
        """
    @overload
    def isneginf(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def isposinf(self, x: Tensor, /) -> Tensor:
        """isposinf(x), element by element.

        The result's type is Bool.
        """
    @overload
    def isposinf(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def isreal(self, x: Tensor, /) -> Tensor:
        """isreal(x), element by element.

        The result's type is Bool.
        """
    @overload
    def isreal(self, x: ScalarLike, /) -> Scalar: ...
    @overload
    def add(self, a: Tensor, b: Operand, /) -> Tensor:
        """add(a, b) (a + b), element by element.

        The result's type is the common type of its operands; reduced floats become Float.
        """
    @overload
    def add(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def add(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def sub(self, a: Tensor, b: Operand, /) -> Tensor:
        """sub(a, b) (a - b), element by element.

        The result's type is the common type of its operands; reduced floats become Float.
        """
    @overload
    def sub(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def sub(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def mul(self, a: Tensor, b: Operand, /) -> Tensor:
        """mul(a, b) (a * b), element by element.

        The result's type is the common type of its operands; reduced floats become Float.
        """
    @overload
    def mul(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def mul(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def div(self, a: Tensor, b: Operand, /) -> Tensor:
        """div(a, b) (a / b), element by element.

        The result's type is the common type of its operands; reduced floats become Float.
        """
    @overload
    def div(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def div(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def truediv(self, a: Tensor, b: Operand, /) -> Tensor:
        """truediv(a, b) (a / b), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def truediv(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def truediv(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def mod(self, a: Tensor, b: Operand, /) -> Tensor:
        """mod(a, b) (a % b), element by element.

        The result's type is the common type of its operands; reduced floats become Float.
        """
    @overload
    def mod(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def mod(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def fmod(self, a: Tensor, b: Operand, /) -> Tensor:
        """fmod(a, b), element by element.

        The result's type is the common type of its operands; reduced floats become Float.
        """
    @overload
    def fmod(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def fmod(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def remainder(self, a: Tensor, b: Operand, /) -> Tensor:
        """remainder(a, b), element by element.

        The result's type is the common type of its operands; reduced floats become Float.
        """
    @overload
    def remainder(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def remainder(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def pow(self, base: Tensor, exponent: Operand, /) -> Tensor:
        """pow(base, exponent), element by element.

        The result's type is the common type of its operands; reduced floats become Float.
        """
    @overload
    def pow(self, base: Operand, exponent: Tensor, /) -> Tensor: ...
    @overload
    def pow(self, base: ScalarLike, exponent: ScalarLike, /) -> Scalar: ...
    @overload
    def atan2(self, a: Tensor, b: Operand, /) -> Tensor:
        """atan2(a, b), element by element.

        The result's type is the common type of its operands; reduced floats, integers and bools become Float.
        """
    @overload
    def atan2(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def atan2(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def nextafter(self, a: Tensor, b: Operand, /) -> Tensor:
        """nextafter(a, b), element by element.

        The result's type is the common type of its operands, which must be Float or Double.
        """
    @overload
    def nextafter(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def nextafter(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def complex(self, real: Tensor, imag: Operand, /) -> Tensor:
        """complex(real, imag), element by element.

        The result's type is the complex type of its operands, both Float or both Double.
        """
    @overload
    def complex(self, real: Operand, imag: Tensor, /) -> Tensor: ...
    @overload
    def complex(self, real: ScalarLike, imag: ScalarLike, /) -> Scalar: ...
    @overload
    def gcd(self, a: Tensor, b: Operand, /) -> Tensor:
        """gcd(a, b), element by element.

        The result's type is the common type of its operands; reduced floats become Float.
        """
    @overload
    def gcd(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def gcd(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def maximum(self, a: Tensor, b: Operand, /) -> Tensor:
        """maximum(a, b), element by element.

        The result's type is the common type of its operands; reduced floats become Float.
        """
    @overload
    def maximum(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def maximum(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def minimum(self, a: Tensor, b: Operand, /) -> Tensor:
        """minimum(a, b), element by element.

        The result's type is the common type of its operands; reduced floats become Float.
        """
    @overload
    def minimum(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def minimum(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def eq(self, a: Tensor, b: Operand, /) -> Tensor:
        """eq(a, b) (a == b), element by element.

        The result's type is Bool.
        """
    @overload
    def eq(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def eq(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def ne(self, a: Tensor, b: Operand, /) -> Tensor:
        """ne(a, b) (a != b), element by element.

        The result's type is Bool.
        """
    @overload
    def ne(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def ne(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def lt(self, a: Tensor, b: Operand, /) -> Tensor:
        """lt(a, b) (a < b), element by element.

        The result's type is Bool.
        """
    @overload
    def lt(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def lt(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def le(self, a: Tensor, b: Operand, /) -> Tensor:
        """le(a, b) (a <= b), element by element.

        The result's type is Bool.
        """
    @overload
    def le(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def le(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def gt(self, a: Tensor, b: Operand, /) -> Tensor:
        """gt(a, b) (a > b), element by element.

        The result's type is Bool.
        """
    @overload
    def gt(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def gt(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def ge(self, a: Tensor, b: Operand, /) -> Tensor:
        """ge(a, b) (a >= b), element by element.

        The result's type is Bool.
        """
    @overload
    def ge(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def ge(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def logical_and(self, a: Tensor, b: Operand, /) -> Tensor:
        """logical_and(a, b) (a && b), element by element.

        The result's type is Bool, to which its operands are converted first.
        """
    @overload
    def logical_and(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def logical_and(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def logical_or(self, a: Tensor, b: Operand, /) -> Tensor:
        """logical_or(a, b) (a || b), element by element.

        The result's type is Bool, to which its operands are converted first.
        """
    @overload
    def logical_or(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def logical_or(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def bitwise_and(self, a: Tensor, b: Operand, /) -> Tensor:
        """bitwise_and(a, b) (a & b), element by element.

        The result's type is the common type of its operands; reduced floats become Float.
        """
    @overload
    def bitwise_and(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def bitwise_and(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def bitwise_or(self, a: Tensor, b: Operand, /) -> Tensor:
        """bitwise_or(a, b) (a | b), element by element.

        The result's type is the common type of its operands; reduced floats become Float.
        """
    @overload
    def bitwise_or(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def bitwise_or(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def bitwise_xor(self, a: Tensor, b: Operand, /) -> Tensor:
        """bitwise_xor(a, b) (a ^ b), element by element.

        The result's type is the common type of its operands; reduced floats become Float.
        """
    @overload
    def bitwise_xor(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def bitwise_xor(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def bitwise_left_shift(self, a: Tensor, b: Operand, /) -> Tensor:
        """bitwise_left_shift(a, b) (a << b), element by element.

        The result's type is the common type of its operands; reduced floats become Float.
        """
    @overload
    def bitwise_left_shift(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def bitwise_left_shift(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def bitwise_right_shift(self, a: Tensor, b: Operand, /) -> Tensor:
        """bitwise_right_shift(a, b) (a >> b), element by element.

        The result's type is the common type of its operands; reduced floats become Float.
        """
    @overload
    def bitwise_right_shift(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def bitwise_right_shift(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def logical_right_shift(self, a: Tensor, b: Operand, /) -> Tensor:
        """logical_right_shift(a, b), element by element.

        The result's type is the common type of its operands; reduced floats become Float.
        """
    @overload
    def logical_right_shift(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def logical_right_shift(self, a: ScalarLike, b: ScalarLike, /) -> Scalar: ...
    @overload
    def where(self, condition: Tensor, x: Operand, y: Operand, /) -> Tensor:
        """where(condition, x, y), element by element.

        The result's type is the common type of the operands after the Bool condition; reduced floats stay.
        """
    @overload
    def where(self, condition: Operand, x: Tensor, y: Operand, /) -> Tensor: ...
    @overload
    def where(self, condition: Operand, x: Operand, y: Tensor, /) -> Tensor: ...
    @overload
    def where(self, condition: ScalarLike, x: ScalarLike, y: ScalarLike, /) -> Scalar: ...
    @overload
    def lerp(self, start: Tensor, end: Operand, weight: Operand, /) -> Tensor:
        """lerp(start, end, weight), element by element.

        The result's type is the common type of its operands; reduced floats become Float.
        """
    @overload
    def lerp(self, start: Operand, end: Tensor, weight: Operand, /) -> Tensor: ...
    @overload
    def lerp(self, start: Operand, end: Operand, weight: Tensor, /) -> Tensor: ...
    @overload
    def lerp(self, start: ScalarLike, end: ScalarLike, weight: ScalarLike, /) -> Scalar: ...
    @overload
    def addcmul(self, a: Tensor, b: Operand, c: Operand, alpha: ScalarLike, /) -> Tensor:
        """addcmul(a, b, c, alpha), element by element.

        The result's type is the common type of its operands; reduced floats become Float.
        """
    @overload
    def addcmul(self, a: Operand, b: Tensor, c: Operand, alpha: ScalarLike, /) -> Tensor: ...
    @overload
    def addcmul(self, a: Operand, b: Operand, c: Tensor, alpha: ScalarLike, /) -> Tensor: ...
    @overload
    def addcmul(self, a: ScalarLike, b: ScalarLike, c: ScalarLike, alpha: ScalarLike, /) -> Scalar: ...
    @overload
    def threshold(self, x: Tensor, threshold: ScalarLike, value: ScalarLike, /) -> Tensor:
        """threshold(x, threshold, value), element by element.

        The result's type is the type of its first operand.
        """
    @overload
    def threshold(self, x: ScalarLike, threshold: ScalarLike, value: ScalarLike, /) -> Scalar: ...
    @overload
    def clamp(self, x: Tensor, min: ScalarLike | None = None, max: ScalarLike | None = None) -> Tensor:
        """x limited to the range from `min` to `max`, which are converted to its type; None is no limit.

        The result is NaN where x or a limit is NaN, and max where min > max.
        """
    @overload
    def clamp(
        self,
        x: ScalarLike,
        min: ScalarLike | None = None,
        max: ScalarLike | None = None,
    ) -> Scalar: ...
    @overload
    def cast(self, arg: Tensor, dtype: DtypeLike) -> Tensor:
        """A tensor or scalar in another type. Complex to real drops the imaginary part, with a warning."""
    @overload
    def cast(self, arg: ScalarLike, dtype: DtypeLike) -> Scalar: ...
    def bitcast(self, arg: Tensor, dtype: DtypeLike) -> Tensor:
        """The bits of each element as one of another type, of the same size: torch's `arg.view(dtype)`."""
    @overload
    def set(self, arg: Tensor) -> Tensor:
        """A copy."""
    @overload
    def set(self, arg: ScalarLike) -> Scalar: ...
    def segment_set(self, arg: Tensor) -> Tensor:
        """A copy that one kernel writes and another reads: the fusion is cut here."""
    @overload
    def add_alpha(self, a: Tensor, b: Operand, alpha: ScalarLike, /) -> Tensor:
        """a + alpha * b, in the common type of a and b; reduced floats become Float."""
    @overload
    def add_alpha(self, a: Operand, b: Tensor, alpha: ScalarLike, /) -> Tensor: ...
    @overload
    def add_alpha(self, a: ScalarLike, b: ScalarLike, alpha: ScalarLike, /) -> Scalar: ...
    @overload
    def sub_alpha(self, a: Tensor, b: Operand, alpha: ScalarLike, /) -> Tensor:
        """a - alpha * b, in the common type of a and b; reduced floats become Float."""
    @overload
    def sub_alpha(self, a: Operand, b: Tensor, alpha: ScalarLike, /) -> Tensor: ...
    @overload
    def sub_alpha(self, a: ScalarLike, b: ScalarLike, alpha: ScalarLike, /) -> Scalar: ...
    def gelu(self, arg: Tensor, approximate: str = "none") -> Tensor:
        """arg times the standard normal distribution function of arg; "tanh" is torch's approximation of it.

        Computed in Float for reduced floats; the result is of the input's type.
        """
    def masked_fill(self, arg: Tensor, mask: Tensor, value: Operand) -> Tensor:
        """`value`, converted to the type of `arg`, where the Bool `mask` is True; `arg` elsewhere."""
    def broadcast(self, arg: Tensor, is_broadcast_dim: Sequence[bool]) -> Tensor:
        """A size-1 dimension where `is_broadcast_dim` is True; the False entries are the input's dimensions."""
    def broadcast_in_dim(self, arg: Tensor, shape: Shape, broadcast_dims: Sequence[int]) -> Tensor:
        """`arg` expanded to `shape`: its dimensions become those listed in `broadcast_dims`, in their order."""
    def expand(self, arg: Tensor, shape: Shape) -> Tensor:
        """Size-1 dimensions seen with the sizes of `shape`; no data moves. -1 keeps a size; new ones lead."""
    def squeeze(self, arg: Tensor, dims: Sequence[int], squeeze_expanded: bool = False) -> Tensor:
        """Without the size-1 dimensions `dims`; expanded ones only with `squeeze_expanded`."""
    def permute(self, arg: Tensor, dims: Sequence[int]) -> Tensor:
        """Output dimension i is input dimension dims[i]."""
    def stride_order(self, arg: Tensor, stride_order: Sequence[int]) -> Tensor:
        """A copy with another order in memory: stride_order[d] is 0 for the innermost d; [] keeps the order."""
    def size(self, arg: Tensor, dim: int) -> Scalar:
        """The size of one dimension, an Int scalar; for an expanded dimension, the expanded size."""
    def shape(self, arg: Tensor) -> Vector:
        """All sizes, as a vector."""
    def tensor_sizes(self, arg: Tensor) -> list[Scalar]:
        """All sizes, as a list of scalars."""
    def at(self, vector: Vector, index: int) -> Scalar:
        """One scalar of a vector."""
    def full(self, shape: Shape, fill_value: ScalarLike, dtype: DtypeLike) -> Tensor:
        """A tensor of `shape` with every element `fill_value`, converted to `dtype`."""
    def zeros(self, shape: Shape, dtype: DtypeLike = DataType.Float) -> Tensor:
        """A tensor of zeros."""
    def ones(self, shape: Shape, dtype: DtypeLike = DataType.Float) -> Tensor:
        """A tensor of ones."""
    def full_like(self, arg: Tensor, fill_value: ScalarLike, dtype: DtypeLike = DataType.Null) -> Tensor:
        """A tensor of the sizes of `arg`, and of its type unless `dtype` is given, with one value everywhere."""
    def zeros_like(self, arg: Tensor, dtype: DtypeLike = DataType.Null) -> Tensor:
        """`full_like` with 0."""
    def ones_like(self, arg: Tensor, dtype: DtypeLike = DataType.Null) -> Tensor:
        """`full_like` with 1."""
    def iota(
        self,
        length: ScalarLike,
        start: ScalarLike | None = None,
        step: ScalarLike | None = None,
        dtype: DtypeLike = DataType.Int,
    ) -> Tensor:
        """start, start + step, ...: `length` elements of `dtype`; by default from 0 in steps of 1."""
    @overload
    def sum(
        self,
        arg: Tensor,
        dims: Dims | None = None,
        keepdim: bool = False,
        dtype: DtypeLike = DataType.Null,
    ) -> Tensor:
        """The sum over `dims` (None: all). Bools and integers give Int; `dtype` is cast to first.

        Reduced floats are summed in Float and rounded once.
        """
    @overload
    def sum(
        self,
        arg: Tensor,
        dim: Dims | None = None,
        keepdim: bool = False,
        dtype: DtypeLike = DataType.Null,
    ) -> Tensor: ...
    @overload
    def sum(self, arg: Tensor, dtype: DtypeLike) -> Tensor: ...
    @overload
    def prod(
        self,
        arg: Tensor,
        dims: Dims | None = None,
        keepdim: bool = False,
        dtype: DtypeLike = DataType.Null,
    ) -> Tensor:
        """The product over `dims` (None: all), typed as `sum`."""
    @overload
    def prod(
        self,
        arg: Tensor,
        dim: Dims | None = None,
        keepdim: bool = False,
        dtype: DtypeLike = DataType.Null,
    ) -> Tensor: ...
    @overload
    def prod(self, arg: Tensor, dtype: DtypeLike) -> Tensor: ...
    @overload
    def max(
        self,
        arg: Tensor,
        dims: Dims | None = None,
        keepdim: bool = False,
        dtype: DtypeLike = DataType.Null,
    ) -> Tensor:
        """The greatest value over `dims` (None: all), in the input's type; NaN if there is one. No `dtype`."""
    @overload
    def max(
        self,
        arg: Tensor,
        dim: Dims | None = None,
        keepdim: bool = False,
        dtype: DtypeLike = DataType.Null,
    ) -> Tensor: ...
    @overload
    def max(self, arg: Tensor, dtype: DtypeLike) -> Tensor: ...
    @overload
    def min(
        self,
        arg: Tensor,
        dims: Dims | None = None,
        keepdim: bool = False,
        dtype: DtypeLike = DataType.Null,
    ) -> Tensor:
        """The least value over `dims` (None: all), in the input's type; NaN if there is one. No `dtype`."""
    @overload
    def min(
        self,
        arg: Tensor,
        dim: Dims | None = None,
        keepdim: bool = False,
        dtype: DtypeLike = DataType.Null,
    ) -> Tensor: ...
    @overload
    def min(self, arg: Tensor, dtype: DtypeLike) -> Tensor: ...
    @overload
    def any(self, arg: Tensor, dims: Dims | None = None, keepdim: bool = False) -> Tensor:
        """Whether an element over `dims` (None: all) is not zero: Bool, False where there is no element."""
    @overload
    def any(self, arg: Tensor, dim: Dims | None = None, keepdim: bool = False) -> Tensor: ...
    @overload
    def all(self, arg: Tensor, dims: Dims | None = None, keepdim: bool = False) -> Tensor:
        """Whether no element over `dims` (None: all) is zero: Bool, True where there is no element."""
    @overload
    def all(self, arg: Tensor, dim: Dims | None = None, keepdim: bool = False) -> Tensor: ...
    @overload
    def mean(
        self,
        arg: Tensor,
        dims: Dims | None = None,
        keepdim: bool = False,
        dtype: DtypeLike = DataType.Null,
    ) -> Tensor:
        """The mean over `dims` (None: all). Bools and integers give Float; `dtype` is cast to first."""
    @overload
    def mean(
        self,
        arg: Tensor,
        dim: Dims | None = None,
        keepdim: bool = False,
        dtype: DtypeLike = DataType.Null,
    ) -> Tensor: ...
    @overload
    def mean(self, arg: Tensor, dtype: DtypeLike) -> Tensor: ...
    def welford(self, arg: Tensor, dims: Dims) -> tuple[Tensor, Tensor, Tensor]:
        """(avg, m2, n) over `dims`: the mean, the sum of squared deviations from it, and the count.

        The count is Index; Int where `dims` show copies, which no index counts.

        One pass. Reduced floats give Float.
        """
    @overload
    def var(
        self,
        arg: Tensor,
        dims: Dims | None = None,
        correction: int = 1,
        keepdim: bool = False,
    ) -> Tensor:
        """The variance over `dims` (None: all): m2 / max(n - correction, 0). Reduced floats give Float."""
    @overload
    def var(
        self,
        arg: Tensor,
        dim: Dims | None = None,
        correction: int = 1,
        keepdim: bool = False,
    ) -> Tensor: ...
    @overload
    def std(
        self,
        arg: Tensor,
        dims: Dims | None = None,
        correction: int = 1,
        keepdim: bool = False,
    ) -> Tensor:
        """The standard deviation over `dims` (None: all): the square root of `var`, of the same type."""
    @overload
    def std(
        self,
        arg: Tensor,
        dim: Dims | None = None,
        correction: int = 1,
        keepdim: bool = False,
    ) -> Tensor: ...
    @overload
    def var_mean(
        self,
        arg: Tensor,
        dims: Dims | None = None,
        correction: int = 1,
        keepdim: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """(variance, mean) over `dims` (None: all). No reduced floats; complex gives a real variance."""
    @overload
    def var_mean(
        self,
        arg: Tensor,
        dim: Dims | None = None,
        correction: int = 1,
        keepdim: bool = False,
    ) -> tuple[Tensor, Tensor]: ...
    def argmax(self, arg: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """Where the greatest element along `dim` is, Int; None: its row-major position among all.

        The first of equal ones, and of NaN, which is greater than any number; -1 where there is no element.
        """
    def argmin(self, arg: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """Where the least element along `dim` is, with NaN less than any number; see `argmax`."""
    @overload
    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """The matrix product, shaped as torch.matmul's: vectors are rows or columns, leading dimensions batches.

        Both operands have the same type, which is the result's. torch computes it.
        """
    @overload
    def matmul(self, arg1: Tensor, arg2: Tensor) -> Tensor: ...
    def linear(self, arg1: Tensor, arg2: Tensor, bias: Tensor | None = None) -> Tensor:
        """arg1 @ arg2^T + bias: arg1 of any batch dimensions, arg2 [out, in], bias [out].

        All have the same type, which is the result's. torch computes it.
        """
    def argsort(self, arg: Tensor, dim: int, descending: bool = False, stable: bool = False) -> Tensor:
        """The indices, of type Int, that sort `arg` along `dim`; NaN counts as the greatest value.

        `stable` keeps the order of equal elements. torch computes it.
        """
    def sort(
        self,
        arg: Tensor,
        dim: int = -1,
        descending: bool = False,
        stable: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """(values, indices): `arg` sorted along `dim`, and the previous position of each value. As `argsort`."""
    def topk(
        self,
        arg: Tensor,
        k: ScalarLike,
        dim: int = -1,
        largest: bool = True,
        sorted: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """(values, indices) of the `k` largest, or smallest, elements along `dim`, in order if `sorted`.

        k is a number, or a Scalar whose value each call gives. torch computes it.
        """
    def aten(
        self,
        overload: str,
        arguments: Sequence[object],
        shapes: Sequence[Shape],
        dtypes: Sequence[DtypeLike],
        stride_orders: Sequence[Sequence[int]] = (),
    ) -> Any:
        """The result, or the results, of an operator of ATen that torch computes, such as "convolution.default".

        arguments: in the order of its schema, including keyword-only ones; omitted ones at the end have their
        defaults. Dtypes are `DataType`s. shapes, dtypes: of its results, which each call checks; a result of type
        Null is absent. stride_orders: of the results in memory, row-major if omitted.

        Raises:
            DefinitionError: there is no such operator, or it writes into arguments or returns views of them.
        """
    def sdpfa_fwd(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None = None,
        mask: Tensor | None = None,
        dropout_p: ScalarLike | None = None,
        is_causal: ScalarLike | None = None,
        scale: ScalarLike | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(out, logsumexp, philox_seed, philox_offset) of attention over [N, H, L, E], which torch computes.

        bias is added to the scores, mask (Bool) marks the visible positions; both broadcast to [N, H, L, S]. By
        default nothing is dropped, all positions are visible, and the scale is 1 / sqrt(E). out has the query's
        type, logsumexp is Float [N, H, L]. The dropped elements follow from the seed, UInt64 [2], and the offset,
        UInt64.
        """
    def sdpfa_bwd(
        self,
        grad_output: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        output: Tensor,
        logsumexp: Tensor,
        dropout_p: ScalarLike | None = None,
        is_causal: ScalarLike | None = None,
        philox_seed: Tensor | None = None,
        philox_offset: Tensor | None = None,
        scale: ScalarLike | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(grad_query, grad_key, grad_value) of `sdpfa_fwd`, from its results. torch computes it."""
    def select(self, arg: Tensor, index: ScalarLike, dim: int) -> Tensor:
        """The elements at `index` along `dim`, which the result lacks; a negative one counts from the end."""
    def index_select(self, arg: Tensor, index: Tensor, dim: int) -> Tensor:
        """arg[.., index[i], ..] along `dim`; `index` is of rank 1 or 0, or broadcast to arg's rank.

        An index out of range finds 0.
        """
    @overload
    def gather(self, arg: Tensor, index: Tensor, dim: int) -> Tensor:
        """torch.gather: along `dim` the element that `index` names; the result has the sizes of `index`.

        An index out of range finds 0.
        """
    @overload
    def gather(self, arg1: Tensor, index: Tensor, dim: int) -> Tensor: ...
    @overload
    def take_along_axis(self, arg: Tensor, index: Tensor, dim: int) -> Tensor:
        """As gather, but other dimensions of `arg` and `index` are equal, or of size 1 and broadcast."""
    @overload
    def take_along_axis(self, arg1: Tensor, index: Tensor, dim: int) -> Tensor: ...
    @overload
    def triu(self, arg: Tensor, diagonal: ScalarLike = 0) -> Tensor:
        """The upper triangle of each matrix, from `diagonal` above the main diagonal on; zero elsewhere."""
    @overload
    def triu(self, input: Tensor, diagonal: ScalarLike = 0) -> Tensor: ...
    @overload
    def tril(self, arg: Tensor, diagonal: ScalarLike = 0) -> Tensor:
        """The lower triangle of each matrix, zero elsewhere: up to the diagonal `diagonal` above the main."""
    @overload
    def tril(self, input: Tensor, diagonal: ScalarLike = 0) -> Tensor: ...
    def reshape(self, arg: Tensor, new_shape: Shape) -> Tensor:
        """The elements of `arg`, in row-major order, as a tensor of `new_shape`; one entry may be -1.

        ShapeError if the numbers of elements differ: here where they are known, else when it is executed.
        """
    def flatten(self, arg: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
        """Dimensions start_dim to end_dim (inclusive) as one; a tensor of rank 0 becomes one of rank 1."""
    def cumsum(self, arg: Tensor, dim: int, init: ScalarLike | None = None) -> Tensor:
        """The sums of the elements up to each one along `dim`, and of `init`, in the input's type.

        Reduced floats are summed in Float and rounded once; bools are whether there is a True.
        """
    def cumprod(self, arg: Tensor, dim: int, init: ScalarLike | None = None) -> Tensor:
        """The products of the elements up to each one along `dim`, and of `init`, typed as `cumsum`."""
    def cummax(self, arg: Tensor, dim: int, init: ScalarLike | None = None) -> Tensor:
        """The greatest of the elements up to each one along `dim`, and of `init`; from a NaN on, NaN."""
    def cummin(self, arg: Tensor, dim: int, init: ScalarLike | None = None) -> Tensor:
        """The least of the elements up to each one along `dim`, and of `init`; from a NaN on, NaN."""
    def logcumsumexp(self, arg: Tensor, dim: int) -> Tensor:
        """The logarithms of the sums of e^x of the elements up to each one along `dim`, in the input's type.

        Reduced floats are computed in Float and rounded once.
        """
    @overload
    def scatter(self, arg: Tensor, index: Tensor, src: Operand, dim: int) -> Tensor:
        """torch.scatter: a copy of `arg` in which the elements that `index` names along `dim` are those of `src`.

        `index` and a tensor `src` have the rank of `arg`; `src` is of its type, or a scalar. Of several elements
        for one place any one is taken, not the same in each run but under torch's deterministic algorithms.
        """
    @overload
    def scatter(self, arg1: Tensor, index: Tensor, src: Operand, dim: int) -> Tensor: ...
    def index_put_accumulate(self, acc: Tensor, index: Tensor, value: Tensor) -> Tensor:
        """A copy of `acc` with value[i] added to acc[index[i]], for each i.

        `index` is of rank 1, or of the rank of `acc` and of size 1 but for its first dimension. `acc` and `value`
        have the same rank, type and sizes but for the first. Reduced floats are added in Float and rounded once.
        """
    def embedding_bwd(
        self,
        grad_output: Tensor,
        indices: Tensor,
        num_embeddings: ScalarLike,
        padding_idx: ScalarLike | None = None,
        scale_grad_by_freq: bool = False,
    ) -> Tensor:
        """The gradient of the weight of an embedding, [num_embeddings, size of grad_output's last dimension].

        Row i is the sum of `grad_output` where `indices` is i, over their number with `scale_grad_by_freq`; zero
        where i is `padding_idx` (-1 or None: no row). Reduced floats are added in Float and rounded once.
        """
    def embedding_fwd(
        self,
        input: Tensor,
        weight: Tensor,
        padding_idx: ScalarLike | None = None,
        max_norm: ScalarLike | None = None,
        norm_type: ScalarLike | None = None,
        scale_grad_by_freq: ScalarLike | None = None,
        sparse: ScalarLike | None = None,
    ) -> Tensor:
        """weight[input]: for each index in `input` a row of `weight`, along a new last dimension.

        padding_idx, scale_grad_by_freq and sparse concern only gradients. An index out of range returns 0. With
        `max_norm`, a row with a larger norm (of order `norm_type`, 2 if None) is scaled down to it. If `weight`
        is an input, each execution also changes these rows in it, as torch does.
        """
    @overload
    def grouped_mm(self, mat1: Tensor, mat2: Tensor, offsets: Tensor) -> Tensor:
        """Products of matrices in groups; `offsets` has the end of each of the g groups, in ascending order.

        (m, k) x (k, n) -> (g, m, n), (g, m, k) x (k, n) -> (m, n) and (m, k) x (g, k, n) -> (m, n): the groups
        are parts of k, n and m. The result has the type of mat1. torch computes it.

        With scales it is (out, None, None), where out is alpha * product + beta * bias of the scaled matrices, in
        `dtype`. A scale has the rank of its matrix, or of the result if that is larger.
        """
    @overload
    def grouped_mm(
        self,
        mat1: Tensor,
        mat2: Tensor,
        offsets: Tensor,
        scale1: Tensor | None = None,
        scale2: Tensor | None = None,
        alpha: Tensor | None = None,
        bias: Tensor | None = None,
        beta: Tensor | None = None,
        dtype: DtypeLike = DataType.BFloat16,
        output_block_scale_size: int = 0,
        output_block_scale_dtype: DtypeLike = DataType.BFloat16,
        output_gamma: bool = False,
    ) -> Any: ...
    def scaled_mm(
        self,
        mat1: Tensor,
        mat2: Tensor,
        scale1: Tensor,
        scale2: Tensor,
        alpha: Tensor | None = None,
        bias: Tensor | None = None,
        beta: Tensor | None = None,
        dtype: DtypeLike = DataType.BFloat16,
        output_block_scale_size: int = 0,
        output_block_scale_dtype: DtypeLike = DataType.BFloat16,
        output_gamma: bool = False,
    ) -> tuple[Tensor, None, None]:
        """(out, None, None), out = alpha * (mat1 * scale1) @ (mat2 * scale2) + beta * bias in `dtype`.

        There is one scale factor per matrix, row or column, element, or block of a size that divides the
        matrix's. torch computes the product in Float, so it is correct but not fast: fast products with block
        scales need a Blackwell GPU.
        """
    def cutlass_nvfp4_grouped_mm(
        self,
        mat1: Tensor,
        mat2: Tensor,
        scale1: Tensor,
        scale2: Tensor,
        alpha: Tensor,
        problem_sizes: Tensor,
        expert_offsets: Tensor,
        sf_offsets: Tensor,
        dtype: DtypeLike = DataType.BFloat16,
    ) -> NoReturn:
        """CUTLASS' grouped product of 4-bit floats, which only Blackwell GPUs have instructions for."""
    def cross_entropy(
        self,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: ScalarLike = 0.0,
    ) -> Tensor:
        """The negative logarithm of the softmax of `logits` at the class that `target` names, as torch's.

        Classes are dimension 1 of `logits`, or the only one; `target` has the others, and is Int or Int32. Where
        it is `ignore_index` the loss is 0. `weight` has a factor for each class. `reduction` is "none", "sum", or
        "mean", the sum over the total weight of the targets. `label_smoothing` is the share of the loss that
        is spread evenly over the classes. Computed in Float for reduced floats; the result is of the type of the
        logits. A target that is no class and is not ignored finds a logit of 0.
        """
    def layer_norm(
        self,
        arg: Tensor,
        normalized_shape: Values,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: ScalarLike = 1e-05,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(out, mean, invstd): out = (arg - mean) * invstd * weight + bias over the last dimensions.

        `normalized_shape` lists their sizes, or says how many they are. `mean` and invstd, which is
        1 / sqrt(variance + eps), keep them at size 1. Reduced floats are computed in Float, which mean and
        invstd then are of; out is of the input's type.
        """
    def rms_norm(
        self,
        arg: Tensor,
        normalized_shape: Values,
        weight: Tensor | None = None,
        eps: ScalarLike | None = None,
    ) -> tuple[Tensor, Tensor]:
        """(out, invstd): out = arg * invstd * weight, where invstd is 1 / sqrt(mean(arg * arg) + eps).

        `normalized_shape` and the types are as in `layer_norm`. The default `eps` is the distance from 1 to the
        next number in the compute type.
        """
    def group_norm(
        self,
        arg: Tensor,
        num_groups: int,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: ScalarLike = 1e-05,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(out, mean, invstd): arg [N, C, ...] normalized in each group of C / num_groups channels.

        It is then multiplied by `weight` and added to `bias`, of the channels. mean and invstd are
        [N, num_groups], in the type that is computed in; out is of the input's type.
        """
    def instance_norm(
        self,
        arg: Tensor,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: ScalarLike = 1e-05,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`group_norm` of groups of one channel: mean and invstd are [N, C]."""
    def batch_norm(
        self,
        arg: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        momentum: ScalarLike,
        eps: ScalarLike,
        training: bool,
        channels_last: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(out, mean, invstd): arg normalized in each channel, times weight, plus bias.

        The channels are dimension 1, or the last with `channels_last`. In training, and without running
        statistics, mean and invstd = 1 / sqrt(variance + eps) are those of `arg` over all other dimensions; else
        they are the running ones. Training writes (1 - momentum) * old + momentum * new into the running
        statistics, where the new variance is the unbiased one. Reduced floats are computed in Float, which is
        then the type of mean and invstd; out has the input's type.
        """
    def nv_block_quantize(
        self,
        input: Tensor,
        global_scale: Tensor | None = None,
        swizzle_block_scales: bool = False,
        block_size: int = 16,
        dtype: DtypeLike = DataType.Float4_e2m1fn,
    ) -> tuple[Tensor, Tensor]:
        """`input` in blocks along the last dimension, each divided by its scale and rounded; and the scales.

        Float4_e2m1fn: blocks of 16. A scale is the greatest magnitude over 6, times `global_scale`, rounded to
        Float8_e4m3fn; elements are divided by the scale over `global_scale`. Float8_e4m3fn: blocks of 32, and
        scales are powers of two, Float8_e8m0fnu, the least by which no element is beyond 448.
        """
    def nv_grouped_block_quantize(
        self,
        input: Tensor,
        input_offsets: Tensor,
        output_offsets: Tensor,
        global_scale: Tensor | None = None,
        block_size: int = 16,
        dtype: DtypeLike = DataType.Float4_e2m1fn,
    ) -> NoReturn:
        """`nv_block_quantize` of groups of rows, with scales in the layout of Blackwell's matrix instructions."""
    def preprocess_grouped_matmul_input_sf(
        self,
        input: Tensor,
        input_offsets: Tensor,
        output_offsets: Tensor,
    ) -> NoReturn:
        """Block scales of groups of rows in the layout of Blackwell's matrix instructions."""
    def uniform(
        self,
        minval: ScalarLike,
        maxval: ScalarLike,
        shape: Shape,
        *,
        rng_seed: ScalarLike | None = None,
        rng_offset: ScalarLike | None = None,
        dtype: DtypeLike = DataType.Float,
    ) -> Tensor:
        """Numbers of `dtype`, evenly distributed from `minval` to `maxval`, which itself is left out.

        With `rng_seed` and `rng_offset` (integers) they are the same each time; without, they follow torch's
        generator of the device, which goes on by an offset of 4.
        """
    def normal(
        self,
        mean: ScalarLike,
        std: ScalarLike,
        shape: Shape,
        *,
        rng_seed: ScalarLike | None = None,
        rng_offset: ScalarLike | None = None,
        dtype: DtypeLike = DataType.Float,
    ) -> Tensor:
        """Numbers of `dtype`, normally distributed with this mean and standard deviation; see `uniform`."""
    def rand_like(
        self,
        arg: Tensor,
        *,
        rng_seed: ScalarLike | None = None,
        rng_offset: ScalarLike | None = None,
    ) -> Tensor:
        """Numbers evenly distributed in [0, 1), of the sizes and the (floating) type of `arg`; see `uniform`."""
    def randn_like(
        self,
        arg: Tensor,
        *,
        rng_seed: ScalarLike | None = None,
        rng_offset: ScalarLike | None = None,
    ) -> Tensor:
        """Standard normal numbers of the sizes and the (floating) type of `arg`; see `uniform`."""
    def dropout(
        self,
        arg: Tensor,
        p: ScalarLike = 0.5,
        *,
        rng_seed: ScalarLike | None = None,
        rng_offset: ScalarLike | None = None,
    ) -> tuple[Tensor, Tensor]:
        """(out, mask): each element is kept, times 1 / (1 - p), with probability 1 - p, and is 0 otherwise.

        The mask is True for kept elements. Reduced floats are computed in Float; out has the input's type. The
        draws are those of `uniform`, with its seed and offset.
        """
    def slice(
        self,
        arg: Tensor,
        start_indices: Shape,
        end_indices: Shape,
        strides: Shape | None = None,
        manual_normalization: bool = False,
    ) -> Tensor:
        """arg[start:end:stride] along each dimension; ranges are cut off at the sizes.

        With `manual_normalization` they lie within the sizes already, and nothing is cut off.
        """
    def chunk(self, arg: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
        """`arg` in at most `chunks` parts along `dim`, as torch.chunk: all as long, but perhaps the last; in
        exactly as many where there is no element.

        ShapeError if the size is not known in the definition, which the number of parts depends on.
        """
    def split(self, arg: Tensor, split_size: Dims, dim: int = 0) -> tuple[Tensor, ...]:
        """`arg` in parts of `split_size` along `dim`, the last perhaps shorter, or of the sizes listed."""
    def pad(self, arg: Tensor, pad_widths: Shape, value: ScalarLike | None = None) -> Tensor:
        """`arg` with `value` (default: zero) around it, cut off where a width is negative.

        pad_widths: before and after, for the last dimension first, as torch.nn.functional.pad.
        """
    def cat(self, tensors: Sequence[Tensor], dim: int = 0, manual_padding: bool = False) -> Tensor:
        """The tensors one after another along `dim`; they have the same type and the same other sizes.

        With `manual_padding` each is padded to the size of the result already.
        """
    def stack(self, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
        """Tensors of the same sizes one after another along a new dimension `dim`."""
    def flip(self, arg: Tensor, dims: Dims) -> Tensor:
        """`arg` with the order of its elements along `dims` reversed."""
    def roll(self, arg: Tensor, shifts: Dims, dims: Dims) -> Tensor:
        """`arg` with its elements moved by `shifts` along `dims`; those beyond the end move to the start."""
    def repeat(self, arg: Tensor, repeats: Shape) -> Tensor:
        """`arg` repeats[d] times along each dimension, as torch.Tensor.repeat; new dimensions lead."""
    def repeat_interleave(self, arg: Tensor, repeats: int, dim: int) -> Tensor:
        """Each element `repeats` times in a row along `dim`."""
    def softmax(self, arg: Tensor, dim: int, dtype: DtypeLike = DataType.Null) -> Tensor:
        """exp(arg) over its sum along `dim`, in the input's type, or `dtype`, which is cast to first."""
    def log_softmax(self, arg: Tensor, dim: int, dtype: DtypeLike = DataType.Null) -> Tensor:
        """The logarithm of `softmax`, of the same type."""
    @overload
    def logsumexp(self, arg: Tensor, dims: Dims, keepdim: bool = False) -> Tensor:
        """log(sum(exp(arg))) over `dims`, in the input's type; bools and integers give Float."""
    @overload
    def logsumexp(self, arg: Tensor, dim: Dims, keepdim: bool = False) -> Tensor: ...
    def max_sum_exp(self, arg: Tensor, dims: Dims) -> tuple[Tensor, Tensor]:
        """(top, total) over `dims`: the maximum, and the sum of exp(arg - top).

        It takes one pass; a softmax is exp(arg - top) / total. The sum is 0 if the maximum is -inf, and inf if it
        is inf. Reduced floats give Float.
        """
    def unfold(self, arg: Tensor, dim: int, size: int, step: int) -> Tensor:
        """Windows of `size` elements along a dimension, one every `step` elements, as torch.Tensor.unfold.

        Dimension `dim` of the result counts the windows, of which the last is complete. Their elements are a new
        last dimension.

        Raises:
            ShapeError: no such dimension, a negative size, a step that is not positive, or a window that is
                longer than the dimension (for sizes that a call states, when it does).
        """

class SchedulingMethods:
    """The primitives: methods of `fd.sched`."""

    @overload
    def split(self, tensor: Tensor, dim: int, factor: int, inner_split: bool = True) -> None:
        """[.., n, ..] -> [.., ceilDiv(n, factor), factor, ..]; inner_split=False: the factor is outer."""
    @overload
    def split(self, arg: Tensor, dim: int, factor: int, inner_split: bool = True) -> None: ...
    @overload
    def split(self, tensor: Tensor, axis: int, factor: int, inner_split: bool = True) -> None: ...
    @overload
    def split(self, arg: Tensor, axis: int, factor: int, inner_split: bool = True) -> None: ...
    @overload
    def shifted_split(
        self,
        tensor: Tensor,
        dim: int,
        factor: int,
        aligned: Tensor,
        turn: int | None = None,
    ) -> None:
        """[.., n, ..] -> [.., ceilDiv(n + factor - 1, factor), factor, ..], with each row's vectors aligned.

        The axis is the row of `aligned`, an input or output whose dimensions are those that `tensor` is
        computed along: its innermost dimension, or several merged. A row that starts s elements after a
        multiple of `factor` is shifted by s: point i is at [(i + s) // factor, (i + s) % factor]. The first
        and the last vector of a row have points outside of it, which are not computed.

        `turn`: a loop axis with one row per point. Rows at equal points start at the same distance from a
        multiple of `factor`: the axis is the inner result of a split of the rows by a constant. Then s
        depends only on this axis, so a loop over such rows has each column at one position.
        """
    @overload
    def shifted_split(
        self,
        arg: Tensor,
        dim: int,
        factor: int,
        aligned: Tensor,
        turn: int | None = None,
    ) -> None: ...
    @overload
    def merge(self, tensor: Tensor, dim: int, inner: int | None = None) -> None:
        """[.., a, b, ..] -> [.., a*b, ..]: dim and the next axis, or `inner`."""
    @overload
    def merge(self, arg: Tensor, dim: int, inner: int | None = None) -> None: ...
    @overload
    def merge(self, tensor: Tensor, axis_o: int, axis_i: int | None = None) -> None: ...
    @overload
    def merge(self, arg: Tensor, axis_o: int, axis_i: int | None = None) -> None: ...
    @overload
    def reorder(self, tensor: Tensor, old2new: Mapping[int, int]) -> None:
        """[a, b, c] -> [b, c, a] with {0: 2}: the axes not named keep their order."""
    @overload
    def reorder(self, arg: Tensor, old2new: Mapping[int, int]) -> None: ...
    @overload
    def swizzle(self, tensor: Tensor, x: int, y: int) -> None:
        """[.., x, y, ..] -> [.., x, y ^ x, ..] for two equal constant power-of-two extents."""
    @overload
    def swizzle(self, arg: Tensor, x: int, y: int) -> None: ...
    @overload
    def reverse(self, tensor: Tensor, dim: int) -> None:
        """[.., n, ..] -> [.., n, ..] from its last point to its first.

        The data that one loop read last is still in the L2 cache when the next loop reads it first.
        """
    @overload
    def reverse(self, arg: Tensor, dim: int) -> None: ...
    def hold_part(self, load: Tensor, again: Collection[Tensor], steps: int, pos: int) -> Tensor:
        """source -> load, again => source -> load -> held; source, held -> again; returns held.

        Shared memory holds the data that `load` loads in the first `steps` iterations of its loop at `pos`.
        `again`, which loads the same elements later, reads these from there and loads only the rest again.
        """
    @overload
    def set_cache_op(self, tensor: Tensor, cache_op: CacheOp) -> None:
        """Sets the cache hint of a load from global memory, including loads by index, or of a store to it."""
    @overload
    def set_cache_op(self, arg: Tensor, cache_op: CacheOp) -> None: ...
    @overload
    def parallelize(self, tensor: Tensor, axis: int, parallel_type: ParallelType, pad: int = 1) -> None:
        """Binds a loop axis; `pad` rounds its threads up to a multiple (32 fills warps)."""
    @overload
    def parallelize(self, arg: Tensor, axis: int, parallel_type: ParallelType, pad: int = 1) -> None: ...
    @overload
    def rfactor(self, tensor: Tensor, dims: Sequence[int]) -> Tensor:
        """tensor[i, r0, r1] -> partial[i, r0, r1 reduced] then tensor[i, r0 reduced]; returns partial."""
    @overload
    def rfactor(self, arg: Tensor, dims: Sequence[int]) -> Tensor: ...
    @overload
    def rfactor(self, tensor: Tensor, axes: Sequence[int]) -> Tensor: ...
    @overload
    def rfactor(self, arg: Tensor, axes: Sequence[int]) -> Tensor: ...
    @overload
    def cache_after(
        self,
        tensor: Tensor,
        op_type: LoadStoreOpType = LoadStoreOpType.set,
        cache_op: CacheOp = CacheOp.unspecified,
        cached_uses: Collection[Tensor] = (),
    ) -> Tensor:
        """tensor -> uses  =>  tensor -> copy -> uses (only those computing `cached_uses`, if given).

        `op_type`: of the copy; `set` is the only one yet. `cache_op`: of a load from global memory.
        """
    @overload
    def cache_after(
        self,
        arg: Tensor,
        op_type: LoadStoreOpType = LoadStoreOpType.set,
        cache_op: CacheOp = CacheOp.unspecified,
        cached_uses: Collection[Tensor] = (),
    ) -> Tensor: ...
    @overload
    def cache_before(self, tensor: Tensor, op_type: LoadStoreOpType = LoadStoreOpType.set) -> Tensor:
        """definition -> tensor  =>  definition -> copy -> tensor; returns the copy. `op_type`: `set`."""
    @overload
    def cache_before(self, arg: Tensor, op_type: LoadStoreOpType = LoadStoreOpType.set) -> Tensor: ...
    @overload
    def cache_fork(self, tensor: Tensor) -> Tensor:
        """An output with uses => a local tensor with a new output copied from it; returns the output."""
    @overload
    def cache_fork(self, arg: Tensor) -> Tensor: ...
    @overload
    def recompute(self, tensor: Tensor, recomputed_uses: Collection[Tensor] = ()) -> list[Tensor]:
        """tensor -> a, b => tensor -> a, twin -> b: every use after the first computes it anew.

        With `recomputed_uses`, one twin serves those.
        """
    @overload
    def recompute(self, arg: Tensor, recomputed_uses: Collection[Tensor] = ()) -> list[Tensor]: ...
    @overload
    def allow_unaligned(self, tensor: Tensor) -> None:
        """Lets the vectors of a load from global memory to registers start at any element.

        Each vector is selected from the two aligned vectors that contain it. So neither the address nor the
        lengths of rows need to be multiples of a vector. Without a vectorized axis nothing changes.
        """
    @overload
    def allow_unaligned(self, arg: Tensor) -> None: ...
    @overload
    def assume(self, tensor: Tensor, dim: int, low: int, high: int) -> None:
        """Assumes that the size of dimension `dim` is in [low, high]; values that follow are constants in the
        kernel.

        The kernel rejects a call with another size (automatic schedules then make another kernel).
        """
    @overload
    def assume(self, arg: Tensor, dim: int, low: int, high: int) -> None: ...
    @overload
    def assume_multiple(self, tensor: Tensor, dim: int, number: int) -> None:
        """Assumes that the size of dimension `dim` is a multiple of `number`, so that vectors may cross it.

        The kernel rejects a call with another size (automatic schedules then make another kernel).
        """
    @overload
    def assume_multiple(self, arg: Tensor, dim: int, number: int) -> None: ...
    @overload
    def set_memory_type(self, tensor: Tensor, memory_type: MemoryType) -> None:
        """Places an intermediate tensor in registers (local), shared or global memory.

        In global memory all blocks may read it. There is a grid barrier between a block's store and another
        block's read, so the launch is cooperative: all of its blocks must fit the GPU at once.
        """
    @overload
    def set_memory_type(self, arg: Tensor, memory_type: MemoryType) -> None: ...
    @overload
    def store_along(self, tensor: Tensor, dims: Sequence[int], padding: int = 0) -> None:
        """Stores a shared tensor along these of its loop axes as they are now, outermost first.

        An intermediate tensor in global memory takes its dimensions in any order, before they are split.
        Other tensors are stored along all their loops, and accept no other order; so is a shared tensor
        without this call. Axes left out must be bound to blocks or be inlined loops. `padding`: unused
        elements after each point of the first axis, which distribute reads across rows over the banks.
        """
    @overload
    def store_along(self, arg: Tensor, dims: Sequence[int], padding: int = 0) -> None: ...
    @overload
    def circular_buffer(
        self,
        tensor: Tensor,
        stages: int,
        prefetch_distance: int = -1,
        pos: int = -1,
    ) -> None:
        """Fills a shared tensor ahead of its readers by bulk copies, which one thread of the block starts.

        The tensor is copied from an input. In [.., n | run], with the bar at `pos`, the innermost axis is
        what one copy moves, contiguous in the input. The loops right of the bar form one stage, and the
        serial loops left of it count the stages. There is room for `stages` of them. `prefetch_distance`
        stages (negative: that many less than stages) are in flight, or have arrived, beyond those that are no
        longer read.
        """
    @overload
    def circular_buffer(
        self,
        arg: Tensor,
        stages: int,
        prefetch_distance: int = -1,
        pos: int = -1,
    ) -> None: ...
    @overload
    def warp_specialize(
        self,
        tensor: Tensor,
        number_of_stages: int,
        prefetch_distance: int,
        parallel_type: ParallelType,
        num_registers: Sequence[int] | None = None,
        pos: int = -1,
    ) -> None:
        """Like `circular_buffer`, with a separate warp that starts the copies, in addition to the block's
        others along an axis.

        `num_registers`: per thread of the warps that load, which are then four, and per thread of those that
        compute.
        """
    @overload
    def warp_specialize(
        self,
        arg: Tensor,
        number_of_stages: int,
        prefetch_distance: int,
        parallel_type: ParallelType,
        num_registers: Sequence[int] | None = None,
        pos: int = -1,
    ) -> None: ...
    @overload
    def warp_specialize(
        self,
        tv: Tensor,
        number_of_stages: int,
        prefetch_distance: int,
        parallel_type: ParallelType,
        num_registers: Sequence[int] | None = None,
        pos: int = -1,
    ) -> None: ...
    @overload
    def set_allocation_as_loop(self, tensor: Tensor) -> None:
        """Stores a tensor in shared memory or registers along its loops, which is the default without
        `store_along`.

        An output has the layout of its definition: its loops must follow the order of its memory.
        """
    @overload
    def set_allocation_as_loop(self, arg: Tensor) -> None: ...
    @overload
    def prefetch(self, tensor: Tensor) -> None:
        """Loads a tensor into registers an iteration ahead of the serial loop that it is inlined into.

        Its load is in flight during the previous iteration. It takes twice the registers.
        """
    @overload
    def prefetch(self, arg: Tensor) -> None: ...
    @overload
    def accumulate_in_registers(self, tensor: Tensor) -> Tensor:
        """reduction -> tensor in memory => reduction -> copy in registers -> tensor, in the same loops.

        `complete` does this for all reductions for which it was not called. Returns the copy.
        """
    @overload
    def accumulate_in_registers(self, arg: Tensor) -> Tensor: ...
    @overload
    def all_reduce(self, tensor: Tensor) -> None:
        """Gives the result of a reduction across blocks to all of them, which wait for each other.

        Without it, only the last block has the result, and no later axis can be bound to those blocks. The
        launch is cooperative: all of its blocks must fit the GPU at once.
        """
    @overload
    def all_reduce(self, arg: Tensor) -> None: ...
    @overload
    def transform_like(self, tensor: Tensor, selected: Collection[Tensor] = ()) -> None:
        """Replays the loop transforms of `tensor` on all (or the selected) tensors."""
    @overload
    def transform_like(self, arg: Tensor, selected: Collection[Tensor] = ()) -> None: ...
    @overload
    def transform_like(self, tensor: Tensor, selected_tensors: Collection[Tensor] = ()) -> None: ...
    @overload
    def transform_like(self, arg: Tensor, selected_tensors: Collection[Tensor] = ()) -> None: ...
    @overload
    def transform_like(self, reference_tv: Tensor, selected: Collection[Tensor] = ()) -> None: ...
    @overload
    def transform_like(self, reference_tv: Tensor, selected_tensors: Collection[Tensor] = ()) -> None: ...
    @overload
    def bounded_transform_backward(
        self,
        tensor: Tensor,
        pos: int,
        to: Collection[Tensor],
        propagate_parallel_type: bool = False,
    ) -> None:
        """Replays the loops of `tensor` left of `pos` (-1: all) on its producers up to those in `to`.

        Only the tensors between these change. `propagate_parallel_type`: also binds their loops in the same
        way.
        """
    @overload
    def bounded_transform_backward(
        self,
        arg: Tensor,
        pos: int,
        to: Collection[Tensor],
        propagate_parallel_type: bool = False,
    ) -> None: ...
    @overload
    def parallelize_like(
        self,
        tensor: Tensor,
        pos: int = -1,
        selected: Collection[Tensor] = (),
        types: Collection[ParallelType] = (),
        propagate_padding: bool = True,
    ) -> None:
        """Binds axes that match those of `tensor` left of `pos` in the same way; `types` restricts which."""
    @overload
    def parallelize_like(
        self,
        arg: Tensor,
        pos: int = -1,
        selected: Collection[Tensor] = (),
        types: Collection[ParallelType] = (),
        propagate_padding: bool = True,
    ) -> None: ...
    @overload
    def parallelize_like(
        self,
        tensor: Tensor,
        pos: int = -1,
        selected_tensors: Collection[Tensor] = (),
        selected_parallel_types: Collection[ParallelType] = (),
        propagate_padding: bool = True,
    ) -> None: ...
    @overload
    def parallelize_like(
        self,
        arg: Tensor,
        pos: int = -1,
        selected_tensors: Collection[Tensor] = (),
        selected_parallel_types: Collection[ParallelType] = (),
        propagate_padding: bool = True,
    ) -> None: ...
    @overload
    def parallelize_like(
        self,
        reference_tv: Tensor,
        pos: int = -1,
        selected: Collection[Tensor] = (),
        types: Collection[ParallelType] = (),
        propagate_padding: bool = True,
    ) -> None: ...
    @overload
    def parallelize_like(
        self,
        reference_tv: Tensor,
        pos: int = -1,
        selected_tensors: Collection[Tensor] = (),
        selected_parallel_types: Collection[ParallelType] = (),
        propagate_padding: bool = True,
    ) -> None: ...
    @overload
    def inline_at(
        self,
        tensor: Tensor,
        pos: int = -1,
        best_effort: bool = False,
        selected: Collection[Tensor] = (),
    ) -> None:
        """Computes all (or the selected) tensors inside `pos` loops that they share with consumers."""
    @overload
    def inline_at(
        self,
        arg: Tensor,
        pos: int = -1,
        best_effort: bool = False,
        selected: Collection[Tensor] = (),
    ) -> None: ...
    @overload
    def inline_at(
        self,
        tensor: Tensor,
        pos: int = -1,
        best_effort: bool = False,
        selected_tensors: Collection[Tensor] = (),
    ) -> None: ...
    @overload
    def inline_at(
        self,
        arg: Tensor,
        pos: int = -1,
        best_effort: bool = False,
        selected_tensors: Collection[Tensor] = (),
    ) -> None: ...
    @overload
    def inline_at(
        self,
        reference_tv: Tensor,
        pos: int = -1,
        best_effort: bool = False,
        selected: Collection[Tensor] = (),
    ) -> None: ...
    @overload
    def inline_at(
        self,
        reference_tv: Tensor,
        pos: int = -1,
        best_effort: bool = False,
        selected_tensors: Collection[Tensor] = (),
    ) -> None: ...
    @overload
    def inline_most(self, selected: Collection[Tensor] = ()) -> None:
        """Inlines all (or the selected) tensors as far as possible."""
    @overload
    def inline_most(self, selected_tensors: Collection[Tensor] = ()) -> None: ...
    @overload
    def reduction_factor(self, tensor: Tensor, dims: Sequence[int]) -> Tensor:
        """tensor[i, r0, r1] -> partial[i, r0, r1 reduced] then tensor[i, r0 reduced]; returns partial."""
    @overload
    def reduction_factor(self, arg: Tensor, dims: Sequence[int]) -> Tensor: ...
    @overload
    def reduction_factor(self, tensor: Tensor, axes: Sequence[int]) -> Tensor: ...
    @overload
    def reduction_factor(self, arg: Tensor, axes: Sequence[int]) -> Tensor: ...

class HeuristicMethods:
    """What depends on the type of a scheduler."""

    @overload
    def compute_heuristics(
        self,
        scheduler_type: Literal[SchedulerType.reduction, "reduction"],
    ) -> EditableReductionParams: ...
    @overload
    def compute_heuristics(
        self,
        scheduler_type: Literal[SchedulerType.inner_outer, "inner_outer"],
    ) -> EditableInnerOuterParams: ...
    @overload
    def compute_heuristics(
        self,
        scheduler_type: Literal[SchedulerType.transpose, "transpose"],
    ) -> EditableTransposeParams: ...
    @overload
    def compute_heuristics(
        self,
        scheduler_type: Literal[SchedulerType.pointwise, "pointwise"],
    ) -> EditablePointwiseParams: ...
    @overload
    def compute_heuristics(
        self,
        scheduler_type: Literal[SchedulerType.inner_persistent, "inner_persistent"],
    ) -> EditableReductionParams: ...
    @overload
    def compute_heuristics(
        self,
        scheduler_type: Literal[SchedulerType.outer_persistent, "outer_persistent"],
    ) -> EditableReductionParams: ...
    @overload
    def compute_heuristics(
        self,
        scheduler_type: Literal[SchedulerType.inner_outer_persistent, "inner_outer_persistent"],
    ) -> EditableInnerOuterPersistentParams: ...
    @overload
    def compute_heuristics(
        self,
        scheduler_type: Literal[SchedulerType.expr_eval, "expr_eval"],
    ) -> EditableHeuristicParams: ...
    @overload
    def compute_heuristics(
        self,
        scheduler_type: Literal[SchedulerType.scan, "scan"],
    ) -> EditableScanParams: ...
    @overload
    def compute_heuristics(
        self,
        scheduler_type: SchedulerType | str,
    ) -> Any: ...
    @overload
    def compute_heuristics(
        self,
        fusion: FusionDefinition,
        scheduler_type: Literal[SchedulerType.reduction, "reduction"],
        inputs: Sequence[Any],
    ) -> EditableReductionParams: ...
    @overload
    def compute_heuristics(
        self,
        fusion: FusionDefinition,
        scheduler_type: Literal[SchedulerType.inner_outer, "inner_outer"],
        inputs: Sequence[Any],
    ) -> EditableInnerOuterParams: ...
    @overload
    def compute_heuristics(
        self,
        fusion: FusionDefinition,
        scheduler_type: Literal[SchedulerType.transpose, "transpose"],
        inputs: Sequence[Any],
    ) -> EditableTransposeParams: ...
    @overload
    def compute_heuristics(
        self,
        fusion: FusionDefinition,
        scheduler_type: Literal[SchedulerType.pointwise, "pointwise"],
        inputs: Sequence[Any],
    ) -> EditablePointwiseParams: ...
    @overload
    def compute_heuristics(
        self,
        fusion: FusionDefinition,
        scheduler_type: Literal[SchedulerType.inner_persistent, "inner_persistent"],
        inputs: Sequence[Any],
    ) -> EditableReductionParams: ...
    @overload
    def compute_heuristics(
        self,
        fusion: FusionDefinition,
        scheduler_type: Literal[SchedulerType.outer_persistent, "outer_persistent"],
        inputs: Sequence[Any],
    ) -> EditableReductionParams: ...
    @overload
    def compute_heuristics(
        self,
        fusion: FusionDefinition,
        scheduler_type: Literal[SchedulerType.inner_outer_persistent, "inner_outer_persistent"],
        inputs: Sequence[Any],
    ) -> EditableInnerOuterPersistentParams: ...
    @overload
    def compute_heuristics(
        self,
        fusion: FusionDefinition,
        scheduler_type: Literal[SchedulerType.expr_eval, "expr_eval"],
        inputs: Sequence[Any],
    ) -> EditableHeuristicParams: ...
    @overload
    def compute_heuristics(
        self,
        fusion: FusionDefinition,
        scheduler_type: Literal[SchedulerType.scan, "scan"],
        inputs: Sequence[Any],
    ) -> EditableScanParams: ...
    @overload
    def compute_heuristics(
        self,
        fusion: FusionDefinition,
        scheduler_type: SchedulerType | str,
        inputs: Sequence[Any],
    ) -> Any: ...

class TensorMethods:
    """Operators, and primitives on the tensor."""

    def __add__(self, b: Operand, /) -> Tensor: ...
    def __radd__(self, a: Number, /) -> Tensor: ...
    def __sub__(self, b: Operand, /) -> Tensor: ...
    def __rsub__(self, a: Number, /) -> Tensor: ...
    def __mul__(self, b: Operand, /) -> Tensor: ...
    def __rmul__(self, a: Number, /) -> Tensor: ...
    def __truediv__(self, b: Operand, /) -> Tensor: ...
    def __rtruediv__(self, a: Number, /) -> Tensor: ...
    def __mod__(self, b: Operand, /) -> Tensor: ...
    def __rmod__(self, a: Number, /) -> Tensor: ...
    def __pow__(self, exponent: Operand, /) -> Tensor: ...
    def __rpow__(self, base: Number, /) -> Tensor: ...
    def __and__(self, b: Operand, /) -> Tensor: ...
    def __rand__(self, a: Number, /) -> Tensor: ...
    def __or__(self, b: Operand, /) -> Tensor: ...
    def __ror__(self, a: Number, /) -> Tensor: ...
    def __xor__(self, b: Operand, /) -> Tensor: ...
    def __rxor__(self, a: Number, /) -> Tensor: ...
    def __lshift__(self, b: Operand, /) -> Tensor: ...
    def __rlshift__(self, a: Number, /) -> Tensor: ...
    def __rshift__(self, b: Operand, /) -> Tensor: ...
    def __rrshift__(self, a: Number, /) -> Tensor: ...
    def __matmul__(self, b: Tensor, /) -> Tensor: ...
    def __lt__(self, b: Operand, /) -> Tensor: ...
    def __le__(self, b: Operand, /) -> Tensor: ...
    def __gt__(self, b: Operand, /) -> Tensor: ...
    def __ge__(self, b: Operand, /) -> Tensor: ...
    def __neg__(self) -> Tensor: ...
    def __abs__(self) -> Tensor: ...
    def __invert__(self) -> Tensor: ...
    @overload  # type: ignore[override]
    def __eq__(self, other: Tensor, /) -> bool: ...
    @overload
    def __eq__(self, other: Scalar, /) -> Tensor: ...
    @overload
    def __eq__(self, other: Number | torch.Tensor, /) -> Tensor: ...
    @overload  # type: ignore[override]
    def __ne__(self, other: Tensor, /) -> bool: ...
    @overload
    def __ne__(self, other: Scalar, /) -> Tensor: ...
    @overload
    def __ne__(self, other: Number | torch.Tensor, /) -> Tensor: ...
    def __hash__(self) -> int: ...
    @overload
    def split(self, dim: int, factor: int, inner_split: bool = True) -> Tensor:
        """[.., n, ..] -> [.., ceilDiv(n, factor), factor, ..]; inner_split=False: the factor is outer."""
    @overload
    def split(self, axis: int, factor: int, inner_split: bool = True) -> Tensor: ...
    def shifted_split(self, dim: int, factor: int, aligned: Tensor, turn: int | None = None) -> Tensor:
        """[.., n, ..] -> [.., ceilDiv(n + factor - 1, factor), factor, ..], with each row's vectors aligned.

        The axis is the row of `aligned`, an input or output whose dimensions are those that `tensor` is
        computed along: its innermost dimension, or several merged. A row that starts s elements after a
        multiple of `factor` is shifted by s: point i is at [(i + s) // factor, (i + s) % factor]. The first
        and the last vector of a row have points outside of it, which are not computed.

        `turn`: a loop axis with one row per point. Rows at equal points start at the same distance from a
        multiple of `factor`: the axis is the inner result of a split of the rows by a constant. Then s
        depends only on this axis, so a loop over such rows has each column at one position.
        """
    @overload
    def merge(self, dim: int, inner: int | None = None) -> Tensor:
        """[.., a, b, ..] -> [.., a*b, ..]: dim and the next axis, or `inner`."""
    @overload
    def merge(self, axis_o: int, axis_i: int | None = None) -> Tensor: ...
    def reorder(self, old2new: Mapping[int, int]) -> Tensor:
        """[a, b, c] -> [b, c, a] with {0: 2}: the axes not named keep their order."""
    def swizzle(self, x: int, y: int) -> Tensor:
        """[.., x, y, ..] -> [.., x, y ^ x, ..] for two equal constant power-of-two extents."""
    def reverse(self, dim: int) -> Tensor:
        """[.., n, ..] -> [.., n, ..] from its last point to its first.

        The data that one loop read last is still in the L2 cache when the next loop reads it first.
        """
    def hold_part(self, again: Collection[Tensor], steps: int, pos: int) -> Tensor:
        """source -> load, again => source -> load -> held; source, held -> again; returns held.

        Shared memory holds the data that `load` loads in the first `steps` iterations of its loop at `pos`.
        `again`, which loads the same elements later, reads these from there and loads only the rest again.
        """
    def set_cache_op(self, cache_op: CacheOp) -> Tensor:
        """Sets the cache hint of a load from global memory, including loads by index, or of a store to it."""
    def parallelize(self, axis: int, parallel_type: ParallelType, pad: int = 1) -> Tensor:
        """Binds a loop axis; `pad` rounds its threads up to a multiple (32 fills warps)."""
    @overload
    def rfactor(self, dims: Sequence[int]) -> Tensor:
        """tensor[i, r0, r1] -> partial[i, r0, r1 reduced] then tensor[i, r0 reduced]; returns partial."""
    @overload
    def rfactor(self, axes: Sequence[int]) -> Tensor: ...
    def cache_after(
        self,
        op_type: LoadStoreOpType = LoadStoreOpType.set,
        cache_op: CacheOp = CacheOp.unspecified,
        cached_uses: Collection[Tensor] = (),
    ) -> Tensor:
        """tensor -> uses  =>  tensor -> copy -> uses (only those computing `cached_uses`, if given).

        `op_type`: of the copy; `set` is the only one yet. `cache_op`: of a load from global memory.
        """
    def cache_before(self, op_type: LoadStoreOpType = LoadStoreOpType.set) -> Tensor:
        """definition -> tensor  =>  definition -> copy -> tensor; returns the copy. `op_type`: `set`."""
    def cache_fork(self) -> Tensor:
        """An output with uses => a local tensor with a new output copied from it; returns the output."""
    def recompute(self, recomputed_uses: Collection[Tensor] = ()) -> list[Tensor]:
        """tensor -> a, b => tensor -> a, twin -> b: every use after the first computes it anew.

        With `recomputed_uses`, one twin serves those.
        """
    def allow_unaligned(self) -> Tensor:
        """Lets the vectors of a load from global memory to registers start at any element.

        Each vector is selected from the two aligned vectors that contain it. So neither the address nor the
        lengths of rows need to be multiples of a vector. Without a vectorized axis nothing changes.
        """
    def assume(self, dim: int, low: int, high: int) -> Tensor:
        """Assumes that the size of dimension `dim` is in [low, high]; values that follow are constants in the
        kernel.

        The kernel rejects a call with another size (automatic schedules then make another kernel).
        """
    def assume_multiple(self, dim: int, number: int) -> Tensor:
        """Assumes that the size of dimension `dim` is a multiple of `number`, so that vectors may cross it.

        The kernel rejects a call with another size (automatic schedules then make another kernel).
        """
    def set_memory_type(self, memory_type: MemoryType) -> Tensor:
        """Places an intermediate tensor in registers (local), shared or global memory.

        In global memory all blocks may read it. There is a grid barrier between a block's store and another
        block's read, so the launch is cooperative: all of its blocks must fit the GPU at once.
        """
    def store_along(self, dims: Sequence[int], padding: int = 0) -> Tensor:
        """Stores a shared tensor along these of its loop axes as they are now, outermost first.

        An intermediate tensor in global memory takes its dimensions in any order, before they are split.
        Other tensors are stored along all their loops, and accept no other order; so is a shared tensor
        without this call. Axes left out must be bound to blocks or be inlined loops. `padding`: unused
        elements after each point of the first axis, which distribute reads across rows over the banks.
        """
    def circular_buffer(self, stages: int, prefetch_distance: int = -1, pos: int = -1) -> Tensor:
        """Fills a shared tensor ahead of its readers by bulk copies, which one thread of the block starts.

        The tensor is copied from an input. In [.., n | run], with the bar at `pos`, the innermost axis is
        what one copy moves, contiguous in the input. The loops right of the bar form one stage, and the
        serial loops left of it count the stages. There is room for `stages` of them. `prefetch_distance`
        stages (negative: that many less than stages) are in flight, or have arrived, beyond those that are no
        longer read.
        """
    def warp_specialize(
        self,
        number_of_stages: int,
        prefetch_distance: int,
        parallel_type: ParallelType,
        num_registers: Sequence[int] | None = None,
        pos: int = -1,
    ) -> Tensor:
        """Like `circular_buffer`, with a separate warp that starts the copies, in addition to the block's
        others along an axis.

        `num_registers`: per thread of the warps that load, which are then four, and per thread of those that
        compute.
        """
    def set_allocation_as_loop(self) -> Tensor:
        """Stores a tensor in shared memory or registers along its loops, which is the default without
        `store_along`.

        An output has the layout of its definition: its loops must follow the order of its memory.
        """
    def prefetch(self) -> Tensor:
        """Loads a tensor into registers an iteration ahead of the serial loop that it is inlined into.

        Its load is in flight during the previous iteration. It takes twice the registers.
        """
    def accumulate_in_registers(self) -> Tensor:
        """reduction -> tensor in memory => reduction -> copy in registers -> tensor, in the same loops.

        `complete` does this for all reductions for which it was not called. Returns the copy.
        """
    def all_reduce(self) -> Tensor:
        """Gives the result of a reduction across blocks to all of them, which wait for each other.

        Without it, only the last block has the result, and no later axis can be bound to those blocks. The
        launch is cooperative: all of its blocks must fit the GPU at once.
        """
    @overload
    def transform_like(self, selected: Collection[Tensor] = ()) -> Tensor:
        """Replays the loop transforms of `tensor` on all (or the selected) tensors."""
    @overload
    def transform_like(self, selected_tensors: Collection[Tensor] = ()) -> Tensor: ...
    def bounded_transform_backward(
        self,
        pos: int,
        to: Collection[Tensor],
        propagate_parallel_type: bool = False,
    ) -> Tensor:
        """Replays the loops of `tensor` left of `pos` (-1: all) on its producers up to those in `to`.

        Only the tensors between these change. `propagate_parallel_type`: also binds their loops in the same
        way.
        """
    @overload
    def parallelize_like(
        self,
        pos: int = -1,
        selected: Collection[Tensor] = (),
        types: Collection[ParallelType] = (),
        propagate_padding: bool = True,
    ) -> Tensor:
        """Binds axes that match those of `tensor` left of `pos` in the same way; `types` restricts which."""
    @overload
    def parallelize_like(
        self,
        pos: int = -1,
        selected_tensors: Collection[Tensor] = (),
        selected_parallel_types: Collection[ParallelType] = (),
        propagate_padding: bool = True,
    ) -> Tensor: ...
    @overload
    def inline_at(
        self,
        pos: int = -1,
        best_effort: bool = False,
        selected: Collection[Tensor] = (),
    ) -> Tensor:
        """Computes all (or the selected) tensors inside `pos` loops that they share with consumers."""
    @overload
    def inline_at(
        self,
        pos: int = -1,
        best_effort: bool = False,
        selected_tensors: Collection[Tensor] = (),
    ) -> Tensor: ...

class ScalarMethods:
    """Operators."""

    @overload
    def __add__(self, b: ScalarLike, /) -> Scalar: ...
    @overload
    def __add__(self, b: Tensor, /) -> Tensor: ...
    def __radd__(self, a: Number, /) -> Scalar: ...
    @overload
    def __sub__(self, b: ScalarLike, /) -> Scalar: ...
    @overload
    def __sub__(self, b: Tensor, /) -> Tensor: ...
    def __rsub__(self, a: Number, /) -> Scalar: ...
    @overload
    def __mul__(self, b: ScalarLike, /) -> Scalar: ...
    @overload
    def __mul__(self, b: Tensor, /) -> Tensor: ...
    def __rmul__(self, a: Number, /) -> Scalar: ...
    @overload
    def __truediv__(self, b: ScalarLike, /) -> Scalar: ...
    @overload
    def __truediv__(self, b: Tensor, /) -> Tensor: ...
    def __rtruediv__(self, a: Number, /) -> Scalar: ...
    @overload
    def __mod__(self, b: ScalarLike, /) -> Scalar: ...
    @overload
    def __mod__(self, b: Tensor, /) -> Tensor: ...
    def __rmod__(self, a: Number, /) -> Scalar: ...
    @overload
    def __pow__(self, exponent: ScalarLike, /) -> Scalar: ...
    @overload
    def __pow__(self, exponent: Tensor, /) -> Tensor: ...
    def __rpow__(self, base: Number, /) -> Scalar: ...
    @overload
    def __and__(self, b: ScalarLike, /) -> Scalar: ...
    @overload
    def __and__(self, b: Tensor, /) -> Tensor: ...
    def __rand__(self, a: Number, /) -> Scalar: ...
    @overload
    def __or__(self, b: ScalarLike, /) -> Scalar: ...
    @overload
    def __or__(self, b: Tensor, /) -> Tensor: ...
    def __ror__(self, a: Number, /) -> Scalar: ...
    @overload
    def __xor__(self, b: ScalarLike, /) -> Scalar: ...
    @overload
    def __xor__(self, b: Tensor, /) -> Tensor: ...
    def __rxor__(self, a: Number, /) -> Scalar: ...
    @overload
    def __lshift__(self, b: ScalarLike, /) -> Scalar: ...
    @overload
    def __lshift__(self, b: Tensor, /) -> Tensor: ...
    def __rlshift__(self, a: Number, /) -> Scalar: ...
    @overload
    def __rshift__(self, b: ScalarLike, /) -> Scalar: ...
    @overload
    def __rshift__(self, b: Tensor, /) -> Tensor: ...
    def __rrshift__(self, a: Number, /) -> Scalar: ...
    @overload
    def __lt__(self, b: ScalarLike, /) -> Scalar: ...
    @overload
    def __lt__(self, b: Tensor, /) -> Tensor: ...
    @overload
    def __le__(self, b: ScalarLike, /) -> Scalar: ...
    @overload
    def __le__(self, b: Tensor, /) -> Tensor: ...
    @overload
    def __gt__(self, b: ScalarLike, /) -> Scalar: ...
    @overload
    def __gt__(self, b: Tensor, /) -> Tensor: ...
    @overload
    def __ge__(self, b: ScalarLike, /) -> Scalar: ...
    @overload
    def __ge__(self, b: Tensor, /) -> Tensor: ...
    def __neg__(self) -> Scalar: ...
    def __abs__(self) -> Scalar: ...
    def __invert__(self) -> Scalar: ...
    @overload  # type: ignore[override]
    def __eq__(self, other: Scalar, /) -> bool: ...
    @overload
    def __eq__(self, other: Tensor, /) -> Tensor: ...
    @overload
    def __eq__(self, other: Number | torch.Tensor, /) -> Scalar: ...
    @overload  # type: ignore[override]
    def __ne__(self, other: Scalar, /) -> bool: ...
    @overload
    def __ne__(self, other: Tensor, /) -> Tensor: ...
    @overload
    def __ne__(self, other: Number | torch.Tensor, /) -> Scalar: ...
    def __hash__(self) -> int: ...

class EditableLaunchParams:
    """A LaunchParams whose fields may be assigned."""

    gdimx: int
    gdimy: int
    gdimz: int
    bdimx: int
    bdimy: int
    bdimz: int
    @property
    def threads(self) -> int: ...
    def update(self, fields: Mapping[str, Any]) -> None: ...
    def freeze(self) -> LaunchParams: ...

class EditableCompileParams:
    """A CompileParams whose fields may be assigned."""

    index_type: DataType | None
    maxrregcount: int
    enable_magic_zero: bool
    enable_ptxas_verbose: bool
    device: str | None
    include_paths: tuple[str, ...]
    def update(self, fields: Mapping[str, Any]) -> None: ...
    def freeze(self) -> CompileParams: ...

class EditableHeuristicParams:
    """A HeuristicParams whose fields may be assigned."""

    @property
    def lparams(self) -> EditableLaunchParams: ...
    @lparams.setter
    def lparams(self, value: LaunchParams | EditableLaunchParams) -> None: ...
    @property
    def cparams(self) -> EditableCompileParams: ...
    @cparams.setter
    def cparams(self, value: CompileParams | EditableCompileParams) -> None: ...
    reason: str
    def update(self, fields: Mapping[str, Any]) -> None: ...
    def freeze(self) -> HeuristicParams: ...

class EditableInnerOuterParams:
    """A InnerOuterParams whose fields may be assigned."""

    @property
    def lparams(self) -> EditableLaunchParams: ...
    @lparams.setter
    def lparams(self, value: LaunchParams | EditableLaunchParams) -> None: ...
    @property
    def cparams(self) -> EditableCompileParams: ...
    @cparams.setter
    def cparams(self, value: CompileParams | EditableCompileParams) -> None: ...
    reason: str
    vectorization_factor: int
    unroll_factor: int
    streams_inputs: bool
    prefetch_rows: bool
    rows_per_block: int
    assumed_sizes: tuple[int, ...]
    @property
    def columns_per_block(self) -> int: ...
    @property
    def copies(self) -> int: ...
    @property
    def elements_held(self) -> int: ...
    @property
    def rows_in_flight(self) -> int: ...
    @property
    def rows_per_thread(self) -> int: ...
    @property
    def vector_widths(self) -> tuple[int, ...]: ...
    def update(self, fields: Mapping[str, Any]) -> None: ...
    def freeze(self) -> InnerOuterParams: ...

class EditableInnerOuterPersistentParams:
    """A InnerOuterPersistentParams whose fields may be assigned."""

    @property
    def lparams(self) -> EditableLaunchParams: ...
    @lparams.setter
    def lparams(self, value: LaunchParams | EditableLaunchParams) -> None: ...
    @property
    def cparams(self) -> EditableCompileParams: ...
    @cparams.setter
    def cparams(self, value: CompileParams | EditableCompileParams) -> None: ...
    reason: str
    vectorization_factor: int
    batches_per_block_inner_reduction: int
    project_persistent_buffers: bool
    prefetch_rows: bool
    columns_a_thread: int
    columns_in_shared_memory: bool
    circular_stages: int
    shift_rows: bool
    blocks_per_cluster: int
    unaligned_inputs: tuple[int, ...]
    assumed_reduction_sizes: tuple[int, ...]
    keeps_inputs: bool
    @property
    def copies(self) -> int: ...
    @property
    def elements_a_warp(self) -> int: ...
    @property
    def elements_held(self) -> int: ...
    @property
    def places_before(self) -> int: ...
    @property
    def vector_widths(self) -> tuple[int, ...]: ...
    def update(self, fields: Mapping[str, Any]) -> None: ...
    def freeze(self) -> InnerOuterPersistentParams: ...

class EditableGemmTile:
    """A GemmTile whose fields may be assigned."""

    m: int
    n: int
    k: int
    def update(self, fields: Mapping[str, Any]) -> None: ...
    def freeze(self) -> GemmTile: ...

class EditableMatMulTileOptions:
    """A MatMulTileOptions whose fields may be assigned."""

    @property
    def cta_tile(self) -> EditableGemmTile: ...
    @cta_tile.setter
    def cta_tile(self, value: GemmTile | EditableGemmTile) -> None: ...
    @property
    def warp_tile(self) -> EditableGemmTile: ...
    @warp_tile.setter
    def warp_tile(self, value: GemmTile | EditableGemmTile) -> None: ...
    def update(self, fields: Mapping[str, Any]) -> None: ...
    def freeze(self) -> MatMulTileOptions: ...

class EditableCircularBufferOptions:
    """A CircularBufferOptions whose fields may be assigned."""

    circular_buffer_smem_write: bool
    circular_buffer_smem_read: bool
    smem_circular_buffer_stage: int
    smem_circular_buffer_prefetch_gap: int
    def update(self, fields: Mapping[str, Any]) -> None: ...
    def freeze(self) -> CircularBufferOptions: ...

class EditableSupportedVectorization:
    """A SupportedVectorization whose fields may be assigned."""

    a: int
    b: int
    epilogue: int
    def update(self, fields: Mapping[str, Any]) -> None: ...
    def freeze(self) -> SupportedVectorization: ...

class EditableClusterDims:
    """A ClusterDims whose fields may be assigned."""

    m: int
    n: int
    def update(self, fields: Mapping[str, Any]) -> None: ...
    def freeze(self) -> ClusterDims: ...

class EditableMmaMacro:
    """A MmaMacro whose fields may be assigned."""

    arch: MmaMacroArch
    m: int
    n: int
    k: int
    def update(self, fields: Mapping[str, Any]) -> None: ...
    def freeze(self) -> MmaMacro: ...

class EditableMatmulParams:
    """A MatmulParams whose fields may be assigned."""

    @property
    def lparams(self) -> EditableLaunchParams: ...
    @lparams.setter
    def lparams(self, value: LaunchParams | EditableLaunchParams) -> None: ...
    @property
    def cparams(self) -> EditableCompileParams: ...
    @cparams.setter
    def cparams(self, value: CompileParams | EditableCompileParams) -> None: ...
    reason: str
    @property
    def tile_sizes(self) -> EditableMatMulTileOptions: ...
    @tile_sizes.setter
    def tile_sizes(self, value: MatMulTileOptions | EditableMatMulTileOptions) -> None: ...
    @property
    def circular_buffer_options(self) -> EditableCircularBufferOptions: ...
    @circular_buffer_options.setter
    def circular_buffer_options(
        self,
        value: CircularBufferOptions | EditableCircularBufferOptions,
    ) -> None: ...
    @property
    def supported_vec_size(self) -> EditableSupportedVectorization: ...
    @supported_vec_size.setter
    def supported_vec_size(self, value: SupportedVectorization | EditableSupportedVectorization) -> None: ...
    async_gmem_load_operands: bool
    grid_traversal_factor: tuple[int, int]
    use_smem_epilogue: bool
    use_ldst_matrix: bool
    promote_prologue_smem_reuse: bool
    splitk_factor: int
    tiling_strategy: MatmulTilingStrategy
    buffering_loop_level: MatmulBufferingLoopLevel
    circular_buffering_strategy: MatmulCircularBufferingStrategy
    cta_order: MatmulTileRasterizationOrder
    @property
    def cluster_dims(self) -> EditableClusterDims: ...
    @cluster_dims.setter
    def cluster_dims(self, value: ClusterDims | EditableClusterDims) -> None: ...
    @property
    def mma_macro(self) -> EditableMmaMacro: ...
    @mma_macro.setter
    def mma_macro(self, value: MmaMacro | EditableMmaMacro) -> None: ...
    def update(self, fields: Mapping[str, Any]) -> None: ...
    def freeze(self) -> MatmulParams: ...

class EditablePointwiseParams:
    """A PointwiseParams whose fields may be assigned."""

    @property
    def lparams(self) -> EditableLaunchParams: ...
    @lparams.setter
    def lparams(self, value: LaunchParams | EditableLaunchParams) -> None: ...
    @property
    def cparams(self) -> EditableCompileParams: ...
    @cparams.setter
    def cparams(self, value: CompileParams | EditableCompileParams) -> None: ...
    reason: str
    break_point: int
    split_block: bool
    split_grid_y_dim: bool
    flip_grid_binding: bool
    vectorization_factor: int
    unroll_factor_inner: int
    unroll_factor_outer: int
    assumed_sizes: tuple[int, ...]
    vectorized_dim: int
    unaligned_inputs: tuple[int, ...]
    keeps_aligned: bool
    picked_inputs: tuple[int, ...]
    shift_rows: bool
    keeps_inputs: bool
    @property
    def copies(self) -> int: ...
    @property
    def elements_held(self) -> int: ...
    @property
    def vector_widths(self) -> tuple[int, ...]: ...
    def update(self, fields: Mapping[str, Any]) -> None: ...
    def freeze(self) -> PointwiseParams: ...

class EditableReductionParams:
    """A ReductionParams whose fields may be assigned."""

    @property
    def lparams(self) -> EditableLaunchParams: ...
    @lparams.setter
    def lparams(self, value: LaunchParams | EditableLaunchParams) -> None: ...
    @property
    def cparams(self) -> EditableCompileParams: ...
    @cparams.setter
    def cparams(self, value: CompileParams | EditableCompileParams) -> None: ...
    reason: str
    fastest_dim: bool
    persistent_kernel: bool
    project_persistent_buffers: bool
    persistent_in_shared_memory: bool
    unroll_factor_inner_reduction: int
    unroll_factor_top_of_vectorization: int
    vectorize_inner_reduction: bool
    pad_inner_reduction_to_warp: bool
    batches_per_block_inner_reduction: int
    blocks_per_cluster: int
    assumed_reduction_sizes: tuple[int, ...]
    shift_rows: bool
    unaligned_inputs: tuple[int, ...]
    vectorized_dims: tuple[int, ...]
    streams_inputs: bool
    keeps_inputs: bool
    loads_ahead: bool
    held_steps: int
    sweeps_backward: bool
    streams_last_sweep: bool
    prefetches_steps: bool
    circular_stages: int
    warp_specialized: bool
    weights_in_shared_memory: bool
    persistent_blocks: int
    staged_vector: int
    whole_blocks: bool
    schedule_3d: bool
    lanes_down_columns: bool
    joined_rows: int
    vector_down_columns: int
    tiles_in_shared_memory: bool
    unroll_factor_iter_dom: int
    vectorize_iter_dom: bool
    cross_block_inner_reduction: bool
    cross_grid_inner_reduction: bool
    multiple_reds_per_blk: bool
    block_dim_inner_reduction: ParallelType
    grid_dim_inner_reduction: ParallelType
    block_dim_iter_dom: ParallelType
    grid_dim_iter_dom: ParallelType
    flip_grid: bool
    split_grid_dim_inner_reduction: bool
    split_grid_dim_iter_dom_inner: bool
    split_grid_dim_iter_dom_outer: bool
    cross_block_outer_reduction: bool
    cross_grid_outer_reduction: bool
    batches_per_block_outer_reduction: int
    unroll_factor_outer_reduction: int
    block_dim_outer_reduction: ParallelType
    grid_dim_outer_reduction: ParallelType
    compute_persistent_buffer_with_first_consumer: bool
    static_bdimx: bool
    static_bdimy: bool
    combined_inner_outer: bool
    tidx_for_outer_reduction: bool
    pad_outer_reduction_to_warp: bool
    combined_split_grid_inner_dim: bool
    vectorization_factor_outer: int
    vectorization_factor_tmp_gmem_write: int
    block_dim_inner_reduction_extra: ParallelType
    @property
    def _is_bound(self) -> bool: ...
    @property
    def _reduces_x(self) -> bool: ...
    @property
    def copies(self) -> int: ...
    @property
    def elements_a_thread(self) -> int: ...
    @property
    def elements_held(self) -> int: ...
    @property
    def has_whole_rows(self) -> bool: ...
    @property
    def holds_batches(self) -> bool: ...
    @property
    def joins_rows(self) -> bool: ...
    @property
    def padded_threads(self) -> int: ...
    @property
    def places_before(self) -> int: ...
    @property
    def reads_aligned_vectors(self) -> bool: ...
    @property
    def rows_in_flight(self) -> int: ...
    @property
    def rows_side_by_side(self) -> int: ...
    @property
    def threads_step(self) -> int: ...
    @property
    def tile(self) -> tuple[int, int]: ...
    @property
    def vector_widths(self) -> tuple[int, ...]: ...
    def update(self, fields: Mapping[str, Any]) -> None: ...
    def freeze(self) -> ReductionParams: ...

class EditableScanParams:
    """A ScanParams whose fields may be assigned."""

    @property
    def lparams(self) -> EditableLaunchParams: ...
    @lparams.setter
    def lparams(self, value: LaunchParams | EditableLaunchParams) -> None: ...
    @property
    def cparams(self) -> EditableCompileParams: ...
    @cparams.setter
    def cparams(self, value: CompileParams | EditableCompileParams) -> None: ...
    reason: str
    fastest_dim: bool
    vectorization_factor: int
    unroll_factor: int
    prefetches_steps: bool
    shift_rows: bool
    unaligned_inputs: tuple[int, ...]
    @property
    def elements_held(self) -> int: ...
    @property
    def threads_that_scan(self) -> int: ...
    @property
    def vector_widths(self) -> tuple[int, ...]: ...
    def update(self, fields: Mapping[str, Any]) -> None: ...
    def freeze(self) -> ScanParams: ...

class EditableTransposeParams:
    """A TransposeParams whose fields may be assigned."""

    @property
    def lparams(self) -> EditableLaunchParams: ...
    @lparams.setter
    def lparams(self, value: LaunchParams | EditableLaunchParams) -> None: ...
    @property
    def cparams(self) -> EditableCompileParams: ...
    @cparams.setter
    def cparams(self, value: CompileParams | EditableCompileParams) -> None: ...
    reason: str
    tile_size1: int
    tile_size2: int
    vectorize_factor1: int
    vectorize_factor2: int
    dims_merged_with_1: tuple[int, ...]
    dims_merged_with_2: tuple[int, ...]
    assumed_sizes: tuple[int, ...]
    split_before_tiling: tuple[Any, ...]
    use_tma_load: bool
    @property
    def elements_held(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def vector_widths(self) -> tuple[int, ...]: ...
    def update(self, fields: Mapping[str, Any]) -> None: ...
    def freeze(self) -> TransposeParams: ...
