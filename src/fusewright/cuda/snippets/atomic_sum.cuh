// requires:
// Additions to global memory that other threads may add to meanwhile, each at once; nobody needs the old value.
// Architectures from sm_90 on add two or four floats in one access; a pair or four of other types are added
// one by one.

namespace fw {

__device__ __forceinline__ void atomic_sum(float* to, float value) { atomicAdd(to, value); }
__device__ __forceinline__ void atomic_sum(double* to, double value) { atomicAdd(to, value); }
__device__ __forceinline__ void atomic_sum(int* to, int value) { atomicAdd(to, value); }
__device__ __forceinline__ void atomic_sum(long long* to, long long value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(to), (unsigned long long)value);
}

template <int N, class T> __device__ __forceinline__ void atomic_sum(T* to, const T* values) {
  _Pragma("unroll") for (int i = 0; i < N; ++i) atomic_sum(to + i, values[i]);
}

#if __CUDA_ARCH__ >= 900
template <> __device__ __forceinline__ void atomic_sum<2>(float* to, const float* values) {
  asm volatile("red.global.add.v2.f32 [%0], {%1, %2};"
               :
               : "l"(__cvta_generic_to_global(to)), "f"(values[0]), "f"(values[1])
               : "memory");
}
template <> __device__ __forceinline__ void atomic_sum<4>(float* to, const float* values) {
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(to)), "f"(values[0]), "f"(values[1]), "f"(values[2]), "f"(values[3])
               : "memory");
}
#endif

}  // namespace fw
