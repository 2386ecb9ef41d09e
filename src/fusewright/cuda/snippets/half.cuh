// requires:
// IEEE binary16, for storage only: arithmetic is done in float.

namespace fw {

struct alignas(2) half {
  unsigned short bits;

  half() = default;
  __device__ explicit half(float value) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value)); }
  __device__ operator float() const {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
};

}  // namespace fw
