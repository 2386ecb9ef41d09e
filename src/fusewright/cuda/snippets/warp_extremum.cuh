// requires: maximum
// The largest and the smallest of a warp's floats in every lane, by the instruction that does so for integers: fewer
// than half the cycles of five shuffles. NaN if one of them is.

namespace fw {

// Floats in the order of their bits: the magnitude of a negative one counts down. Its own inverse.
__device__ __forceinline__ int in_order(int bits) { return bits ^ ((bits >> 31) & 0x7fffffff); }

__device__ __forceinline__ float warp_maximum(float value) {
  // Any NaN becomes the positive one, which is above infinity.
  const int bits = in_order(__float_as_int(maximum(value, value)));
  // Where whole warps do this or not, ptxas (13.0 at least) may put REDUX under a predicate in place of a branch, and
  // takes that of another condition, as it does not know the one of the warp there. It branches around a barrier.
  __syncwarp();
  return __int_as_float(in_order(__reduce_max_sync(0xffffffffu, bits)));
}
__device__ __forceinline__ float warp_minimum(float value) { return -warp_maximum(-value); }

}  // namespace fw
