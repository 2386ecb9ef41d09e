// requires:
// Division by a size that the host knows: a multiplication with what it computed from the divisor.

namespace fw {

// x / divisor for 0 <= x < 2^31 and 1 <= divisor < 2^31, where over = floor(2^62 / divisor) + 1: x over / 2^62 is above
// the quotient by less than 1 / divisor (Granlund and Montgomery, Division by invariant integers, 1994).
__device__ __forceinline__ int quotient(int x, int divisor, long long over) {
  const unsigned low = unsigned(over), high = unsigned(over >> 32);
  const unsigned long long product = (unsigned long long)(unsigned(x)) * high + __umulhi(unsigned(x), low);
  return int(product >> 30);
}

__device__ __forceinline__ int rest(int x, int divisor, long long over) {
  return x - quotient(x, divisor, over) * divisor;
}

}  // namespace fw
