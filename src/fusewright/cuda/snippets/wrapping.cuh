// requires: unsigned_of
// Integer arithmetic that wraps around. Signed overflow is undefined in C++, and compilers conclude from it that
// x + 1 > x.

namespace fw {

template <class T>
__device__ __forceinline__ T wrapping_add(T a, T b) {
  using U = typename unsigned_of<T>::type;
  return T(U(a) + U(b));
}

template <class T>
__device__ __forceinline__ T wrapping_sub(T a, T b) {
  using U = typename unsigned_of<T>::type;
  return T(U(a) - U(b));
}

template <class T>
__device__ __forceinline__ T wrapping_mul(T a, T b) {
  using U = typename unsigned_of<T>::type;
  return T(U(a) * U(b));
}

template <class T>
__device__ __forceinline__ T wrapping_neg(T a) {
  using U = typename unsigned_of<T>::type;
  return T(U(0) - U(a));
}

template <class T>
__device__ __forceinline__ T wrapping_abs(T a) {
  return a < 0 ? wrapping_neg(a) : a;
}

}  // namespace fw
