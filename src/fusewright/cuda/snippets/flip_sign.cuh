// requires:
// Signed integers in the order of unsigned ones, and back. The extrema of signed integers are found so: where ptxas
// (13.0 at least) joins two of them to one of three operands (VIMNMX3), it drops the negation of the middle one, however
// they are written. Unsigned ones are right. (What a definition writes with `where` is not changed.)

namespace fw {

__device__ __forceinline__ unsigned flip_sign(int x) { return unsigned(x) ^ 0x80000000u; }
__device__ __forceinline__ int flip_sign(unsigned x) { return int(x ^ 0x80000000u); }

}  // namespace fw
