// requires: complex

namespace fw {

// The principal root. Only the part that does not cancel is computed as a root, the other from the product.
template <class T>
__device__ complex<T> sqrt(complex<T> z) {
  if (z.re == 0 && z.im == 0) return {T(0), z.im};
  if (isinf(z.im)) return {::fabs(z.im), z.im};
  T root = ::sqrt((::fabs(z.re) + ::hypot(z.re, z.im)) / 2);
  if (z.re >= 0) return {root, z.im / (2 * root)};
  return {::fabs(z.im) / (2 * root), ::copysign(root, z.im)};
}

template <class T>
__device__ complex<T> rsqrt(complex<T> z) { return complex<T>(T(1)) / sqrt(z); }

}  // namespace fw
