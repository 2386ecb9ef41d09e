// requires:
// Loads before it are issued before a thread waits for one of them after it. The assembler orders instructions by the
// longest chain, that of a loaded index, and issues loads that are no part of it after the wait for the index. But it
// moves no load past a branch, so this is one that no thread takes: a grid has blocks.

namespace fw {

__device__ __forceinline__ void issue_loads() {
#ifdef __CUDA_ARCH__
  if (gridDim.z == 0) __trap();
#endif
}

}  // namespace fw
