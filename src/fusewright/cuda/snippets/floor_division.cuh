// requires:
// Division that rounds down and the remainder with the divisor's sign, for operands that may be negative.

namespace fw {

template <class A, class B> __device__ __forceinline__ auto floor_div(A a, B b) -> decltype(a / b) {
  auto quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

template <class A, class B> __device__ __forceinline__ auto floor_mod(A a, B b) -> decltype(a % b) {
  auto remainder = a % b;
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

}  // namespace fw
