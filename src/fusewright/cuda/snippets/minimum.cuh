// requires:
// The minimum; NaN if either operand is.

namespace fw {

__device__ __forceinline__ float minimum(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
__device__ __forceinline__ double minimum(double a, double b) { return a < b || a != a ? a : b; }

template <class T>
__device__ __forceinline__ T minimum(T a, T b) { return a < b ? a : b; }
#ifdef __CUDA_ARCH__
// Where ptxas (13.0 at least) joins two minima of signed integers to one of three operands (VIMNMX3), it drops the
// negation of the middle one, also if they are written as comparisons. Unsigned ones are right.
__device__ __forceinline__ int minimum(int a, int b) {
  const unsigned sign = 0x80000000u;
  unsigned result;
  asm("min.u32 %0, %1, %2;" : "=r"(result) : "r"(unsigned(a) ^ sign), "r"(unsigned(b) ^ sign));
  return int(result ^ sign);
}
#endif

}  // namespace fw
