// requires:
// Conversions of numbers up to 2^22 by additions, the sums of which have no bits for fractions. The instructions that
// convert (F2I, FRND, I2F of 8 bits) take eight times as long as an addition.

namespace fw {

__device__ __forceinline__ float float_of_small(int value) {
  return __int_as_float(0x4b400000 + value) - 12582912.0f;
}

// Intrinsics, so that the sum is of the rounded number: no product before it becomes part of it.
__device__ __forceinline__ float nearest_whole(float value) {
  return __fadd_rn(__fadd_rn(value, 12582912.0f), -12582912.0f);
}

__device__ __forceinline__ int nearest_integer(float value) {
  return __float_as_int(__fadd_rn(value, 12582912.0f)) - 0x4b400000;
}

__device__ __forceinline__ int nearest_integer_or_0(float value) {
  return value == value ? nearest_integer(value) : 0;
}

// Of what is not negative.
__device__ __forceinline__ int integer_below(float value) {
  return __float_as_int(__fadd_rd(value, 8388608.0f)) - 0x4b000000;
}

}  // namespace fw
