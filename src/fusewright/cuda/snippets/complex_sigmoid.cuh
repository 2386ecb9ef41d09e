// requires: complex_exp

namespace fw {

// 1 / (1 + e^-z), from e^-|re|, which does not overflow; 1 + e^-z is summed as expm1 is, for near a pole it cancels.
template <class T>
__device__ complex<T> sigmoid(complex<T> z) {
  const bool negative = z.re < T(0);
  const T x = -::fabs(z.re), y = negative ? z.im : -z.im;
  T sine, cosine;
  sine_and_cosine(y, sine, cosine);
  const T decay = ::exp(x), half = ::cos(y / 2);
  const complex<T> power(decay * cosine, decay * sine);
  const complex<T> one_more(::expm1(x) * cosine + 2 * half * half, power.im);
  return (negative ? power : complex<T>(T(1))) / one_more;
}

}  // namespace fw
