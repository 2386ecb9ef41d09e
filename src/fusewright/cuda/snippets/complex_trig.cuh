// requires: complex

namespace fw {

template <class T>
__device__ complex<T> sinh(complex<T> z) {
  return {::sinh(z.re) * ::cos(z.im), ::cosh(z.re) * ::sin(z.im)};
}

template <class T>
__device__ complex<T> cosh(complex<T> z) {
  return {::cosh(z.re) * ::cos(z.im), ::sinh(z.re) * ::sin(z.im)};
}

// Kahan, "Branch cuts for complex elementary functions" (1987): no cancellation and no overflow.
template <class T>
__device__ complex<T> tanh(complex<T> z) {
  if (::fabs(z.re) > T(sizeof(T) == 4 ? 11 : 22)) {
    return {::copysign(T(1), z.re), 4 * ::sin(z.im) * ::cos(z.im) * ::exp(-2 * ::fabs(z.re))};
  }
  T t = ::tan(z.im), s = ::sinh(z.re);
  T beta = 1 + t * t, scale = 1 / (1 + beta * s * s);
  return {beta * ::sqrt(1 + s * s) * s * scale, t * scale};
}

// f(z) = -i fh(iz) for f = sin and tan, and cos(z) = cosh(iz).
template <class T>
__device__ complex<T> sin(complex<T> z) {
  complex<T> w = sinh(complex<T>(-z.im, z.re));
  return {w.im, -w.re};
}

template <class T>
__device__ complex<T> cos(complex<T> z) { return cosh(complex<T>(-z.im, z.re)); }

template <class T>
__device__ complex<T> tan(complex<T> z) {
  complex<T> w = tanh(complex<T>(-z.im, z.re));
  return {w.im, -w.re};
}

}  // namespace fw
