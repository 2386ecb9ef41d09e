// requires: block_reduce, grid_barrier
// Reductions over blocks: each publishes its partial result, and the one that arrives last combines them all
// (grid_reduce), or each does, after they have waited for each other (grid_all_reduce).
//
// `partials` holds WIDTH states for each block and each group of threads. A partial's place and the order of
// combination do not depend on the order of arrival, so the result is the same in every run.

namespace fw {

// Where a block stands among those that reduce together. GRID_AXES: bits as in block_group.
template <int GRID_AXES> struct grid_group {
  unsigned blocks;   // of the group
  unsigned rank;     // this block's index in the group, x fastest
  unsigned segment;  // the group's index in the grid
  unsigned groups;   // how many groups there are

  __device__ __forceinline__ grid_group() {
    const unsigned x = GRID_AXES & 1 ? gridDim.x : 1, y = GRID_AXES & 2 ? gridDim.y : 1;
    const unsigned z = GRID_AXES & 4 ? gridDim.z : 1;
    blocks = x * y * z;
    rank = (GRID_AXES & 1 ? blockIdx.x : 0) +
           x * ((GRID_AXES & 2 ? blockIdx.y : 0) + y * (GRID_AXES & 4 ? blockIdx.z : 0));
    const unsigned groups_x = GRID_AXES & 1 ? 1 : gridDim.x, groups_y = GRID_AXES & 2 ? 1 : gridDim.y;
    segment = (GRID_AXES & 1 ? 0 : blockIdx.x) +
              groups_x * ((GRID_AXES & 2 ? 0 : blockIdx.y) + groups_y * (GRID_AXES & 4 ? 0 : blockIdx.z));
    groups = groups_x * groups_y * (GRID_AXES & 4 ? 1 : gridDim.z);
  }
};

// Stores the block's partial result among those that start at `first`.
template <class State, class Group, int WIDTH>
__device__ __forceinline__ void publish(
    State (&value)[WIDTH], const Group& group, typename State::Memory partials, long long first, unsigned rank) {
  if (group.rank == 0) {
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) {
      partials.store(first + ((long long)rank * WIDTH + k) * group.columns, value[k]);
    }
  }
}

// Combines the partial results of all `blocks`, which start at `first`, over the threads of each group.
template <class State, int THREAD_AXES, class Shape, class Group, int WIDTH>
__device__ __forceinline__ void combine_published(
    State (&value)[WIDTH], const Group& group, typename State::Memory workspace, typename State::Memory partials,
    long long first, unsigned blocks) {
#pragma unroll
  for (int k = 0; k < WIDTH; ++k) value[k] = State::identity();
  // A thread has several loads in flight, as others wait for this block.
  constexpr unsigned ahead = WIDTH < 16 ? 16 / WIDTH : 1;
  for (unsigned block = group.rank; block < blocks; block += ahead * group.size) {
    State loaded[ahead][WIDTH];
#pragma unroll
    for (unsigned a = 0; a < ahead; ++a) {
      const unsigned from = block + a * group.size;
#pragma unroll
      for (int k = 0; k < WIDTH; ++k) {
        loaded[a][k] = State::identity();
        if (from < blocks) {
          loaded[a][k] = partials.load_cg(first + ((long long)from * WIDTH + k) * group.columns);
        }
      }
    }
#pragma unroll
    for (unsigned a = 0; a < ahead; ++a) {
#pragma unroll
      for (int k = 0; k < WIDTH; ++k) value[k] = State::combine(value[k], loaded[a][k]);
    }
  }
  block_reduce<State, THREAD_AXES, Shape>(value, workspace);
}

// Counts an arrival, from `most` back to zero, which leaves the semaphore ready for the next launch; returns the
// count before. One thread's arrival orders what the whole block wrote before, and reads after, the barriers around
// it: it releases and acquires, which costs less than two fences (PTX ISA, memory consistency model).
__device__ __forceinline__ unsigned arrive(unsigned* semaphore, unsigned most) {
#ifdef __CUDA_ARCH__
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(__cvta_generic_to_global(semaphore)), "r"(most)
               : "memory");
  return before;
