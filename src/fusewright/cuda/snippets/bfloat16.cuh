// requires:
// The upper half of a float, for storage only: arithmetic is done in float.

namespace fw {

struct alignas(2) bfloat16 {
  unsigned short bits;

  bfloat16() = default;
  __device__ explicit bfloat16(float value) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  }
  __device__ operator float() const { return __uint_as_float(unsigned(bits) << 16); }
};

}  // namespace fw
