// requires: complex

namespace fw {

// exp(re) (cos im + i sin im), of which a real number keeps its zero imaginary part when exp(re) is infinite.
template <class T>
__device__ complex<T> complex_polar(T length, T angle) {
  if (angle == T(0)) return {length, angle};
  T s, c;
  if constexpr (sizeof(T) == 4) ::sincosf(angle, &s, &c);
  else ::sincos(angle, &s, &c);
  return {length * c, length * s};
}

template <class T>
__device__ complex<T> exp(complex<T> z) { return complex_polar(::exp(z.re), z.im); }

template <class T>
__device__ complex<T> exp2(complex<T> z) {
  return complex_polar(::exp2(z.re), z.im * T(0.6931471805599453));
}

// The real part, e^x cos y - 1, is summed of two terms that do not cancel near 0.
template <class T>
__device__ complex<T> expm1(complex<T> z) {
  T half_sine = ::sin(z.im / 2);
  T decay = ::expm1(z.re);
  return {decay * ::cos(z.im) - 2 * half_sine * half_sine, (decay + 1) * ::sin(z.im)};
}

}  // namespace fw
