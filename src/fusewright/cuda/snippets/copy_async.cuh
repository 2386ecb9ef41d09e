// requires: cache_policy
// Copies from global to shared memory that go on by themselves (PTX ISA, cp.async): of N elements, 4, 8 or 16 bytes;
// with a policy of the L2 cache where the name has one: cs evicted first, el evicted last.

namespace fw {

template <int N, class T> __device__ __forceinline__ void copy_async(T* shared, const T* global) {
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  if constexpr (N * sizeof(T) == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(N * sizeof(T)) : "memory");
  }
}

// The address is a multiple of the bytes, so the mask changes nothing. Without it the assembler of CUDA 13 may take
// the base of shared memory and the policy from the same uniform registers: an illegal instruction.
template <int N, class T>
__device__ __forceinline__ void copy_async_by(unsigned long long policy, T* shared, const T* global) {
  unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("and.b32 %0, %0, %1;" : "+r"(to) : "n"(~(N * int(sizeof(T)) - 1)));
  if constexpr (N * sizeof(T) == 16) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "l"(policy)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global.L2::cache_hint [%0], [%1], %2, %3;" ::"r"(to), "l"(global),
                 "n"(N * sizeof(T)), "l"(policy)
                 : "memory");
  }
}

template <int N, class T> __device__ __forceinline__ void copy_async_cs(T* shared, const T* global) {
  copy_async_by<N>(evict_first_policy(), shared, global);
}
template <int N, class T> __device__ __forceinline__ void copy_async_el(T* shared, const T* global) {
  copy_async_by<N>(evict_last_policy(), shared, global);
}

// Waits until all that this thread has started are there.
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace fw
