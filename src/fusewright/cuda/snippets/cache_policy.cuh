// requires:
// What accesses name for the L2 cache to evict their lines first, or last (PTX ISA, createpolicy).

namespace fw {

#ifdef __CUDA_ARCH__
__device__ __forceinline__ unsigned long long evict_first_policy() {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ unsigned long long evict_last_policy() {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0;" : "=l"(policy));
  return policy;
}
#endif

}  // namespace fw
