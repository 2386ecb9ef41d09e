// requires: flip_sign
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
__device__ __forceinline__ int maximum(int a, int b) {
  unsigned result;
  asm("max.u32 %0, %1, %2;" : "=r"(result) : "r"(flip_sign(a)), "r"(flip_sign(b)));
  return flip_sign(result);
}
#endif

}  // namespace fw
