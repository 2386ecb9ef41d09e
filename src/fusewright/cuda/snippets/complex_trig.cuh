// requires: complex_exp

namespace fw {

// Beyond what e^x holds, sinh and cosh are e^|x| / 2. A real number keeps its zero imaginary part.
template <class T>
__device__ complex<T> sinh(complex<T> z) {
  if (z.im == T(0)) return {::sinh(z.re), z.im};
  T sine, cosine;
  sine_and_cosine(z.im, sine, cosine);
  const T x = ::fabs(z.re);
  if (x > float_limits<T>::largest_exp) return scaled_by_exp(x, ::copysign(T(0.5), z.re) * cosine, sine / 2);
  return {::sinh(z.re) * cosine, ::cosh(z.re) * sine};
}

template <class T>
__device__ complex<T> cosh(complex<T> z) {
  if (z.im == T(0)) return {::cosh(z.re), ::copysign(T(1), z.re) * z.im};
  T sine, cosine;
  sine_and_cosine(z.im, sine, cosine);
  const T x = ::fabs(z.re);
  if (x > float_limits<T>::largest_exp) return scaled_by_exp(x, cosine / 2, ::copysign(T(0.5), z.re) * sine);
  return {::cosh(z.re) * cosine, ::sinh(z.re) * sine};
}

// Kahan, "Branch cuts for complex elementary functions" (1987): no cancellation and no overflow.
template <class T>
__device__ complex<T> tanh(complex<T> z) {
  if (z.im == T(0)) return {::tanh(z.re), z.im};
  if (::fabs(z.re) > float_limits<T>::largest_tanh) {
    return {::copysign(T(1), z.re), 4 * ::sin(z.im) * ::cos(z.im) * ::exp(-2 * ::fabs(z.re))};
  }
  T t = ::tan(z.im), s = ::sinh(z.re);
  T beta = 1 + t * t, scale = 1 + beta * s * s;
  return {beta * ::sqrt(1 + s * s) * s / scale, t / scale};
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
