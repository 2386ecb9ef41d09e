// requires: half
// Eight-bit floats, for storage only. Rounds to nearest even, as torch's casts do: e4m3 has no infinity and
// saturates at 448; e5m2 overflows to infinity. sm_89 and later convert in hardware; the software path is exact.

namespace fw {

// Rounds |value| to a float of MANTISSA bits with exponent bias BIAS, returned as exponent and mantissa bits.
// The caller handles NaN and values beyond the largest finite one.
template <int MANTISSA, int BIAS>
__device__ __forceinline__ unsigned round_to_fp8(unsigned magnitude) {
  constexpr unsigned smallest_normal = unsigned(127 - BIAS + 1) << 23;
  if (magnitude < smallest_normal) {
    // Adding 2^k, k chosen so that its unit in the last place is the smallest subnormal, rounds in hardware.
    constexpr unsigned magic = unsigned(127 - BIAS + 1 + 23 - MANTISSA) << 23;
    return __float_as_uint(__uint_as_float(magnitude) + __uint_as_float(magic)) - magic;
  }
  unsigned odd = (magnitude >> (23 - MANTISSA)) & 1;
  magnitude += ((1u << (22 - MANTISSA)) - 1) + odd;
  return (magnitude - (unsigned(127 - BIAS) << 23)) >> (23 - MANTISSA);
}

struct e4m3 {
  unsigned char bits;

  e4m3() = default;
  __device__ explicit e4m3(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    unsigned short pair;  // a NaN becomes the positive one
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
    bits = (unsigned char)pair;
#else
    unsigned word = __float_as_uint(value), magnitude = word & 0x7fffffffu, sign = (word >> 24) & 0x80u;
    if (magnitude > 0x7f800000u) {
      bits = (unsigned char)(sign | 0x7fu);
      return;
    }
    constexpr unsigned largest = 0x43e00000u;  // 448
    bits = (unsigned char)(sign | (magnitude >= largest ? 0x7eu : round_to_fp8<3, 7>(magnitude)));
#endif
  }
  __device__ operator float() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    unsigned pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((unsigned short)bits));
    half low;
    low.bits = (unsigned short)pair;
    return float(low);
#else
    unsigned sign = unsigned(bits & 0x80u) << 24, magnitude = bits & 0x7fu;
    if (magnitude == 0x7fu) return __uint_as_float(sign | 0x7fc00000u);
    // The bits as a float with the wrong exponent bias; the product mends it, for subnormals too.
    float unbiased = __uint_as_float(magnitude << 20) * __uint_as_float(unsigned(127 + 120) << 23);
    return __uint_as_float(sign | __float_as_uint(unbiased));
#endif
  }
};

// N values, an even number of them; two are one instruction where the hardware converts.
template <int N> __device__ __forceinline__ void convert(e4m3* to, const float* from) {
#pragma unroll
  for (int i = 0; i < N; i += 2) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    unsigned short pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(from[i + 1]), "f"(from[i]));
    memcpy(&to[i], &pair, sizeof(pair));
#else
    to[i] = e4m3(from[i]), to[i + 1] = e4m3(from[i + 1]);
#endif
  }
}

struct e5m2 {
  unsigned char bits;

  e5m2() = default;
  __device__ explicit e5m2(float value) {
    unsigned word = __float_as_uint(value), magnitude = word & 0x7fffffffu, sign = (word >> 24) & 0x80u;
    constexpr unsigned overflow = 0x47700000u;  // 61440, midway between the largest finite 57344 and 65536
    if (magnitude > 0x7f800000u) {
      bits = (unsigned char)(sign | 0x7fu);
      return;
    }
    if (magnitude >= overflow) {
      bits = (unsigned char)(sign | 0x7cu);
      return;
    }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    unsigned short pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
    bits = (unsigned char)pair;
#else
    bits = (unsigned char)(sign | round_to_fp8<2, 15>(magnitude));
#endif
  }
  // The upper half of a binary16.
  __device__ operator float() const {
    half wide;
    wide.bits = (unsigned short)(bits << 8);
    return float(wide);
  }
};

}  // namespace fw
