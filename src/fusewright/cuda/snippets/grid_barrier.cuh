// requires:
// A barrier of blocks that are all resident at once, which a cooperative launch sees to.

namespace fw {

// All threads of the grid arrive before any goes on; it orders their accesses to memory. `semaphore` is zero before the
// first launch: each round adds 2^31 in all, so that its top bit flips with the last arrival and the others are zero
// again. The first warp waits as a whole: see combine_first in grid_reduce.
__device__ __forceinline__ void grid_barrier(int* semaphore) {
  __syncthreads();
  const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  if (thread < 32) {
    unsigned* const arrivals = reinterpret_cast<unsigned*>(semaphore);
    const unsigned blocks = gridDim.x * gridDim.y * gridDim.z;
    const bool leads = (blockIdx.x | blockIdx.y | blockIdx.z) == 0;
    const unsigned add = leads ? 0x80000000u - (blocks - 1) : 1u;
#ifdef __CUDA_ARCH__
    // The arrival releases what the block wrote before, and what sees the flip acquires what all others wrote,
    // which costs less than two fences (PTX ISA, memory consistency model).
    unsigned before = 0, now;
    if (thread == 0) {
      asm volatile("atom.add.release.gpu.global.u32 %0, [%1], %2;"
                   : "=r"(before)
                   : "l"(__cvta_generic_to_global(arrivals)), "r"(add)
                   : "memory");
    }
    before = __shfl_sync(0xffffffffu, before, 0);
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                   : "=r"(now)
                   : "l"(__cvta_generic_to_global(arrivals))
                   : "memory");
    } while (!__all_sync(0xffffffffu, ((now ^ before) & 0x80000000u) != 0));
#else
    if (thread == 0) atomicAdd(arrivals, add);
#endif
  }
  __syncthreads();
}

}  // namespace fw
