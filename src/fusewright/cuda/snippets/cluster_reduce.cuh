// requires: block_reduce
// Reduction over the blocks of a cluster and the threads of each, through the shared memory of all of them.
//
// What blocks send each other announces itself to an mbarrier of the receiver (PTX ISA, st.async), so nobody waits
// for anything else that threads have under way, as fences do. Reductions take turns with two mbarriers, and two
// places in `exchange`: a block that has what all others send in one turn knows that they have read what they got
// in the turn before, which is where it sends next. One that has had its last turn is sent nothing more.

namespace fw {

// Two mbarriers of this block, for turns of even and odd number.
__device__ __forceinline__ unsigned int cluster_mbarrier(int turn) {
  __shared__ long long mbarriers[2];
  return static_cast<unsigned int>(__cvta_generic_to_shared(&mbarriers[turn & 1]));
}

// What a kernel begins with; the first turn waits until all blocks of the cluster have done so.
__device__ __forceinline__ void cluster_begin() {
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
    for (int turn = 0; turn < 2; ++turn) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(cluster_mbarrier(turn)) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

__device__ __forceinline__ int cluster_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// The same place in the shared memory of block `rank` of the cluster.
__device__ __forceinline__ unsigned int in_block(unsigned int shared, int rank) {
  unsigned int place;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(place) : "r"(shared), "r"(rank));
  return place;
}

// Bytes that a value takes in `exchange`: whole words, which are what can be sent.
template <class T> constexpr int sent_bytes = sizeof(T) < 4 ? 4 : int(sizeof(T));

template <class T> __device__ __forceinline__ void send(T* exchange, int i, T value, int rank, int turn) {
  const unsigned int own = static_cast<unsigned int>(__cvta_generic_to_shared(exchange));
  const unsigned int there = in_block(own + i * sent_bytes<T>, rank), told = in_block(cluster_mbarrier(turn), rank);
  unsigned int words[sent_bytes<T> / 4] = {};
  memcpy(words, &value, sizeof(T));
#pragma unroll
  for (int k = 0; k < sent_bytes<T> / 4; ++k) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(there + 4 * k),
        "r"(words[k]), "r"(told) : "memory");
  }
}

template <class T> __device__ __forceinline__ T received(const T* exchange, int i) {
  return *reinterpret_cast<const T*>(reinterpret_cast<const char*>(exchange) + i * sent_bytes<T>);
}

// Before the first send of a turn, in which this block gets so many bytes.
__device__ __forceinline__ void begin_turn(int turn, int bytes) {
  if (turn == 0) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(cluster_mbarrier(turn)), "r"(bytes)
                 : "memory");
  }
}

// Until all of it is there.
__device__ __forceinline__ void wait_for_turn(int turn) {
  asm volatile(
      "{\n"
      ".reg .pred ended;\n"
      "AGAIN: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 ended, [%0], %1;\n"
      "@!ended bra AGAIN;\n"
      "}" ::"r"(cluster_mbarrier(turn)), "r"(turn >> 1 & 1) : "memory");
}

// What all blocks sent of a value, in the order of blocks.
template <int BLOCKS, class State>
__device__ __forceinline__ State received_from_all(typename State::Memory exchange, int own, int from_block) {
  State found[BLOCKS];
#pragma unroll
  for (int block = 0; block < BLOCKS; ++block) found[block] = exchange.received(own + block * from_block);
  return combined<BLOCKS>(found);
}

