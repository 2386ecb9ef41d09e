// requires:
// The sum of a warp's integers in every lane by one instruction, in place of five shuffles and additions.

namespace fw {

__device__ __forceinline__ int warp_sum(int value) {
  __syncwarp();  // as for extrema, which say why (warp_extremum.cuh)
  return __reduce_add_sync(0xffffffffu, value);
}

}  // namespace fw
