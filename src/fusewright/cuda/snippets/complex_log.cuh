// requires: complex

namespace fw {

// Near the unit circle log|z| is taken as log1p(|z|^2 - 1) / 2, which does not cancel.
template <class T>
__device__ complex<T> log(complex<T> z) {
  T x = ::fabs(z.re), y = ::fabs(z.im);
  if (x < y) {
    T larger = y;
    y = x;
    x = larger;
  }
  T length = x > T(0.5) && x < T(2) ? ::log1p((x - 1) * (x + 1) + y * y) / 2 : ::log(::hypot(x, y));
  return {length, ::atan2(z.im, z.re)};
}

template <class T>
__device__ complex<T> log2(complex<T> z) { return log(z) * T(1.4426950408889634); }

template <class T>
__device__ complex<T> log10(complex<T> z) { return log(z) * T(0.4342944819032518); }

template <class T>
__device__ complex<T> log1p(complex<T> z) {
  if (::fabs(z.re) > T(0.5) || ::fabs(z.im) > T(0.5)) return log(complex<T>(z.re + 1, z.im));
  return {::log1p(z.re * (2 + z.re) + z.im * z.im) / 2, ::atan2(z.im, z.re + 1)};
}

}  // namespace fw
