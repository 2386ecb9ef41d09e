// requires:
// Sines, cosines and tangents in Float whose way for large numbers is one function that all uses share: CUDA
// has a copy of it, most of the instructions, at each use. Below the bound ::sinf knows that it is not needed.

namespace fw {

constexpr float large_angle = 105615.0f;

__device__ __noinline__ float sin_of_large(float x) { return ::sinf(x); }
__device__ __noinline__ float cos_of_large(float x) { return ::cosf(x); }
__device__ __noinline__ float tan_of_large(float x) { return ::tanf(x); }

__device__ __forceinline__ float sin(float x) {
  return ::fabsf(x) >= large_angle ? sin_of_large(x) : ::sinf(x);
}
__device__ __forceinline__ float cos(float x) {
  return ::fabsf(x) >= large_angle ? cos_of_large(x) : ::cosf(x);
}
__device__ __forceinline__ float tan(float x) {
  return ::fabsf(x) >= large_angle ? tan_of_large(x) : ::tanf(x);
}
__device__ __forceinline__ double sin(double x) { return ::sin(x); }
__device__ __forceinline__ double cos(double x) { return ::cos(x); }
__device__ __forceinline__ double tan(double x) { return ::tan(x); }

}  // namespace fw
