// requires: block_reduce
// Reduction over the blocks of a cluster and the threads of each, through the shared memory of all of them.
//
// The kernel begins with cluster_arrive() and ends with cluster_wait(); between, each thread has arrived once
// more than it has waited. So a block that waits knows that all have started, and have read what they got.

namespace fw {

__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

__device__ __forceinline__ int cluster_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// The same place in the shared memory of block `rank` of the cluster.
template <class T> __device__ __forceinline__ T* in_block(T* shared, int rank) {
  T* place;
  asm("mapa.u64 %0, %1, %2;" : "=l"(place) : "l"(shared), "r"(rank));
  return place;
}

// Every thread gets the result of its group in all BLOCKS blocks. `workspace` is as of block_reduce; `exchange`
// has room for WIDTH states for each warp, or for each group where groups are no whole warps, of each block.
// The order of combination is that of the blocks, so they agree bit for bit.
template <class State, int AXES, class Shape, int BLOCKS, int WIDTH>
__device__ __forceinline__ void cluster_reduce(
    State (&value)[WIDTH], typename State::Memory workspace, typename State::Memory exchange) {
  const block_group<AXES, Shape> group;
  const bool in_warps = group.dense && group.size % 32 == 0;
  const int lane = group.thread & 31;
  // Who sends to each block: a warp what it found, or a group.
  const int senders = in_warps ? group.size / 32 : 1, all = senders * group.columns;
  const int sender = in_warps ? group.thread / 32 : group.column, first = group.column * senders;
  if (in_warps) {
    warp_reduce(value, 32, lane);
  } else {
    block_reduce<State, AXES, Shape>(value, workspace);
  }
  cluster_wait();
  for (int block = in_warps ? lane : group.rank; block < BLOCKS; block += in_warps ? 32 : group.size) {
    const typename State::Memory there = exchange.in_block(block);
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) there.store((cluster_rank() * all + sender) * WIDTH + k, value[k]);
  }
  cluster_arrive();
  cluster_wait();
#pragma unroll
  for (int k = 0; k < WIDTH; ++k) value[k] = State::identity();
  for (int i = in_warps ? lane : 0; i < BLOCKS * senders; i += in_warps ? 32 : 1) {
    const int from = i / senders * all + first + i % senders;
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) value[k] = State::combine(value[k], exchange.load(from * WIDTH + k));
  }
  cluster_arrive();
  if (in_warps) warp_reduce(value, 32, lane);
}

}  // namespace fw
