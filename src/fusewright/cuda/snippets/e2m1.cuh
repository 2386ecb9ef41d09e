// requires: fp8
// Four-bit floats: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, for storage only. Rounds to nearest even and
// saturates; NaN becomes 6, as `cvt.rn.satfinite.e2m1x2.f32` makes of it. All of it is exact in software.

namespace fw {

// The four bits of the float nearest to `value`: sign, two of exponent, one of mantissa.
__device__ __forceinline__ unsigned e2m1_code(float value) {
  unsigned word = __float_as_uint(value), magnitude = word & 0x7fffffffu, sign = (word >> 28) & 0x8u;
  if (magnitude > 0x7f800000u) return 0x7u;
  constexpr unsigned largest = 0x40c00000u;  // 6
  return sign | (magnitude >= largest ? 0x7u : round_to_fp8<1, 1>(magnitude));
}

// The e4m3 of the value that four bits stand for.
__device__ __forceinline__ unsigned char e4m3_of_e2m1(unsigned code) {
  unsigned magnitude = code & 0x7u;
  unsigned bits = magnitude > 1 ? 4 * magnitude + 48 : 48 * magnitude;
  return (unsigned char)((code & 0x8u) << 4 | bits);
}

// One by itself takes a byte: that of the e4m3 of equal value.
struct e2m1 {
  e4m3 wide;

  e2m1() = default;
  __device__ explicit e2m1(float value) { wide.bits = e4m3_of_e2m1(e2m1_code(value)); }
  __device__ operator float() const { return float(wide); }
};

// Two in a byte, the first in its lower half.
struct e2m1_x2 {
  unsigned char bits;

  e2m1_x2() = default;
  __device__ explicit e2m1_x2(int value) : bits((unsigned char)value) {}
};

__device__ __forceinline__ e2m1_x2 pack_e2m1(float low, float high) {
  return e2m1_x2(int(e2m1_code(low) | e2m1_code(high) << 4));
}

__device__ __forceinline__ float unpack_e2m1(unsigned code) {
  e4m3 wide;
  wide.bits = e4m3_of_e2m1(code);
  return float(wide);
}
__device__ __forceinline__ float low_e2m1(e2m1_x2 pair) { return unpack_e2m1(pair.bits & 0xfu); }
__device__ __forceinline__ float high_e2m1(e2m1_x2 pair) { return unpack_e2m1(pair.bits >> 4); }

}  // namespace fw
