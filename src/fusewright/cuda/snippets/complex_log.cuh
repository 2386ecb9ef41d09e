// requires: complex, exact_sum, float_limits

namespace fw {

// log|z|. Near the unit circle it is log1p(|z|^2 - 1) / 2, of a difference whose terms are kept exactly; near the
// ends of the range |z| is scaled by a power of 2.
template <class T>
__device__ T log_abs(complex<T> z) {
  const T x = ::fmax(::fabs(z.re), ::fabs(z.im)), y = ::fmin(::fabs(z.re), ::fabs(z.im));
  if (x > T(0.5) && x < T(2)) {
    exact_sum<T> beyond;
    beyond.add(T(-1));
    beyond.add_square(x);
    beyond.add_square(y);
    return ::log1p(beyond.value()) / 2;
  }
  int n = 0;
  if (x > float_limits<T>::vast && isfinite(x)) n = -4;
  if (x < float_limits<T>::tiny && x > 0) n = 128;
  return ::log(::hypot(::ldexp(z.re, n), ::ldexp(z.im, n))) - n * T(0.6931471805599453);
}

template <class T>
__device__ complex<T> log(complex<T> z) { return {log_abs(z), ::atan2(z.im, z.re)}; }

template <class T>
__device__ complex<T> log2(complex<T> z) { return log(z) * T(1.4426950408889634); }

template <class T>
__device__ complex<T> log10(complex<T> z) { return log(z) * T(0.4342944819032518); }

// |1 + z|^2 - 1 = 2 re + re^2 + im^2, whose terms may cancel.
template <class T>
__device__ complex<T> log1p(complex<T> z) {
  const complex<T> above(z.re + 1, z.im);
  if (!(::fmax(::fabs(z.re), ::fabs(z.im)) < T(4))) return log(above);
  exact_sum<T> beyond;
  beyond.add(2 * z.re);
  beyond.add_square(z.re);
  beyond.add_square(z.im);
  const T square = beyond.value();
  // Near -1 the sum is -1 and little else; 1 + re is exact there.
  const T length = square < T(-0.5) ? log_abs(above) : ::log1p(square) / 2;
  return {length, ::atan2(above.im, above.re)};
}

}  // namespace fw
