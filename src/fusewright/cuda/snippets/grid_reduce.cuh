// requires: block_reduce
// Reductions over blocks: each says what it has found, and the one that started last combines what all say
// (grid_reduce), or each does (grid_all_reduce). In a scan (grid_scan) each also combines what those before it say.
//
// A block says a word of a state and the number of the round that it is of in 64 bits, which are stored, and loaded, at
// once. So whoever waits for a word has it as soon as it is there, and nobody waits for a fence, an arrival and the word
// one after another. The one that started last waits for blocks that have started, which do not wait for it.
//
// `exchange` belongs to launches of one grid, and is zero before the first. It holds for each block the round that it is
// in, for each group of blocks how many have started, and what they say: WIDTH states for each block and each group of
// threads, in a place that does not depend on when blocks arrive, as the order of combination does not. So the
// result is the same in every run.

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

// `exchange` as what it is made of. TURNS: how many rounds have places of their own, which they use in turn. THREADS of a
// group, or 0, share what the blocks of a grid say: where they are many, each has little to wait for.
template <class State, int WIDTH, int TURNS, class Grid, class Group, int THREADS> struct grid_exchange {
  static constexpr int WORDS = (sizeof(State) + 3) / 4;
  static constexpr int WORDS_AT_ONCE = THREADS < 128 ? 8 : 2;
  static constexpr int AT_ONCE = WORDS < WORDS_AT_ONCE ? WORDS_AT_ONCE / WORDS : 1;  // states a thread waits for
  static constexpr int BESIDE = WIDTH < AT_ONCE ? WIDTH : AT_ONCE, AHEAD = AT_ONCE / BESIDE;
  const Grid& grid;
  const Group& group;
  unsigned long long* exchange;
  unsigned round;

  // Of state `k` that block `rank` of the group says to this thread's group.
  __device__ __forceinline__ unsigned long long* slot(unsigned rank, int k) const {
    const long long blocks = (long long)grid.groups * grid.blocks;
    const long long block = (round % TURNS) * blocks + (long long)grid.segment * grid.blocks + rank;
    return exchange + 2 * blocks + ((block * WIDTH + k) * group.columns + group.column) * WORDS;
  }

  __device__ __forceinline__ void say(const State (&value)[WIDTH]) const {
    if (group.rank == 0) {
#pragma unroll
      for (int k = 0; k < WIDTH; ++k) {
        unsigned state[WORDS] = {};
        memcpy(state, &value[k], sizeof(State));
#pragma unroll
        for (int w = 0; w < WORDS; ++w) {
          const unsigned long long said = (unsigned long long)state[w] << 32 | round;
#ifdef __CUDA_ARCH__
          asm volatile("st.relaxed.gpu.global.u64 [%0], %1;"
                       ::"l"(__cvta_generic_to_global(slot(grid.rank, k) + w)), "l"(said) : "memory");
#else
          *(volatile unsigned long long*)(slot(grid.rank, k) + w) = said;
#endif
        }
      }
    }
  }

  static __device__ __forceinline__ unsigned long long hear(const unsigned long long* slot) {
    unsigned long long said;
#ifdef __CUDA_ARCH__
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(said) : "l"(__cvta_generic_to_global(slot)) : "memory");
#else
    said = *(const volatile unsigned long long*)slot;
#endif
    return said;
  }

  // What all blocks say, combined over the threads of a group as far as each goes alone.
  __device__ __forceinline__ void combine(State (&value)[WIDTH]) const {
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) value[k] = State::identity();
    combine_first(grid.blocks, value);
  }

  // The same of so many blocks, onto `value`. All lanes of a warp leave the waiting loop in the same iteration. The
  // assembler puts a YIELD into such loops, after which lanes that did not wait may run ahead of those that did, and
  // NVRTC 13.0 for sm_90a did not always reconverge the warp before the next shuffle: sums of odd columns were 0.
  __device__ __forceinline__ void combine_first(unsigned blocks, State* value) const {
    for (unsigned first_block = 0; first_block < blocks; first_block += AHEAD * group.size) {
      const unsigned block = first_block + group.rank;
#pragma unroll
      for (int first = 0; first < WIDTH; first += BESIDE) {
        unsigned long long heard[AHEAD][BESIDE][WORDS];
        bool complete;
        do {
          complete = true;
#pragma unroll
          for (int a = 0; a < AHEAD; ++a) {
            const unsigned from = block + a * group.size;
#pragma unroll
            for (int k = 0; k < BESIDE; ++k) {
#pragma unroll
              for (int w = 0; w < WORDS; ++w) {
                if (from < blocks && first + k < WIDTH) heard[a][k][w] = hear(slot(from, first + k) + w);
              }
            }
          }
#pragma unroll
          for (int a = 0; a < AHEAD; ++a) {
#pragma unroll
            for (int k = 0; k < BESIDE; ++k) {
#pragma unroll
              for (int w = 0; w < WORDS; ++w) {
                const bool is_wanted = block + a * group.size < blocks && first + k < WIDTH;
                complete = complete && (!is_wanted || (unsigned)heard[a][k][w] == round);
              }
            }
          }
        } while (!__all_sync(0xffffffffu, complete));
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
#pragma unroll
          for (int k = 0; k < BESIDE; ++k) {
            if (block + a * group.size < blocks && first + k < WIDTH) {
              unsigned words[WORDS];
#pragma unroll
              for (int w = 0; w < WORDS; ++w) words[w] = heard[a][k][w] >> 32;
              State state;
              memcpy(&state, words, sizeof(State));
              value[first + k] = State::combine(value[first + k], state);
            }
          }
        }
      }
    }
  }
};

