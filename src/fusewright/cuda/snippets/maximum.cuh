// requires:
// The maximum; NaN if either operand is.

namespace fw {

__device__ __forceinline__ float maximum(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
__device__ __forceinline__ double maximum(double a, double b) { return a > b || a != a ? a : b; }

}  // namespace fw
