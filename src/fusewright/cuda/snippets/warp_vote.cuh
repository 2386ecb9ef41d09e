// requires:
// Whether any, or all, of a warp's bools are true, in every lane: one instruction instead of five shuffles.

namespace fw {

// As in warp_extremum.cuh, lanes meet first: ptxas does not know the condition that whole warps branch by.
__device__ __forceinline__ bool warp_any(bool value) {
  __syncwarp();
  return __any_sync(0xffffffffu, value);
}
__device__ __forceinline__ bool warp_all(bool value) {
  __syncwarp();
  return __all_sync(0xffffffffu, value);
}

}  // namespace fw
