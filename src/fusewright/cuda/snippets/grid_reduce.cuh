// requires: block_reduce
// Reduction over blocks: each publishes its partial result, the one that arrives last combines them all.

namespace fw {

// Reduces `value` over the threads on THREAD_AXES and the blocks on GRID_AXES (bits as in block_group).
// Returns 1 in all threads of the last block to arrive, whose `value` is the result; 0 in the others.
// `partials` holds WIDTH states for each block and each group of threads, `semaphore` one zero for each group
// of blocks, which wraps back to zero. A partial's place and the order of combination do not depend on the
// order of arrival, so the result is the same in every run.
template <class State, int GRID_AXES, int THREAD_AXES, class Shape, int WIDTH>
__device__ __forceinline__ int grid_reduce(
    State (&value)[WIDTH], typename State::Memory workspace, typename State::Memory partials, int* semaphore) {
  block_reduce<State, THREAD_AXES, Shape>(value, workspace);

  const unsigned x = GRID_AXES & 1 ? gridDim.x : 1, y = GRID_AXES & 2 ? gridDim.y : 1;
  const unsigned z = GRID_AXES & 4 ? gridDim.z : 1;
  const unsigned blocks = x * y * z;
  const unsigned rank = (GRID_AXES & 1 ? blockIdx.x : 0) +
                        x * ((GRID_AXES & 2 ? blockIdx.y : 0) + y * (GRID_AXES & 4 ? blockIdx.z : 0));
  const unsigned segments_x = GRID_AXES & 1 ? 1 : gridDim.x, segments_y = GRID_AXES & 2 ? 1 : gridDim.y;
  const unsigned segment = (GRID_AXES & 1 ? 0 : blockIdx.x) +
                           segments_x * ((GRID_AXES & 2 ? 0 : blockIdx.y) +
                                         segments_y * (GRID_AXES & 4 ? 0 : blockIdx.z));

  const block_group<THREAD_AXES, Shape> group;
  const long long first = (long long)segment * blocks * WIDTH * group.columns + group.column;
  if (group.rank == 0) {
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) {
      partials.store(first + ((long long)rank * WIDTH + k) * group.columns, value[k]);
    }
  }
  // One thread's fences order what the whole block wrote before, and reads after, the barriers around them.
  // atomicInc returns to zero after `blocks` arrivals, which leaves the semaphore ready for the next launch.
  __syncthreads();
  bool arrived_last = false;
  if (group.thread == 0) {
    __threadfence();
    arrived_last = atomicInc(reinterpret_cast<unsigned*>(semaphore) + segment, blocks - 1) == blocks - 1;
    __threadfence();
  }
  if (!__syncthreads_or(arrived_last)) return 0;

#pragma unroll
  for (int k = 0; k < WIDTH; ++k) value[k] = State::identity();
  // A thread has several loads in flight, as all others wait for this block.
  constexpr unsigned ahead = WIDTH < 8 ? 8 / WIDTH : 1;
  unsigned block = group.rank;
  for (; block + (ahead - 1) * group.size < blocks; block += ahead * group.size) {
    State loaded[ahead][WIDTH];
#pragma unroll
    for (unsigned a = 0; a < ahead; ++a) {
#pragma unroll
      for (int k = 0; k < WIDTH; ++k) {
        const long long place = (long long)(block + a * group.size) * WIDTH + k;
        loaded[a][k] = partials.load_cg(first + place * group.columns);
      }
    }
#pragma unroll
    for (unsigned a = 0; a < ahead; ++a) {
#pragma unroll
      for (int k = 0; k < WIDTH; ++k) value[k] = State::combine(value[k], loaded[a][k]);
    }
  }
  for (; block < blocks; block += group.size) {
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) {
      value[k] = State::combine(
          value[k], partials.load_cg(first + ((long long)block * WIDTH + k) * group.columns));
    }
  }
  block_reduce<State, THREAD_AXES, Shape>(value, workspace);
  return 1;
}

}  // namespace fw
