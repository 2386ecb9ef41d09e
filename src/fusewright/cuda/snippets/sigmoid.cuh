// requires:
// 1 / (1 + e^-x), from e^-|x|, which does not overflow and keeps the digits of a small result.

namespace fw {

template <class T>
__device__ __forceinline__ T sigmoid(T x) {
  const T e = ::exp(-::fabs(x));
  return (x < T(0) ? e : T(1)) / (T(1) + e);
}

}  // namespace fw
