// requires: complex_sqrt
// Kahan, "Branch cuts for complex elementary functions" (1987). The imaginary part is negated, not subtracted
// from 0, so that the sign of a zero tells the two sides of a cut apart.

namespace fw {

template <class T>
__device__ complex<T> asin(complex<T> z) {
  complex<T> below = sqrt(complex<T>(1 - z.re, -z.im)), above = sqrt(complex<T>(1 + z.re, z.im));
  return {::atan2(z.re, (below * above).re), ::asinh(below.re * above.im - below.im * above.re)};
}

template <class T>
__device__ complex<T> acos(complex<T> z) {
  complex<T> below = sqrt(complex<T>(1 - z.re, -z.im)), above = sqrt(complex<T>(1 + z.re, z.im));
  return {2 * ::atan2(below.re, above.re), ::asinh(above.re * below.im - above.im * below.re)};
}

template <class T>
__device__ complex<T> acosh(complex<T> z) {
  complex<T> below = sqrt(complex<T>(z.re - 1, z.im)), above = sqrt(complex<T>(z.re + 1, z.im));
  return {::asinh(below.re * above.re + below.im * above.im), 2 * ::atan2(below.im, above.re)};
}

template <class T>
__device__ complex<T> atanh(complex<T> z) {
  T x = z.re, y = z.im;
  return {::log1p(4 * x / ((1 - x) * (1 - x) + y * y)) / 4, ::atan2(2 * y, (1 - x) * (1 + x) - y * y) / 2};
}

// f(z) = -i fh(iz) for f = asin and atan.
template <class T>
__device__ complex<T> asinh(complex<T> z) {
  complex<T> w = asin(complex<T>(-z.im, z.re));
  return {w.im, -w.re};
}

template <class T>
__device__ complex<T> atan(complex<T> z) {
  complex<T> w = atanh(complex<T>(-z.im, z.re));
  return {w.im, -w.re};
}

}  // namespace fw
