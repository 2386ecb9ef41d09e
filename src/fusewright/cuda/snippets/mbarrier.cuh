// requires: cache_policy
// mbarriers in shared memory, and bulk copies from global to shared memory that they wait for (PTX ISA,
// mbarrier and cp.async.bulk; from sm_90 on).

namespace fw {

__device__ __forceinline__ unsigned int shared_address(const void* pointer) {
  return static_cast<unsigned int>(__cvta_generic_to_shared(pointer));
}

// One thread sets up `count` mbarriers of `arrivals` a phase; the block goes on when all may use them.
__device__ __forceinline__ void init_mbarriers(long long* mbarriers, int count, int arrivals) {
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
    for (int i = 0; i < count; ++i) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(mbarriers + i)), "r"(arrivals)
                   : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
}

__device__ __forceinline__ void arrive(long long* mbarrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(mbarrier)) : "memory");
}

// What this thread did comes before copies that start later (PTX ISA, async proxy): without, a load from shared
// memory may be under way when the thread arrives after it.
__device__ __forceinline__ void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Once for each warp, when all its threads are here.
__device__ __forceinline__ void arrive_by_warp(long long* mbarrier) {
  int lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  __syncwarp();
  if (lane == 0) arrive(mbarrier);
}

// Until the phase of this parity has ended.
__device__ __forceinline__ void wait(long long* mbarrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred ended;\n"
      "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
      "@!ended bra AGAIN;\n"
      "}" ::"r"(shared_address(mbarrier)), "r"(parity) : "memory");
}

// How many of `count` elements are whole units of 16 bytes, which copies are made of; the others are copied here.
template <class T> __device__ __forceinline__ int whole_units(T* to, const T* from, int count) {
  constexpr int unit = 16 / int(sizeof(T));
  const int whole = count / unit * unit;
  for (int i = whole; i < count; ++i) to[i] = from[i];
  return whole;
}

// Announces the bytes to the mbarrier and starts the copy.
template <class T> __device__ __forceinline__ void bulk_copy(T* to, const T* from, int count, long long* mbarrier) {
  const int bytes = whole_units(to, from, count) * int(sizeof(T));
  if (bytes == 0) return;
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(mbarrier)), "r"(bytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(mbarrier))
      : "memory");
}

// The same by a policy of the L2 cache.
template <class T>
__device__ __forceinline__ void bulk_copy_by(unsigned long long policy, T* to, const T* from, int count,
                                             long long* mbarrier) {
  const int bytes = whole_units(to, from, count) * int(sizeof(T));
  if (bytes == 0) return;
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(mbarrier)), "r"(bytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(mbarrier)),
      "l"(policy)
      : "memory");
}

// Of what is to leave the L2 cache first (cs), or last (el).
template <class T>
__device__ __forceinline__ void bulk_copy_cs(T* to, const T* from, int count, long long* mbarrier) {
  bulk_copy_by(evict_first_policy(), to, from, count, mbarrier);
}
template <class T>
__device__ __forceinline__ void bulk_copy_el(T* to, const T* from, int count, long long* mbarrier) {
  bulk_copy_by(evict_last_policy(), to, from, count, mbarrier);
}

}  // namespace fw