// The last round of the launch before, which all blocks have ended: what a kernel begins with.
__device__ __forceinline__ unsigned grid_round(const long long* exchange) {
  return (unsigned)*(const volatile long long*)(exchange + grid_group<7>().rank);
}

// The same for the next launch, once all threads of the block have passed a barrier since `grid_round`.
__device__ __forceinline__ void set_grid_round(long long* exchange, int thread, unsigned round) {
  if (thread == 0) exchange[grid_group<7>().rank] = round;
}

// How many blocks of its group have started before, as the first thread of a block knows: what a kernel begins with. The
// count wraps back to zero. Nobody looks at it before the reduction, so nobody waits for it either.
template <int GRID_AXES> __device__ __forceinline__ unsigned grid_started_before(long long* exchange) {
  const grid_group<GRID_AXES> grid;
  unsigned before = ~0u;
  unsigned* const started =
      reinterpret_cast<unsigned*>(exchange + (long long)grid.groups * grid.blocks + grid.segment);
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) before = atomicInc(started, grid.blocks - 1);
  return before;
}

// A reduction of `value` over the threads on THREAD_AXES and the blocks on GRID_AXES, whose result the block has that
// started last of its group. `last` becomes 1 in all threads of that block, and 0 in the others.
template <class State, int GRID_AXES, int THREAD_AXES, class Shape, int WIDTH, class Flag> struct grid_part_of {
  using Grid = grid_group<GRID_AXES>;
  using Group = block_group<THREAD_AXES, Shape>;
  State (&value)[WIDTH];
  typename State::Memory workspace;
  long long* exchange;
  unsigned& round;
  unsigned started_before;
  Flag& last;

  // That of the last block to start.
  __device__ __forceinline__ unsigned last_number() const { return Grid().blocks - 1; }
  __device__ __forceinline__ void say() {
    block_reduce<State, THREAD_AXES, Shape>(value, workspace);
    ++round;
    const Grid grid;
    const Group group;
    words(grid, group).say(value);
  }
  __device__ __forceinline__ void combine() {
    const Grid grid;
    const Group group;
    set_grid_round(exchange, group.thread, round);
    if (!last) return;
    words(grid, group).combine(value);
    block_reduce<State, THREAD_AXES, Shape>(value, workspace);
  }
  __device__ __forceinline__ grid_exchange<State, WIDTH, 1, Grid, Group, Shape::threads(THREAD_AXES)> words(
      const Grid& grid, const Group& group) {
    return {grid, group, reinterpret_cast<unsigned long long*>(exchange), round};
  }
};

