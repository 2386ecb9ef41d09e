// requires: complex, float_limits

namespace fw {

// The principal root. Only the part that does not cancel is computed as a root, the other from the product.
// Numbers near the ends of the range are scaled by a power of 4.
template <class T>
__device__ complex<T> sqrt(complex<T> z) {
  if (z.re == 0 && z.im == 0) return {T(0), z.im};
  if (isinf(z.im)) return {::fabs(z.im), z.im};
  const T size = ::fmax(::fabs(z.re), ::fabs(z.im));
  int n = 0;
  if (size > float_limits<T>::vast && isfinite(size)) n = -2;
  if (size < float_limits<T>::tiny) n = 32;
  z = {::ldexp(z.re, 2 * n), ::ldexp(z.im, 2 * n)};
  const T root = ::sqrt((::fabs(z.re) + ::hypot(z.re, z.im)) / 2);
  const T other = ::fabs(z.im) / (2 * root);
  const T re = z.re >= 0 ? root : other, im = z.re >= 0 ? other : root;
  return {::ldexp(re, -n), ::copysign(::ldexp(im, -n), z.im)};
}

template <class T>
__device__ complex<T> rsqrt(complex<T> z) { return complex<T>(T(1)) / sqrt(z); }

}  // namespace fw
