// requires: warp_reduce
// Reduction over the threads of a block along some of its axes; every thread gets the result of its group.
// It begins with a barrier, so that it may use the same workspace as the one before it, unless it is ORDERED: then
// all threads have passed a barrier since the workspace was last used.
//
// State is as in warp_reduce; State::Memory holds one pointer a state, with load(i) and store(i, state).

namespace fw {

// The extents of the block, 0 where they are known only at run time.
template <int X, int Y, int Z> struct block_shape {
  static constexpr int X_EXTENT = X;
  // Where the thread stands along an axis, 0 where that is known.
  static __device__ __forceinline__ int index_y() { return Y == 1 ? 0 : int(threadIdx.y); }
  static __device__ __forceinline__ int index_z() { return Z == 1 ? 0 : int(threadIdx.z); }
  // How many rows of threads groups along y, or along z alone, go down; 0 for other groups.
  static __device__ constexpr int rows(int axes) { return axes == 2 ? Y : axes == 4 && Y == 1 ? Z : 0; }
  // Whether these are every X-th lane of whole warps, in more rows than one thread adds up in no time.
  static __device__ constexpr bool interleaves(int axes) {
    return X > 1 && X <= 32 && (X & (X - 1)) == 0 && rows(axes) > 8 && X * rows(axes) % 32 == 0;
  }
  static __device__ __forceinline__ int x() { return X ? X : int(blockDim.x); }
  static __device__ __forceinline__ int y() { return Y ? Y : int(blockDim.y); }
  static __device__ __forceinline__ int z() { return Z ? Z : int(blockDim.z); }
  static constexpr bool is_known = X && Y && Z;
  // Threads that differ along `axes` alone, 0 where that is known only at run time.
  static __device__ constexpr int threads(int axes) {
    return is_known ? (axes & 1 ? X : 1) * (axes & 2 ? Y : 1) * (axes & 4 ? Z : 1) : 0;
  }
  // A barrier of all these threads.
  static __device__ __forceinline__ void sync() { __syncthreads(); }
};

// Where a thread stands among those that reduce together. AXES: bit 0 for x, bit 1 for y, bit 2 for z.
template <int AXES, class Shape> struct block_group {
  int thread;   // linear index in the block
  int size;     // threads of the group
  int rank;     // this thread's index in the group, x fastest
  int column;   // the group's index in the block
  int columns;  // how many groups there are
  bool dense;   // the group is a range of linear thread indices

  __device__ __forceinline__ block_group() {
    const int x = Shape::x(), y = Shape::y(), z = Shape::z();
    const int i = threadIdx.x, j = Shape::index_y(), k = Shape::index_z();
    const int sx = AXES & 1 ? x : 1, sy = AXES & 2 ? y : 1, sz = AXES & 4 ? z : 1;
    const int cx = AXES & 1 ? 1 : x, cy = AXES & 2 ? 1 : y;
    thread = i + x * (j + y * k);
    size = sx * sy * sz;
    columns = x * y * z / size;
    rank = (AXES & 1 ? i : 0) + sx * ((AXES & 2 ? j : 0) + sy * (AXES & 4 ? k : 0));
    column = (AXES & 1 ? 0 : i) + cx * ((AXES & 2 ? 0 : j) + cy * (AXES & 4 ? 0 : k));
    // Extents that are not reduced must be 1 below the outermost axis that is.
    dense = (AXES < 2 || cx == 1) && (AXES < 4 || cy == 1);
  }
};

// Groups of `warps` whole warps, this thread's starting at warp `first`: one value a warp, through `workspace`.
template <class Shape, bool ORDERED, class State, int WIDTH>
__device__ __forceinline__ void reduce_across_warps(
    State (&value)[WIDTH], int thread, int first, int warps, typename State::Memory workspace) {
  constexpr int few = 8;  // so many warps' values each thread loads side by side, which saves rounds of shuffles
  const int lane = thread & 31, warp = thread >> 5;
  int lanes = 1;
#pragma unroll
  for (int i = 0; i < 5; ++i) lanes = lanes < warps ? 2 * lanes : lanes;
  if (!ORDERED) Shape::sync();
  if (lane == 0) {
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) workspace.store(warp * WIDTH + k, value[k]);
  }
  Shape::sync();
  if (Shape::is_known && WIDTH <= 2 && warps <= few) {
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) {
      State of_warps[few];
#pragma unroll
      for (int i = 0; i < few; ++i) {
        of_warps[i] = i < warps ? workspace.load((first + i) * WIDTH + k) : State::identity();
      }
#pragma unroll
      for (int step = 1; step < few; step *= 2) {
#pragma unroll
        for (int i = 0; i + step < few; i += 2 * step) {
          if (i + step < warps) of_warps[i] = State::combine(of_warps[i], of_warps[i + step]);
        }
      }
      value[k] = of_warps[0];
    }
    return;
  }
  const int partner = lane & (lanes - 1);
#pragma unroll
  for (int k = 0; k < WIDTH; ++k) {
    value[k] = State::identity();
    if (partner < warps) value[k] = workspace.load((first + partner) * WIDTH + k);
  }
  warp_reduce(value, lanes, lane);
}

