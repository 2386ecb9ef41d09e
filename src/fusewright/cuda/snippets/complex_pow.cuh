// requires: complex_exp, complex_log

namespace fw {

template <class T>
__device__ complex<T> pow(complex<T> base, complex<T> exponent) {
  if (exponent.re == 0 && exponent.im == 0) return {T(1), T(0)};
  if (base.re == 0 && base.im == 0) return {T(0), T(0)};
  return exp(exponent * log(base));
}

}  // namespace fw
