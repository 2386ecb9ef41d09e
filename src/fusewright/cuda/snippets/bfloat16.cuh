// requires:
// The upper half of a float, for storage only: arithmetic is done in float.

namespace fw {

struct alignas(2) bfloat16 {
  unsigned short bits;

  bfloat16() = default;
  __device__ explicit bfloat16(float value) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  }
  // Two halves of a register, not a shift: the upper element of a pair is then one instruction, the lower one too.
  __device__ operator float() const {
    float value;
    asm("mov.b32 %0, {%1, %2};" : "=f"(value) : "h"((unsigned short)0), "h"(bits));
    return value;
  }
};

// N values, an even number of them, two at a time.
template <int N> __device__ __forceinline__ void convert(bfloat16* to, const float* from) {
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(from[i + 1]), "f"(from[i]));
    memcpy(&to[i], &pair, sizeof(pair));
  }
}

}  // namespace fw
