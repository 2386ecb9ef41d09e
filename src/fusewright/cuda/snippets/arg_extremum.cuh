// requires: unsigned_of
// The extreme value and where it is: the least position of equal ones. NaN is extreme, and equal to NaN.

namespace fw {

// Whether b, at position b_at, replaces a. No position, -1, is the greatest as an unsigned number.
template <class T, class N>
__device__ __forceinline__ bool replaces(bool b_is_better, T a, N a_at, T b, N b_at) {
  using U = typename unsigned_of<N>::type;
  const bool a_nan = a != a, b_nan = b != b;
  return b_is_better || (b_nan && !a_nan) || ((a == b || (a_nan && b_nan)) && U(b_at) < U(a_at));
}

// The b are deduced on their own, so that literals do.
template <class T, class N, class B, class At>
__device__ __forceinline__ void argmax_combine(T& a, N& a_at, B b, At b_at) {
  if (!replaces(T(b) > a, a, a_at, T(b), N(b_at))) return;
  a = T(b);
  a_at = N(b_at);
}

template <class T, class N, class B, class At>
__device__ __forceinline__ void argmin_combine(T& a, N& a_at, B b, At b_at) {
  if (!replaces(T(b) < a, a, a_at, T(b), N(b_at))) return;
  a = T(b);
  a_at = N(b_at);
}

}  // namespace fw
