// requires:
// Division by a constant of what is at most MOST and not negative. The CUDA compiler takes an int for one of either sign, and
// knows no bound: it needs four instructions where one or two serve.

namespace fw {

// The least SHIFT for which x factor / 2^(32 + SHIFT), with the factor above 2^(32 + SHIFT) / divisor, is above the
// quotient by less than 1 / divisor for all x up to `most` (Granlund and Montgomery, Division by invariant
// integers, 1994). There is one below 31 for all x below 2^31.
__device__ constexpr unsigned long long factor_over(unsigned divisor, int shift) {
  return ((1ull << (32 + shift)) + divisor - 1) / divisor;
}
__device__ constexpr int shift_over(unsigned divisor, unsigned most, int shift = 0) {
  return (factor_over(divisor, shift) * divisor - (1ull << (32 + shift))) * most < (1ull << (32 + shift))
             ? shift
             : shift_over(divisor, most, shift + 1);
}

template <int DIVISOR, int MOST> __device__ __forceinline__ int constant_quotient(int x) {
  constexpr int SHIFT = shift_over(DIVISOR, MOST);
  return int(__umulhi(unsigned(x), unsigned(factor_over(DIVISOR, SHIFT))) >> SHIFT);
}

template <int DIVISOR, int MOST> __device__ __forceinline__ int constant_rest(int x) {
  return x - constant_quotient<DIVISOR, MOST>(x) * DIVISOR;
}

}  // namespace fw
