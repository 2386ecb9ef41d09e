// requires: maximum minimum
// x moved into [low, high]. NaN if x or a bound is; with low > high the result is high.

namespace fw {

template <class T>
__device__ __forceinline__ T clamp(T x, T low, T high) {
  T raised = x < low ? low : x;
  return raised > high ? high : raised;
}

// A bound that is infinite is none. The compiler drops a literal one; it cannot look into `maximum`.
__device__ __forceinline__ float clamp(float x, float low, float high) {
  const float infinity = __int_as_float(0x7f800000);
  const float raised = low == -infinity ? x : maximum(x, low);
  return high == infinity ? raised : minimum(raised, high);
}
__device__ __forceinline__ double clamp(double x, double low, double high) {
  return minimum(maximum(x, low), high);
}

}  // namespace fw
