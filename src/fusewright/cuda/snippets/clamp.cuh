// requires: maximum, minimum
// x moved into [low, high]. NaN if x or a bound is; with low > high the result is high.
// Bounds are the same for all elements, so a thread compares each with itself once, and a literal one never.

namespace fw {

template <class T>
__device__ __forceinline__ T clamp(T x, T low, T high) {
  T raised = x < low || low != low ? low : x;
  return raised > high || high != high ? high : raised;
}
__device__ __forceinline__ int clamp(int x, int low, int high) { return minimum(maximum(x, low), high); }

}  // namespace fw
