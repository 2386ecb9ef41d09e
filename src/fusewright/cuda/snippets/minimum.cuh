// requires: flip_sign
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
__device__ __forceinline__ int minimum(int a, int b) {
  unsigned result;
  asm("min.u32 %0, %1, %2;" : "=r"(result) : "r"(flip_sign(a)), "r"(flip_sign(b)));
  return flip_sign(result);
}
#endif

}  // namespace fw
