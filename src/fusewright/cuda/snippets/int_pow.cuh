// requires: wrapping
// Integer powers by squaring. A negative exponent leaves 1, +-1 or 0, for bases 1, -1 and others.

namespace fw {

template <class T>
__device__ T int_pow(T base, T exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
  T result = 1;
  for (; exponent; exponent >>= 1) {
    if (exponent & 1) result = wrapping_mul(result, base);
    base = wrapping_mul(base, base);
  }
  return result;
}

}  // namespace fw
