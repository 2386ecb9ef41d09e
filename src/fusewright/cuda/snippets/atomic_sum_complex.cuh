// requires: atomic_sum, complex
// The parts of a complex number are added one by one, as their sums do not depend on each other.

namespace fw {

template <class T> __device__ __forceinline__ void atomic_sum(complex<T>* to, complex<T> value) {
  const T parts[2] = {value.re, value.im};
  atomic_sum<2>(reinterpret_cast<T*>(to), parts);
}

template <int N, class T> __device__ __forceinline__ void atomic_sum(complex<T>* to, const complex<T>* values) {
  _Pragma("unroll") for (int i = 0; i < N; ++i) atomic_sum(to + i, values[i]);
}

}  // namespace fw
