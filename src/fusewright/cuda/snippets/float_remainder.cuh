// requires:
// Remainders of floats: fmod, and one with the sign of the divisor, as Python's %.

namespace fw {

template <class T> __device__ __forceinline__ T float_fmod(T a, T b) { return ::fmod(a, b); }

// Quotients below 2^20 are found without a branch. That by an approximate reciprocal is off by one at most, the sum of a
// product that is not rounded tells which way, and the remainder by the right one is exact.
template <> __device__ __forceinline__ float float_fmod<float>(float a, float b) {
  const float x = fabsf(a), y = fabsf(b);
  if (!(y > 1e-30f && y < 1e30f && x < y * 1048576.0f)) return ::fmodf(a, b);
  float quotient = truncf(__fdividef(x, y));
  const float rest = fmaf(-quotient, y, x);
  quotient += rest < 0.0f ? -1.0f : rest >= y ? 1.0f : 0.0f;
  return copysignf(fmaf(-quotient, y, x), a);
}

template <class T> __device__ __forceinline__ T float_remainder(T a, T b) {
  const T rest = float_fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

}  // namespace fw
