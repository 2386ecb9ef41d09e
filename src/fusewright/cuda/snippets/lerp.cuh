// requires:
// Linear interpolation from the nearer end, so that weight 1 gives exactly `end`.

namespace fw {

template <class T>
__device__ __forceinline__ T lerp(T start, T end, T weight) {
  T distance = end - start;
  return weight < T(0.5) ? start + weight * distance : end - distance * (T(1) - weight);
}

}  // namespace fw