#else
  return atomicInc(semaphore, most);
#endif
}

// A reduction of `value` over the threads on THREAD_AXES and the blocks on GRID_AXES, whose result the last block to
// arrive has. `last` becomes 1 in all threads of that block, and 0 in the others. `semaphore` holds one zero for each
// group of blocks, which wraps back to zero.
template <class State, int GRID_AXES, int THREAD_AXES, class Shape, int WIDTH, class Flag> struct grid_part_of {
  State (&value)[WIDTH];
  typename State::Memory workspace, partials;
  int* semaphore;
  Flag& last;
  grid_group<GRID_AXES> grid = {};
  block_group<THREAD_AXES, Shape> group = {};

  __device__ __forceinline__ long long first() const {
    return (long long)grid.segment * grid.blocks * WIDTH * group.columns + group.column;
  }
  __device__ __forceinline__ void publish_own() {
    block_reduce<State, THREAD_AXES, Shape>(value, workspace);
    publish(value, group, partials, first(), grid.rank);
  }
  __device__ __forceinline__ void combine_all() {
    if (last) combine_published<State, THREAD_AXES, Shape>(value, group, workspace, partials, first(), grid.blocks);
  }
};

template <class State, int GRID_AXES, int THREAD_AXES, class Shape, int WIDTH, class Flag>
__device__ __forceinline__ grid_part_of<State, GRID_AXES, THREAD_AXES, Shape, WIDTH, Flag> grid_part(
    State (&value)[WIDTH], typename State::Memory workspace, typename State::Memory partials, int* semaphore,
    Flag& last) {
  return {value, workspace, partials, semaphore, last};
}

// Reductions that do not need each other. All partial results are published before one barrier, and as many threads
// of a warp arrive for them at once.
template <class First, class... Others>
__device__ __forceinline__ void grid_reduce_together(First first, Others... others) {
  first.publish_own();
  (others.publish_own(), ...);
  __syncthreads();
  unsigned* arrivals = reinterpret_cast<unsigned*>(first.semaphore) + first.grid.segment;
  unsigned most = first.grid.blocks - 1;
  int number = 0;
  const int thread = first.group.thread;
  ((thread == ++number ? (void)(arrivals = reinterpret_cast<unsigned*>(others.semaphore) + others.grid.segment,
                                most = others.grid.blocks - 1)
                       : (void)0),
   ...);
  const bool arrived_last = thread <= number && arrive(arrivals, most) == most;
  first.last = __syncthreads_or(thread == 0 && arrived_last) != 0;
  number = 0;
  ((others.last = __syncthreads_or(thread == ++number && arrived_last) != 0), ...);
  first.combine_all();
  (others.combine_all(), ...);
}

// One such reduction; returns `last`.
template <class State, int GRID_AXES, int THREAD_AXES, class Shape, int WIDTH>
__device__ __forceinline__ int grid_reduce(
    State (&value)[WIDTH], typename State::Memory workspace, typename State::Memory partials, int* semaphore) {
  int last;
  grid_reduce_together(
      grid_part<State, GRID_AXES, THREAD_AXES, Shape>(value, workspace, partials, semaphore, last));
  return last;
}

// What blocks say to each other in a round of all-reduces: a word of a state in the upper half, the number of the round
// in the lower. Both are stored, and loaded, at once, so a word that is there needs no other sign.
__device__ __forceinline__ void say(unsigned long long* slot, unsigned word, unsigned round) {
  const unsigned long long said = (unsigned long long)word << 32 | round;
#ifdef __CUDA_ARCH__
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(slot)), "l"(said) : "memory");
#else
  *(volatile unsigned long long*)slot = said;
#endif
}

