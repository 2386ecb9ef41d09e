// requires:
// Maps signed integers to unsigned ones in the same order, and back. Minima and maxima of signed integers are computed
// as unsigned ones: ptxas (13.0 at least) fuses two signed ones into one instruction with three operands (VIMNMX3) and
// loses the negation of the middle operand. `where(a < b, a, b)` still becomes the signed instruction.

namespace fw {

__device__ __forceinline__ unsigned flip_sign(int x) { return unsigned(x) ^ 0x80000000u; }
__device__ __forceinline__ int flip_sign(unsigned x) { return int(x ^ 0x80000000u); }

}  // namespace fw
