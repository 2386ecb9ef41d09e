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

// N values, an even number of them, two at a time.
template <int N> __device__ __forceinline__ void convert(half* to, const float* from) {
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    unsigned pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(from[i + 1]), "f"(from[i]));
    memcpy(&to[i], &pair, sizeof(pair));
  }
}

}  // namespace fw
