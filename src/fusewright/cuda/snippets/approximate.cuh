// requires:
// The machine's own exponential and reciprocal: results and operands below 2^-126 count as zero. A host, where tests run
// this text, has its library's.

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

// x / (1 + e^-x) from e^(x / 2) and its inverse, which keep the digits of a result that is small where sigmoid(x) is 0;
// of x beyond 100 it is x. The quotient comes first: x times the root is beyond the largest number from 6e16 on.
__device__ __forceinline__ float approximate_silu(float x) {
  const float exponent = fminf(x, 100.0f) * 0.72134752f;
  const float root = approximate_exp2(exponent), inverse = approximate_exp2(-exponent);
  return x * approximate_reciprocal(root + inverse) * root;
}

}  // namespace fw
