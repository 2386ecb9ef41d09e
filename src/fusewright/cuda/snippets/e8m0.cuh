// requires:
// A power of two, 2^(bits - 127), or NaN (255): the scale of a block of small floats. For storage only.

namespace fw {

struct e8m0 {
  unsigned char bits;

  e8m0() = default;
  // Rounds the magnitude to the nearest power of two as torch does: the sign is dropped, a tie goes up
  // unless the value is subnormal.
  __device__ explicit e8m0(float value) {
    unsigned word = __float_as_uint(value), exponent = (word >> 23) & 0xffu, rest = word & 0x7fffffu;
    bool up = rest > 0x400000u || (rest == 0x400000u && exponent > 0);
    bits = (unsigned char)(exponent == 0xffu ? 0xffu : exponent + up);
  }
  __device__ operator float() const {
    if (bits == 0xffu) return __uint_as_float(0x7fc00000u);
    return __uint_as_float(bits == 0 ? 0x00400000u : unsigned(bits) << 23);
  }
};

}  // namespace fw
