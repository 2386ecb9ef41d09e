// requires:
// What accesses name for the L2 cache to evict their lines first, or last (PTX ISA, createpolicy). The assembler makes a
// policy anew for each access, of five instructions from sm_90 on; as a constant it takes two. Where the bits are known
// they are what sm_80 to sm_100 make of createpolicy, which other GPUs execute.

namespace fw {

#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ <= 1000
__device__ __forceinline__ unsigned long long evict_first_policy() { return 0x12F0000000000000ull; }
__device__ __forceinline__ unsigned long long evict_last_policy() { return 0x14F0000000000000ull; }
#else
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
#endif

}  // namespace fw