// Of every X-th lane of a warp, X a power of two up to 32: lanes of a column exchange halves of their values until
// each holds few, which go to `workspace`: X * WIDTH values a warp, column by column, or BY_VALUE, neighbours' side by
// side, so that no two lanes store to one bank.
template <class State, int X, bool BY_VALUE = false, int WIDTH>
__device__ __forceinline__ void store_columns_of_warp(
    State (&value)[WIDTH], int thread, typename State::Memory workspace) {
  const int lane = thread & 31;
  const int x = lane & (X - 1);
  int held = WIDTH, from = 0;
  bool writes = true;
#pragma unroll
  for (int mask = 16; mask >= X; mask >>= 1) {
    const bool upper = lane & mask;
    if (held % 2 == 0) {
      held /= 2;
#pragma unroll
      for (int k = 0; k < WIDTH; ++k) {
        if (k >= held) break;
        State kept = value[k], given = value[k + held];
        if (upper) {  // no choice between elements, whose addresses would keep them out of registers
          const State swapped = kept;
          kept = given;
          given = swapped;
        }
        value[k] = State::combine(kept, given.shuffle_xor(mask));
      }
      from += upper ? held : 0;
    } else {
      writes = writes && !upper;
#pragma unroll
      for (int k = 0; k < WIDTH; ++k) {
        if (k >= held) break;
        value[k] = State::combine(value[k], value[k].shuffle_xor(mask));
      }
    }
  }
  if (writes) {
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) {
      const int place = BY_VALUE ? (from + k) * X + x : x * WIDTH + from + k;
      if (k < held) workspace.store((thread >> 5) * (X * WIDTH) + place, value[k]);
    }
  }
}

// The first COUNT of these, neighbours before what is further apart: what waits for each other is a few combinations.
template <int COUNT, class State, int N> __device__ __forceinline__ State combined(State (&found)[N]) {
#pragma unroll
  for (int step = 1; step < COUNT; step *= 2) {
#pragma unroll
    for (int i = 0; i + step < COUNT; i += 2 * step) found[i] = State::combine(found[i], found[i + step]);
  }
  return found[0];
}

// What WARPS warps of a group found in a column, of which the first stands at `begin` in `workspace`.
template <class State, int WARPS>
__device__ __forceinline__ State column_of_warps(typename State::Memory workspace, int begin, int columns, int column) {
  constexpr int few = WARPS < 8 ? WARPS : 8;  // so many side by side in registers
  State total;
#pragma unroll
  for (int first = 0; first < WARPS; first += few) {
    State found[few];
#pragma unroll
    for (int i = 0; i < few; ++i) {
      found[i] = State::identity();
      if (first + i < WARPS) found[i] = workspace.load(begin + (first + i) * columns + column);
    }
    const State next = combined<few>(found);
    total = first ? State::combine(total, next) : next;
  }
  return total;
}

// Groups that are every X-th lane of WARPS whole warps; this thread's group starts at warp `first`.
template <class Shape, bool ORDERED, class State, int X, int WARPS, int WIDTH>
__device__ __forceinline__ void reduce_every_xth_lane(
    State (&value)[WIDTH], int thread, int first, typename State::Memory workspace) {
  constexpr int columns = X * WIDTH;
  const int begin = first * columns;
  if (!ORDERED) Shape::sync();
  store_columns_of_warp<State, X, true>(value, thread, workspace);
  Shape::sync();
  for (int column = thread - first * 32; column < columns; column += WARPS * 32) {
    workspace.store(begin + column, column_of_warps<State, WARPS>(workspace, begin, columns, column));
  }
  Shape::sync();
#pragma unroll
  for (int k = 0; k < WIDTH; ++k) value[k] = workspace.load(begin + k * X + (thread & (X - 1)));
}

// Any other group: all values through `workspace`, WIDTH * threads of them.
template <class Shape, bool ORDERED, class State, int WIDTH, class Group>
__device__ __forceinline__ void reduce_in_memory(
    State (&value)[WIDTH], const Group& group, typename State::Memory workspace) {
  constexpr int few = 8;  // so many values each thread adds up by itself, which saves the tree's barriers
  const int threads = group.size * group.columns;
  const int slot = group.rank * group.columns + group.column;
  if (!ORDERED) Shape::sync();
#pragma unroll
  for (int k = 0; k < WIDTH; ++k) workspace.store(k * threads + slot, value[k]);
  Shape::sync();
  int remaining = group.size;
  while (remaining > few) {
    const int half = (remaining + 1) / 2;
    if (group.rank < remaining - half) {
#pragma unroll
      for (int k = 0; k < WIDTH; ++k) {
        const int mine = k * threads + slot;
        workspace.store(mine, State::combine(workspace.load(mine), workspace.load(mine + half * group.columns)));
      }
    }
    remaining = half;
    Shape::sync();
  }
#pragma unroll
  for (int k = 0; k < WIDTH; ++k) {
    value[k] = workspace.load(k * threads + group.column);
    for (int i = 1; i < remaining; ++i) {
      value[k] = State::combine(value[k], workspace.load(k * threads + i * group.columns + group.column));
    }
  }
}

template <class State, int AXES, class Shape, bool ORDERED = false, int WIDTH>
__device__ __forceinline__ void block_reduce(State (&value)[WIDTH], typename State::Memory workspace) {
  const block_group<AXES, Shape> group;
  if (group.size == 1) return;
  if constexpr (Shape::interleaves(AXES)) {
    constexpr int warps = Shape::X_EXTENT * Shape::rows(AXES) / 32;
    const int first = (group.thread >> 5) / warps * warps;
    reduce_every_xth_lane<Shape, ORDERED, State, Shape::X_EXTENT, warps>(value, group.thread, first, workspace);
  } else if (group.dense && group.size <= 32 && (group.size & (group.size - 1)) == 0) {
    warp_reduce(value, group.size, group.thread & 31);
  } else if (group.dense && group.size % 32 == 0) {
    warp_reduce(value, 32, group.thread & 31);
    const int warps = group.size >> 5;
    reduce_across_warps<Shape, ORDERED>(value, group.thread, group.column * warps, warps, workspace);
  } else {
    reduce_in_memory<Shape, ORDERED>(value, group, workspace);
  }
}

}  // namespace fw
