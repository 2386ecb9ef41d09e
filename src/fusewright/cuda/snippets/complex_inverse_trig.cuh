// requires: complex_sqrt, complex_log
// Kahan, "Branch cuts for complex elementary functions" (1987). The imaginary part is negated, not subtracted
// from 0, so that the sign of a zero tells the two sides of a cut apart.

namespace fw {

template <class T>
__device__ bool is_vast(complex<T> z) {
  return ::fabs(z.re) > float_limits<T>::huge || ::fabs(z.im) > float_limits<T>::huge;
}

// log|2z| of a vast z.
template <class T>
__device__ T log_twice_abs(complex<T> z) { return log_abs(z) + T(0.6931471805599453); }

template <class T>
__device__ complex<T> asin(complex<T> z) {
  if (is_vast(z)) return {::atan2(z.re, ::fabs(z.im)), ::copysign(log_twice_abs(z), z.im)};
  const complex<T> below = sqrt(complex<T>(1 - z.re, -z.im)), above = sqrt(complex<T>(1 + z.re, z.im));
  return {::atan2(z.re, below.re * above.re - below.im * above.im),
          ::asinh(below.re * above.im - below.im * above.re)};
}

template <class T>
__device__ complex<T> acos(complex<T> z) {
  if (is_vast(z)) return {::atan2(::fabs(z.im), z.re), -::copysign(log_twice_abs(z), z.im)};
  const complex<T> below = sqrt(complex<T>(1 - z.re, -z.im)), above = sqrt(complex<T>(1 + z.re, z.im));
  return {2 * ::atan2(below.re, above.re), ::asinh(above.re * below.im - above.im * below.re)};
}

template <class T>
__device__ complex<T> acosh(complex<T> z) {
  if (is_vast(z)) return {log_twice_abs(z), ::atan2(z.im, z.re)};
  const complex<T> below = sqrt(complex<T>(z.re - 1, z.im)), above = sqrt(complex<T>(z.re + 1, z.im));
  return {::asinh(below.re * above.re + below.im * above.im), 2 * ::atan2(below.im, above.re)};
}

// Of |re|, where the argument of log1p is not negative: close to -1 it would have no digits left.
template <class T>
__device__ complex<T> atanh(complex<T> z) {
  const T x = ::fabs(z.re), y = z.im;
  if (is_vast(z)) {
    // Nearly 1 / z, and a right angle.
    const int n = magnitude(z);
    const T a = ::ldexp(x, -n), b = ::ldexp(y, -n);
    const T length = isinf(x) || isinf(y) ? T(0) : ::ldexp(a / (a * a + b * b), -n);
    return {::copysign(length, z.re), ::copysign(T(1.5707963267948966), y)};
  }
  T length;
  if (x == T(1) && ::fabs(y) < T(1e-10)) {
    length = (T(0.6931471805599453) - ::log(::fabs(y))) / 2;  // y^2 may vanish
  } else {
    length = ::log1p(4 * x / ((1 - x) * (1 - x) + y * y)) / 4;
  }
  return {::copysign(length, z.re), ::atan2(2 * y, (1 - x) * (1 + x) - y * y) / 2};
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
