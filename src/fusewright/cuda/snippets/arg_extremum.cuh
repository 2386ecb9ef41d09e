// requires: unsigned_of
// The extreme value and where it is: the least position of equal ones. NaN is extreme, and equal to NaN.

namespace fw {

// Whether b, at position b_at, replaces a, where `wins` says whether it is more extreme than an a that is a
// number. No position, -1, is the greatest as an unsigned number.
template <class T, class N>
__device__ __forceinline__ bool replaces(bool wins, T a, N a_at, T b, N b_at) {
  using U = typename unsigned_of<N>::type;
  const bool before = U(b_at) < U(a_at);
  return a == a ? wins || (b == a && before) : b != b && before;
}

// A comparison that is false of NaN, negated, is true of it. The b are deduced on their own, so that literals do.
template <class T, class N, class B, class At>
__device__ __forceinline__ void argmax_combine(T& a, N& a_at, B b, At b_at) {
  if (!replaces(!(T(b) <= a), a, a_at, T(b), N(b_at))) return;
  a = T(b);
  a_at = N(b_at);
}

template <class T, class N, class B, class At>
__device__ __forceinline__ void argmin_combine(T& a, N& a_at, B b, At b_at) {
  if (!replaces(!(T(b) >= a), a, a_at, T(b), N(b_at))) return;
  a = T(b);
  a_at = N(b_at);
}

// The same where b comes after all that a was found among, so that of equal ones a stays. A position below 0 is
// that of no element.
template <class T, class N, class B, class At>
__device__ __forceinline__ void argmax_next(T& a, N& a_at, B b, At b_at) {
  if (!((a_at < 0 || !(T(b) <= a)) && a == a)) return;
  a = T(b);
  a_at = N(b_at);
}

template <class T, class N, class B, class At>
__device__ __forceinline__ void argmin_next(T& a, N& a_at, B b, At b_at) {
  if (!((a_at < 0 || !(T(b) >= a)) && a == a)) return;
  a = T(b);
  a_at = N(b_at);
}

}  // namespace fw
