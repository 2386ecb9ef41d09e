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

// The same, with the result in all blocks, which are all resident at once. `partials` has room for two
// results of each block, used in turn: a block may be one reduction ahead of another, and not two. `semaphore`
// holds what a grid_barrier needs for each group of blocks, whose top bit tells the turns apart.
template <class State, int GRID_AXES, int THREAD_AXES, class Shape, int WIDTH>
__device__ __forceinline__ void grid_all_reduce(
    State (&value)[WIDTH], typename State::Memory workspace, typename State::Memory partials, int* semaphore) {
  const grid_group<GRID_AXES> grid;
  const block_group<THREAD_AXES, Shape> group;
  const unsigned turn = *(volatile unsigned*)(semaphore + grid.segment) >> 31;
  block_reduce<State, THREAD_AXES, Shape>(value, workspace);
  const long long first =
      ((long long)turn * grid.groups + grid.segment) * grid.blocks * WIDTH * group.columns + group.column;
  publish(value, group, partials, first, grid.rank);
  grid_barrier(semaphore + grid.segment, grid.blocks, grid.rank == 0);
  combine_published<State, THREAD_AXES, Shape>(value, group, workspace, partials, first, grid.blocks);
}

}  // namespace fw
