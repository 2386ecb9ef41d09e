// requires:
// The minimum; NaN if either operand is.

namespace fw {

__device__ __forceinline__ float minimum(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
__device__ __forceinline__ double minimum(double a, double b) { return a < b || a != a ? a : b; }

}  // namespace fw
