// requires: sigmoid, float_limits
// x / (1 + e^-x), of which e^x times x is all that is left where sigmoid has few digits.

namespace fw {

template <class T>
__device__ __forceinline__ T silu(T x) {
  if (!(x < -float_limits<T>::smallest_sigmoid)) return x * sigmoid(x);
  const T root = ::exp(x / 2);
  return isinf(x) ? x * root : x * root * root;
}
__device__ __forceinline__ float silu(float x) {
  const decay e(x);
  const float quotient = x * approximate_reciprocal(fmaf(e.value, e.scale, 1.0f));
  return x < 0.0f ? quotient * e.value * e.scale : quotient;
}

}  // namespace fw
