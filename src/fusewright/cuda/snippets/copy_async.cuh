// requires:
// Copies from global to shared memory that go on by themselves (PTX ISA, cp.async): of N elements, 4, 8 or 16 bytes.

namespace fw {

template <int N, class T> __device__ __forceinline__ void copy_async(T* shared, const T* global) {
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  if constexpr (N * sizeof(T) == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(N * sizeof(T)) : "memory");
  }
}

// Waits until all that this thread has started are there.
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace fw
