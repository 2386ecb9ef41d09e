// requires: complex_exp

namespace fw {

// 1 / (1 + e^-z) is `factor` * e^x / `divisor`, x at most 0, so that nothing overflows; the divisor is summed as
// expm1 is, for near a pole it cancels.
template <class T>
struct sigmoid_parts {
  T x;
  complex<T> factor, divisor;

  __device__ explicit sigmoid_parts(complex<T> z) {
    const bool negative = z.re < T(0);
    const T smaller = -::fabs(z.re), y = negative ? z.im : -z.im, half = ::cos(y / 2), decay = ::exp(smaller);
    T sine, cosine;
    sine_and_cosine(y, sine, cosine);
    x = negative ? smaller : T(0);
    factor = negative ? complex<T>(cosine, sine) : complex<T>(T(1));
    divisor = complex<T>(::expm1(smaller) * cosine + 2 * half * half, decay * sine);
  }
};

template <class T>
__device__ complex<T> sigmoid(complex<T> z) {
  const sigmoid_parts<T> parts(z);
  return ::exp(parts.x) * parts.factor / parts.divisor;
}

// z sigmoid(z), of which neither factor underflows before the product does.
template <class T>
__device__ complex<T> silu(complex<T> z) {
  const sigmoid_parts<T> parts(z);
  const T root = ::exp(parts.x / 2);
  return (root * z) * (root * parts.factor) / parts.divisor;
}

}  // namespace fw
