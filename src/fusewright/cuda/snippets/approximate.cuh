// requires:
// The machine's own exponential, logarithm and reciprocal: results and operands below 2^-126 count as zero, but for the
// logarithm's. A host, where tests run this text, has its library's.

namespace fw {

__device__ __forceinline__ float approximate_exp2(float x) {
#ifdef __CUDA_ARCH__
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return exp2f(x);
#endif
}

__device__ __forceinline__ float approximate_reciprocal(float x) {
#ifdef __CUDA_ARCH__
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return 1.0f / x;
#endif
}

__device__ __forceinline__ float approximate_log2(float x) {
#ifdef __CUDA_ARCH__
  float result;
  asm("lg2.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return log2f(x);
#endif
}

// Near 0, where the digits of 1 + f cancel, the first terms of the series: as a product, whose sign is that of -0.
__device__ __forceinline__ float approximate_expm1(float x) {
  const float near = x * (1.0f + x * (0.5f + x * 0.16666667f));
  const float far = approximate_exp2(x * 1.442695f) - 1.0f;
  return fabsf(x) < 0.03125f ? near : far;
}

__device__ __forceinline__ float approximate_log1p(float x) {
  const float near = x - x * x * (0.5f - x * (0.33333333f - x * 0.25f));
  const float far = approximate_log2(1.0f + x) * 0.69314718f;
  return fabsf(x) < 0.0625f ? near : far;
}

// 1 - x is exact there, so that the digits of a logarithm near 0 are those of its series.
__device__ __forceinline__ float approximate_log(float x) {
  const float above = x - 1.0f;
  const float near = above - above * above * (0.5f - above * (0.33333333f - above * 0.25f));
  const float far = approximate_log2(x) * 0.69314718f;
  return fabsf(above) < 0.0625f ? near : far;
}

// Has no way of its own for what a first guess does not round correctly, which is a branch for each element.
__device__ __forceinline__ float approximate_sqrt(float x) {
#ifdef __CUDA_ARCH__
  float result;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return sqrtf(x);
#endif
}

__device__ __forceinline__ float approximate_tanh(float x) {
  const float near = x * (1.0f - x * x * 0.33333333f);
  const float far = 1.0f - 2.0f * approximate_reciprocal(1.0f + approximate_exp2(x * 2.88539f));
  return fabsf(x) < 0.0625f ? near : far;
}

// x^e for an e that is no integer: NaN of what is negative, but for -infinity.
__device__ __forceinline__ float approximate_pow(float x, float e) {
  const float power = approximate_exp2(e * approximate_log2(x));
  return x < -3.4028235e38f ? (e > 0.0f ? -x : 0.0f) : power;
}

// x^e for any e. The error of a logarithm near 1, which is absolute, grows by the exponent, so that this is near for those
// up to 4; other powers, and those of what is not positive, are computed in full.
__device__ __forceinline__ float approximate_power(float x, float e) {
  if (x > 0.0f && x <= 3.4028235e38f && fabsf(e) <= 4.0f) return approximate_exp2(e * approximate_log2(x));
  return ::powf(x, e);
}

// x / (1 + e^-x) from e^(x / 2) and its inverse, which keep the digits of a result that is small where sigmoid(x) is 0;
// of x beyond 100 it is x. The quotient comes first: x times the root is beyond the largest number from 6e16 on.
__device__ __forceinline__ float approximate_silu(float x) {
  const float exponent = fminf(x, 100.0f) * 0.72134752f;
  const float root = approximate_exp2(exponent), inverse = approximate_exp2(-exponent);
  return x * approximate_reciprocal(root + inverse) * root;
}

}  // namespace fw