// Groups that are every X-th lane of WARPS whole warps; this thread's is the block's `number`-th of these. What the
// warps of a block found in a column goes to all blocks at once.
template <int BLOCKS, class Shape, class State, int X, int WARPS, int WIDTH>
__device__ __forceinline__ void reduce_every_xth_lane_of_cluster(
    State (&value)[WIDTH], int thread, int number, int groups, typename State::Memory workspace,
    typename State::Memory exchange, int turn) {
  constexpr int columns = X * WIDTH;
  const int begin = number * WARPS * columns, from_block = groups * columns;
  const int first = (turn & 1) * BLOCKS * from_block + number * columns;
  const int threads = WARPS * 32, mine = thread - number * threads;
  // Threads beyond those that there is a column for send it to other blocks.
  const int apart = threads < columns ? threads : columns, parts = threads / apart;
  Shape::sync();
  store_columns_of_warp<State, X>(value, thread, workspace);
  begin_turn(turn, BLOCKS * from_block * State::SENT_BYTES);
  Shape::sync();
  if (mine < parts * apart) {
    for (int column = mine % apart; column < columns; column += apart) {
      const State total = column_of_warps<State, WARPS>(workspace, begin, columns, column);
      for (int block = mine / apart; block < BLOCKS; block += parts) {
        exchange.send(first + cluster_rank() * from_block + column, total, block, turn);
      }
    }
  }
  // Threads that send a column elsewhere have read it, too: that this block got it says nothing about them.
  if (BLOCKS > 2 && parts > 1) Shape::sync();
  wait_for_turn(turn);
  const int own = begin + (thread & (X - 1)) * WIDTH;
  if constexpr (BLOCKS > 2) {
    // One thread a column combines what it got, and the others get that from it: what all blocks sent has been read
    // from `workspace`.
#pragma unroll 1
    for (int column = mine; column < columns; column += threads) {
      workspace.store(begin + column, received_from_all<BLOCKS, State>(exchange, first + column, from_block));
    }
    Shape::sync();
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) value[k] = workspace.load(own + k);
  } else {
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) {
      value[k] = received_from_all<BLOCKS, State>(exchange, first + own - begin + k, from_block);
    }
  }
}

// Every thread gets the result of its group in all BLOCKS blocks. `workspace` is as of block_reduce; `exchange`
// has room for WIDTH states for each warp, or for each group if these are more, of each block, twice. `turn`
// counts the reductions. The order of combination is that of the blocks, so they agree bit for bit.
template <class State, int AXES, class Shape, int BLOCKS, int WIDTH>
__device__ __forceinline__ void cluster_reduce(
    State (&value)[WIDTH], typename State::Memory workspace, typename State::Memory exchange, int& turn) {
  const block_group<AXES, Shape> group;
  if constexpr (Shape::interleaves(AXES)) {
    constexpr int warps = Shape::X_EXTENT * Shape::rows(AXES) / 32;
    const int number = (group.thread >> 5) / warps;
    reduce_every_xth_lane_of_cluster<BLOCKS, Shape, State, Shape::X_EXTENT, warps>(
        value, group.thread, number, AXES == 4 ? 1 : Shape::z(), workspace, exchange, turn);
    ++turn;
    return;
  }
  const bool in_warps = group.dense && group.size % 32 == 0;
  const int lane = group.thread & 31;
  // Who sends to each block: a warp what it found, or a group.
  const int senders = in_warps ? group.size / 32 : 1, all = senders * group.columns;
  const int sender = in_warps ? group.thread / 32 : group.column;
  const int place = (turn & 1) * BLOCKS * all, first = place + group.column * senders;
  begin_turn(turn, BLOCKS * all * WIDTH * State::SENT_BYTES);
  if (in_warps) {
    warp_reduce(value, 32, lane);
  } else {
    block_reduce<State, AXES, Shape>(value, workspace);
    Shape::sync();
  }
  for (int block = in_warps ? lane : group.rank; block < BLOCKS; block += in_warps ? 32 : group.size) {
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) {
      exchange.send((place + cluster_rank() * all + sender) * WIDTH + k, value[k], block, turn);
    }
  }
  wait_for_turn(turn);
#pragma unroll
  for (int k = 0; k < WIDTH; ++k) value[k] = State::identity();
  for (int i = in_warps ? lane : 0; i < BLOCKS * senders; i += in_warps ? 32 : 1) {
    const int from = first + i / senders * all + i % senders;
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) value[k] = State::combine(value[k], exchange.received(from * WIDTH + k));
  }
  if (in_warps) warp_reduce(value, 32, lane);
  ++turn;
}

}  // namespace fw