__device__ __forceinline__ unsigned long long hear(const unsigned long long* slot) {
  unsigned long long said;
#ifdef __CUDA_ARCH__
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(said) : "l"(__cvta_generic_to_global(slot)) : "memory");
#else
  said = *(const volatile unsigned long long*)slot;
#endif
  return said;
}

// `exchange` begins with the round that each block of the grid is in.
__device__ __forceinline__ unsigned long long* round_of_block(long long* exchange) {
  return reinterpret_cast<unsigned long long*>(exchange) + grid_group<7>().rank;
}

// The last round of the launch before, which all blocks have ended: what a kernel begins with.
__device__ __forceinline__ unsigned grid_round(long long* exchange) { return (unsigned)*round_of_block(exchange); }

// The same, with the result in all blocks, which are all resident at once. Rounds use two halves of `exchange` in
// turn: a block has what all others say in one round only after they have heard what was said in the round before.
template <class State, int GRID_AXES, int THREAD_AXES, class Shape, int WIDTH>
__device__ __forceinline__ void grid_all_reduce(
    State (&value)[WIDTH], typename State::Memory workspace, long long* exchange, unsigned& round) {
  constexpr int words = (sizeof(State) + 3) / 4;
  constexpr int per_step = words < 8 ? 8 / words : 1;  // states that a thread waits for at once
  constexpr int beside = WIDTH < per_step ? WIDTH : per_step, ahead = per_step / beside;
  const grid_group<GRID_AXES> grid;
  const block_group<THREAD_AXES, Shape> group;
  block_reduce<State, THREAD_AXES, Shape>(value, workspace);
  ++round;
  const long long blocks = (long long)grid.groups * grid.blocks;
  unsigned long long* const slots =
      reinterpret_cast<unsigned long long*>(exchange) + blocks +
      (((round & 1) * blocks + (long long)grid.segment * grid.blocks) * WIDTH * group.columns + group.column) * words;
  const auto slot = [&](unsigned block, int k) {
    return slots + ((long long)block * WIDTH + k) * group.columns * words;
  };
  if (group.rank == 0) {
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) {
      unsigned state[words] = {};
      memcpy(state, &value[k], sizeof(State));
#pragma unroll
      for (int w = 0; w < words; ++w) say(slot(grid.rank, k) + w, state[w], round);
    }
  }
  if (group.thread == 0) *round_of_block(exchange) = round;
#pragma unroll
  for (int k = 0; k < WIDTH; ++k) value[k] = State::identity();
  for (unsigned block = group.rank; block < grid.blocks; block += ahead * group.size) {
#pragma unroll
    for (int first = 0; first < WIDTH; first += beside) {
      unsigned long long heard[ahead][beside][words];
      bool complete;
      do {
        complete = true;
#pragma unroll
        for (int a = 0; a < ahead; ++a) {
          const unsigned from = block + a * group.size;
#pragma unroll
          for (int k = 0; k < beside; ++k) {
#pragma unroll
            for (int w = 0; w < words; ++w) {
              if (from < grid.blocks && first + k < WIDTH) {
                heard[a][k][w] = hear(slot(from, first + k) + w);
                complete = complete && (unsigned)heard[a][k][w] == round;
              }
            }
          }
        }
      } while (!complete);
#pragma unroll
      for (int a = 0; a < ahead; ++a) {
#pragma unroll
        for (int k = 0; k < beside; ++k) {
          if (block + a * group.size < grid.blocks && first + k < WIDTH) {
            unsigned words_of[words];
#pragma unroll
            for (int w = 0; w < words; ++w) words_of[w] = heard[a][k][w] >> 32;
            State state;
            memcpy(&state, words_of, sizeof(State));
            value[first + k] = State::combine(value[first + k], state);
          }
        }
      }
    }
  }
  block_reduce<State, THREAD_AXES, Shape>(value, workspace);
}

}  // namespace fw
