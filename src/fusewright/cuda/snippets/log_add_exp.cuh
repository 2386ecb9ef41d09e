// requires: approximate
// log(e^a + e^b), NaN if either operand is.

namespace fw {

// log(1 + x) / x of x from 0 to 1, off by 3 half units at most: Chebyshev's interpolation of degree 8.
__device__ __forceinline__ float log1p_share(float x) {
  float share = 0.005253458f;
  share = fmaf(share, x, -0.029588507f);
  share = fmaf(share, x, 0.07836167f);
  share = fmaf(share, x, -0.1367477f);
  share = fmaf(share, x, 0.1911143f);
  share = fmaf(share, x, -0.24844369f);
  share = fmaf(share, x, 0.3331927f);
  share = fmaf(share, x, -0.49999502f);
  return fmaf(share, x, 1.0f);
}

// The difference of equal operands is 0, of infinite ones too; it is NaN if an operand is.
__device__ __forceinline__ float log_add_exp(float a, float b) {
  const float less = a == b ? 0.0f : -fabsf(a - b);
  const float share = approximate_exp2(less * 1.44269504f);
  return fmaf(share, log1p_share(share), fmaxf(a, b));
}
__device__ __forceinline__ double log_add_exp(double a, double b) {
  return ::fmax(a, b) + ::log1p(::exp(a == b ? 0.0 : -::fabs(a - b)));
}

}  // namespace fw
