// requires: approximate
// Half of the complementary error function: erfc(|z|) / 2 = t 2^(-z^2 log2(e) + q(t)) with t = 1 / (1 + 3/8 |z|). The
// polynomial q is the minimax fit of degree 6 for |z| up to 9.4, beyond which the result is below 2^-126; the fit is
// off by 2^-19.5, relative.

namespace fw {

__device__ __forceinline__ float half_erfc(float z) {
  const float t = approximate_reciprocal(1.0f + 0.375f * fabsf(z));
  float q = 0.40817034f;
  q = q * t + -1.4480356f;
  q = q * t + 1.5184743f;
  q = q * t + -0.49724317f;
  q = q * t + 0.85026926f;
  q = q * t + 1.406882f;
  q = q * t + -3.238519f;
  const float tail = t * approximate_exp2(q - z * z * 1.442695f);
  return z < 0 ? 1.0f - tail : tail;
}

}  // namespace fw
