// requires: approximate
// 1 / (1 + e^-x), from e^-|x|, which does not overflow and keeps the digits of a small result.

namespace fw {

// e^-|x| as value * scale, of which the scale alone is small: a product with `value` first keeps its digits.
struct decay {
  float value, scale;

  // -|x| log2(e) is a whole number down to -126, which becomes the exponent of `scale`, and the rest.
  __device__ __forceinline__ explicit decay(float x) {
    const float magnitude = -fabsf(x);
    // Adding 2^23 and a half of it leaves a whole number in the low bits.
    const float biased = __fmaf_rd(__saturatef(fmaf(magnitude, 1.44269504f / 252.0f, 0.5f)), 252.0f, 12582913.0f);
    const float rest = approximate_exp2(fmaf(magnitude, 1.44269504f, -(biased - 12583039.0f)));
    // The digits of log2(e) that a float lacks; beyond 104 all is 0.
    value = fmaf(rest, fmaxf(magnitude, -104.0f) * 1.33497586e-8f, rest);
    scale = __int_as_float(__float_as_int(biased) << 23);
  }
};

template <class T>
__device__ __forceinline__ T sigmoid(T x) {
  const T e = ::exp(-::fabs(x));
  return (x < T(0) ? e : T(1)) / (T(1) + e);
}
__device__ __forceinline__ float sigmoid(float x) {
  const decay e(x);
  const float inverse = approximate_reciprocal(fmaf(e.value, e.scale, 1.0f));
  return x < 0.0f ? inverse * e.value * e.scale : inverse;
}

}  // namespace fw
