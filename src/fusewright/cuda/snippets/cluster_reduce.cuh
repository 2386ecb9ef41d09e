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

// Groups that are every X-th lane of `warps` whole warps; this thread's is the block's `number`-th of these. What the
// warps of a block found in a column goes to all blocks at once.
template <int BLOCKS, class Shape, class State, int X, int WIDTH>
__device__ __forceinline__ void reduce_every_xth_lane_of_cluster(
    State (&value)[WIDTH], int thread, int number, int groups, int warps, typename State::Memory workspace,
    typename State::Memory exchange) {
  constexpr int columns = X * WIDTH;
  const int begin = number * warps * columns, place = number * columns;
  const int threads = warps * 32, mine = thread - number * threads;
  // Threads beyond those that there is a column for send it to other blocks.
  const int apart = threads < columns ? threads : columns, parts = threads / apart;
  cluster_wait();
  store_columns_of_warp<State, X>(value, thread, workspace);
  Shape::sync();
  if (mine < parts * apart) {
    for (int column = mine % apart; column < columns; column += apart) {
      const State total = column_of_warps<State>(workspace, begin, columns, column, warps);
      for (int block = mine / apart; block < BLOCKS; block += parts) {
        exchange.in_block(block).store(cluster_rank() * groups * columns + place + column, total);
      }
    }
  }
  cluster_arrive();
  cluster_wait();
#pragma unroll
  for (int k = 0; k < WIDTH; ++k) value[k] = exchange.load(place + (thread & (X - 1)) * WIDTH + k);
#pragma unroll 4
  for (int block = 1; block < BLOCKS; ++block) {
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) {
      const int from = block * groups * columns + place + (thread & (X - 1)) * WIDTH + k;
      value[k] = State::combine(value[k], exchange.load(from));
    }
  }
  cluster_arrive();
}

// Every thread gets the result of its group in all BLOCKS blocks. `workspace` is as of block_reduce; `exchange`
// has room for WIDTH states for each warp, or for each group if these are more, of each block. The order of
// combination is that of the blocks, so they agree bit for bit.
template <class State, int AXES, class Shape, int BLOCKS, int WIDTH>
__device__ __forceinline__ void cluster_reduce(
    State (&value)[WIDTH], typename State::Memory workspace, typename State::Memory exchange) {
  const block_group<AXES, Shape> group;
  if constexpr (Shape::interleaves(AXES)) {
    constexpr int warps = Shape::X_EXTENT * Shape::rows(AXES) / 32;
    const int number = (group.thread >> 5) / warps;
    reduce_every_xth_lane_of_cluster<BLOCKS, Shape, State, Shape::X_EXTENT>(
        value, group.thread, number, AXES == 4 ? 1 : Shape::z(), warps, workspace, exchange);
    return;
  }
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
