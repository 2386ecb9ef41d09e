// requires:
// A float rounded to a bfloat16, as a float. With zeros as the other half of a pair this is one instruction
// at the rate of arithmetic; cvt.rn.bf16.f32 of a value that is widened again is F2F, at a quarter of that.

namespace fw {

__device__ __forceinline__ float rounded_bfloat16(float value) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(value), "f"(0.0f));
  return __uint_as_float(pair);
}

}  // namespace fw
