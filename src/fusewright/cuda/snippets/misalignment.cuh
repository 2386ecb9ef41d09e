// requires:
// How many elements an address lies beyond a multiple of N elements, a power of two.

namespace fw {

template <int N, class T> __device__ __forceinline__ int misalignment(const T* memory) {
  return static_cast<int>(reinterpret_cast<unsigned long long>(memory) / sizeof(T)) & (N - 1);
}

}  // namespace fw
