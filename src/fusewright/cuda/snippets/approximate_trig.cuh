// requires: trig
// Sines and cosines by one polynomial: a multiple of pi is taken away in three parts (Cody and Waite), the first two of
// which leave no rounding below large_angle, and the sine of the rest, up to pi / 2 and a little, is within 1.2e-6 of
// r + c1 r^3 + c2 r^5 + c3 r^7 (minimax of the relative error, by Remez' algorithm).

namespace fw {

// 1.5 * 2^23: a float added to it is rounded to an integer, whose last bit is the sum's.
constexpr float rounds_to_integer = 12582912.0f;

// sin(x - count * pi), negated if the last bit of `integer` is set. The parts of pi are all positive, and the last step is a
// product, so that -0 stays -0: a sum of zeros of both signs is +0.
__device__ __forceinline__ float sine_of_rest(float x, float count, float integer) {
  float r = fmaf(count, -3.14159250f, x);
  r = fmaf(count, -1.50995788e-7f, r);
  r = fmaf(count, -1.07806051e-14f, r);
  const float square = r * r;
  const float curve = fmaf(square, fmaf(square, -1.854144615e-4f, 8.314251584e-3f), -1.666585175e-1f);
  const float sine = r * fmaf(square, curve, 1.0f);
  return __int_as_float(__float_as_int(sine) ^ (__float_as_int(integer) << 31));
}

__device__ __forceinline__ float approximate_sin(float x) {
  const float integer = fmaf(x, 0.318309886f, rounds_to_integer);
  const float sine = sine_of_rest(x, integer - rounds_to_integer, integer);
  return fabsf(x) < large_angle ? sine : sin_of_large(x);
}

// cos(x) = (-1)^(m + 1) sin(x - (m + 1/2) pi)
__device__ __forceinline__ float approximate_cos(float x) {
  const float integer = fmaf(x, 0.318309886f, 0.5f) + rounds_to_integer;
  const float cosine = sine_of_rest(x, integer - rounds_to_integer - 0.5f, integer);
  return fabsf(x) < large_angle ? cosine : cos_of_large(x);
}

}  // namespace fw