template <class State, int GRID_AXES, int THREAD_AXES, class Shape, int WIDTH, class Flag>
__device__ __forceinline__ grid_part_of<State, GRID_AXES, THREAD_AXES, Shape, WIDTH, Flag> grid_part(
    State (&value)[WIDTH], typename State::Memory workspace, long long* exchange, unsigned& round, unsigned started_before,
    Flag& last) {
  return {value, workspace, exchange, round, started_before, last};
}

// Reductions that do not need each other: a block says what it has found for all before it waits for others.
template <class... Parts> __device__ __forceinline__ void grid_reduce_together(Parts... parts) {
  (parts.say(), ...);
  ((parts.last = __syncthreads_or(parts.started_before == parts.last_number()) != 0), ...);
  (parts.combine(), ...);
}

// One such reduction; returns `last`.
template <class State, int GRID_AXES, int THREAD_AXES, class Shape, int WIDTH>
__device__ __forceinline__ int grid_reduce(
    State (&value)[WIDTH], typename State::Memory workspace, long long* exchange, unsigned& round, unsigned started_before) {
  int last;
  grid_reduce_together(
      grid_part<State, GRID_AXES, THREAD_AXES, Shape>(value, workspace, exchange, round, started_before, last));
  return last;
}

// The same, with the result in all blocks, which are all resident at once. Rounds use two places in turn: a block has
// what all others say in one round only after they have heard what was said in the round before.
template <class State, int GRID_AXES, int THREAD_AXES, class Shape, int WIDTH>
__device__ __forceinline__ void grid_all_reduce(
    State (&value)[WIDTH], typename State::Memory workspace, long long* exchange, unsigned& round) {
  using Grid = grid_group<GRID_AXES>;
  using Group = block_group<THREAD_AXES, Shape>;
  const Grid grid;
  const Group group;
  block_reduce<State, THREAD_AXES, Shape>(value, workspace);
  ++round;
  const grid_exchange<State, WIDTH, 2, Grid, Group, Shape::threads(THREAD_AXES)> words = {
      grid, group, reinterpret_cast<unsigned long long*>(exchange), round};
  words.say(value);
  words.combine(value);
  __syncthreads();
  set_grid_round(exchange, group.thread, round);
  block_reduce<State, THREAD_AXES, Shape>(value, workspace);
}

// What the blocks before say of `value`, onto a carry that continues the scan from one call to the next. Threads that
// differ on THREAD_AXES alone have the same values and carries.
//
// What all blocks say in a round is in the carry only in the next one (`first`: the round before the first), when it has
// long been there: a block waits in its round for those before it alone, so in the end each comes as late as it has to.
// A block says something new in the place of four rounds ago. Whoever still hears that is two rounds back, and a block
// has what all say in a round before it is two rounds on.
template <class State, int GRID_AXES, int THREAD_AXES, class Shape, int WIDTH>
__device__ __forceinline__ void grid_scan(
    State (&value)[WIDTH], State (&carry)[WIDTH], typename State::Memory workspace, long long* exchange,
    unsigned& round, unsigned first) {
  using Grid = grid_group<GRID_AXES>;
  using Group = block_group<THREAD_AXES, Shape>;
  using Exchange = grid_exchange<State, WIDTH, 4, Grid, Group, Shape::threads(THREAD_AXES)>;
  const Grid grid;
  const Group group;
  unsigned long long* const words = reinterpret_cast<unsigned long long*>(exchange);
  const Exchange last = {grid, group, words, round};
  ++round;
  const Exchange now = {grid, group, words, round};
  now.say(value);
  State said[2 * WIDTH];
#pragma unroll
  for (int k = 0; k < 2 * WIDTH; ++k) said[k] = State::identity();
  if (last.round != first) last.combine_first(grid.blocks, said);
  now.combine_first(grid.rank, said + WIDTH);
  __syncthreads();
  set_grid_round(exchange, group.thread, round);
  block_reduce<State, THREAD_AXES, Shape>(said, workspace);
#pragma unroll
  for (int k = 0; k < WIDTH; ++k) {
    if (last.round != first) carry[k] = State::combine(carry[k], said[k]);
    value[k] = carry[k];
    if (grid.rank) value[k] = State::combine(carry[k], said[WIDTH + k]);
  }
}

}  // namespace fw
