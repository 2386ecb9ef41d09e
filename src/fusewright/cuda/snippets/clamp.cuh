// requires:
// x moved into [low, high]. NaN stays NaN; with low > high the result is high.

namespace fw {

template <class T>
__device__ __forceinline__ T clamp(T x, T low, T high) {
  T raised = x < low ? low : x;
  return raised > high ? high : raised;
}

}  // namespace fw
