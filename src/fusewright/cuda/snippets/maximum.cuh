// requires:
// The maximum; NaN if either operand is.

namespace fw {

__device__ __forceinline__ float maximum(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
__device__ __forceinline__ double maximum(double a, double b) { return a > b || a != a ? a : b; }

template <class T>
__device__ __forceinline__ T maximum(T a, T b) { return a > b ? a : b; }
#ifdef __CUDA_ARCH__
// Where ptxas (13.0 at least) joins two maxima of signed integers to one of three operands (VIMNMX3), it drops the
// negation of the middle one, also if they are written as comparisons. Unsigned ones are right.
__device__ __forceinline__ int maximum(int a, int b) {
  const unsigned sign = 0x80000000u;
  unsigned result;
  asm("max.u32 %0, %1, %2;" : "=r"(result) : "r"(unsigned(a) ^ sign), "r"(unsigned(b) ^ sign));
  return int(result ^ sign);
}
#endif

}  // namespace fw
