// requires: complex_exp, complex_log

namespace fw {

// A whole power by squaring.
template <class T>
__device__ complex<T> power_by_squaring(complex<T> base, int exponent) {
  complex<T> result(T(1));
  for (unsigned left = exponent < 0 ? -exponent : exponent; left; left >>= 1) {
    if (left & 1) result = result * base;
    if (left > 1) base = base * base;
  }
  return exponent < 0 ? complex<T>(T(1)) / result : result;
}

__device__ complex<double> pow(complex<double> base, complex<double> exponent) {
  if (exponent.re == 0 && exponent.im == 0) return {1.0, 0.0};
  if (base.re == 0 && base.im == 0) return {0.0, 0.0};
  if (exponent.im == 0 && exponent.re == ::rint(exponent.re) && ::fabs(exponent.re) <= 64) {
    return power_by_squaring(base, int(exponent.re));
  }
  return exp(exponent * log(base));
}

// In double: a rounding of the product is one of the angle, which may be many times its last digit.
__device__ complex<float> pow(complex<float> base, complex<float> exponent) {
  return complex<float>(pow(complex<double>(base), complex<double>(exponent)));
}

}  // namespace fw
