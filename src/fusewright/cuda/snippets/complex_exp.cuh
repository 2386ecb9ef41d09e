// requires: complex, float_limits

namespace fw {

template <class T>
__device__ __forceinline__ void sine_and_cosine(T angle, T& sine, T& cosine) {
  if constexpr (sizeof(T) == 4) ::sincosf(angle, &sine, &cosine);
  else ::sincos(angle, &sine, &cosine);
}

// e^x times each of a and b, none greater than 1, where e^x alone may be infinite.
template <class T>
__device__ complex<T> scaled_by_exp(T x, T a, T b) {
  if (x > float_limits<T>::largest_exp) {
    const T root = ::exp(x / 2);
    return {root * a * root, root * b * root};
  }
  const T factor = ::exp(x);
  return {factor * a, factor * b};
}

// exp(re) (cos im + i sin im), of which a real number keeps its zero imaginary part when exp(re) is infinite.
template <class T>
__device__ complex<T> exp(complex<T> z) {
  if (z.im == T(0)) return {::exp(z.re), z.im};
  if (!isfinite(z.im) && ::exp(z.re) == T(0)) return {T(0), T(0)};  // whatever the angle
  T sine, cosine;
  sine_and_cosine(z.im, sine, cosine);
  return scaled_by_exp(z.re, cosine, sine);
}

template <class T>
__device__ complex<T> exp2(complex<T> z) {
  if (z.im == T(0)) return {::exp2(z.re), z.im};
  const T factor = ::exp2(z.re / 2);
  if (::fabs(z.im) < float_limits<T>::tiny) return {factor * factor, factor * z.im * factor * T(0.6931471805599453)};
  // The angle is im ln 2, of which `rest` is what its rounding drops, while that is small.
  const T ln2 = T(0.6931471805599453), angle = z.im * ln2;
  T rest = ::fma(z.im, ln2, -angle) + z.im * float_limits<T>::ln2_rest;
  if (!(::fabs(rest) < T(1e-3))) rest = T(0);
  T sine, cosine;
  sine_and_cosine(angle, sine, cosine);
  return {factor * (cosine - rest * sine) * factor, factor * (sine + rest * cosine) * factor};
}

// The real part, e^x cos y - 1, is summed of two terms that do not cancel near 0.
template <class T>
__device__ complex<T> expm1(complex<T> z) {
  if (z.im == T(0)) return {::expm1(z.re), z.im};
  if (z.re > T(float_limits<T>::largest_tanh * 4)) return exp(z);  // 1 is less than its last digit
  const T half_sine = ::sin(z.im / 2);
  T sine, cosine;
  sine_and_cosine(z.im, sine, cosine);
  return {::expm1(z.re) * cosine - 2 * half_sine * half_sine, ::exp(z.re) * sine};
}

}  // namespace fw
