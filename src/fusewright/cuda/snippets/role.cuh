// requires: block_reduce
// The first threads of a block as a block of their own: what a role that reduces is, beside other roles.

namespace fw {

// NUMBER: of the hardware barrier, 1 to 15, which no other role uses.
template <int X, int Y, int Z, int NUMBER> struct role_shape {
  static constexpr bool is_known = X && Y && Z;
  static constexpr int X_EXTENT = X;
  static __device__ __forceinline__ int index_y() { return Y == 1 ? 0 : int(threadIdx.y); }
  static __device__ __forceinline__ int index_z() { return Z == 1 ? 0 : int(threadIdx.z); }
  static __device__ constexpr bool interleaves(int) { return false; }  // its workspace has room for all values
  static __device__ __forceinline__ int x() { return X; }
  static __device__ __forceinline__ int y() { return Y; }
  static __device__ __forceinline__ int z() { return Z; }
  // The barrier counts warps, so the threads of a warp come to it together.
  static __device__ __forceinline__ void sync() {
    __syncwarp();
    asm volatile("bar.sync %0, %1;" ::"n"(NUMBER), "n"(X * Y * Z) : "memory");
  }
};

template <class Shape> __device__ __forceinline__ void role_barrier() { Shape::sync(); }

// Registers of each thread of a role from here on (PTX ISA, setmaxnreg).
template <int COUNT> __device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> __device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

}  // namespace fw
