// requires: block_reduce
// Scan over the threads of a block along some of its axes: every thread gets what comes before it, onto a carry
// that continues the scan from one call to the next. It begins with a barrier, so that it may use the same
// workspace as the one before it. State is as in block_reduce.

namespace fw {

// Within every aligned group of `lanes` lanes (a power of two up to 32): the combination up to each lane.
template <class State, int WIDTH>
__device__ __forceinline__ void warp_scan(State (&value)[WIDTH], int lanes, int lane) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    if (step >= lanes) continue;
    const bool follows = (lane & (lanes - 1)) >= step;
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) {
      const State before = value[k].shuffle(follows ? lane - step : lane);
      if (follows) value[k] = State::combine(before, value[k]);
    }
  }
}

// Groups of `lanes` neighbouring lanes of a warp.
template <class State, int WIDTH>
__device__ __forceinline__ void scan_in_warp(
    State (&value)[WIDTH], State (&carry)[WIDTH], int lanes, int lane) {
  warp_scan(value, lanes, lane);
  const bool follows = lane & (lanes - 1);
#pragma unroll
  for (int k = 0; k < WIDTH; ++k) {
    const State total = value[k].shuffle(lane | (lanes - 1));
    const State before = value[k].shuffle(follows ? lane - 1 : lane);
    value[k] = carry[k];
    if (follows) value[k] = State::combine(carry[k], before);
    carry[k] = State::combine(carry[k], total);
  }
}

// Groups of `warps` whole warps, this thread's starting at warp `first`: one value a warp, through `workspace`.
template <class Shape, class State, int WIDTH>
__device__ __forceinline__ void scan_across_warps(
    State (&value)[WIDTH], State (&carry)[WIDTH], int thread, int first, int warps,
    typename State::Memory workspace) {
  const int lane = thread & 31, warp = (thread >> 5) - first;
  warp_scan(value, 32, lane);
  Shape::sync();
  if (lane == 31) {
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) workspace.store((first + warp) * WIDTH + k, value[k]);
  }
  Shape::sync();
  State sum[WIDTH];
#pragma unroll
  for (int k = 0; k < WIDTH; ++k) {
    sum[k] = State::identity();
    if (lane < warps) sum[k] = workspace.load((first + lane) * WIDTH + k);
  }
  int lanes = 1;
#pragma unroll
  for (int i = 0; i < 5; ++i) lanes = lanes < warps ? 2 * lanes : lanes;
  warp_scan(sum, lanes, lane);
#pragma unroll
  for (int k = 0; k < WIDTH; ++k) {
    const State total = sum[k].shuffle(warps - 1), of_warps = sum[k].shuffle(warp ? warp - 1 : 0);
    const State before = value[k].shuffle(lane ? lane - 1 : 0);
    value[k] = carry[k];
    if (warp) value[k] = State::combine(value[k], of_warps);
    if (lane) value[k] = State::combine(value[k], before);
    carry[k] = State::combine(carry[k], total);
  }
}

// Groups that are every X-th lane of whole warps, of ROWS threads each, both a power of two up to 32: neighbouring lanes
// take the values of a group from `workspace`, scan them and bring them back. The places of a row are permuted so that
// lanes down a column access different banks, too.
template <class Shape, int X, int ROWS, class State, int WIDTH>
__device__ __forceinline__ void scan_every_xth_lane(
    State (&value)[WIDTH], State (&carry)[WIDTH], int thread, typename State::Memory workspace) {
  const int threads = Shape::x() * Shape::y() * Shape::z();
  const int local = thread % (X * ROWS), begin = thread - local;
  const auto place = [=](int row, int column) { return begin + row * X + (column ^ (row * X / 32 & (X - 1))); };
  const int row = local / X, column = local % X;
  Shape::sync();
#pragma unroll
  for (int k = 0; k < WIDTH; ++k) workspace.store(k * threads + place(row, column), value[k]);
  Shape::sync();
  const int scanned = place(local % ROWS, local / ROWS);
  State sum[WIDTH];
#pragma unroll
  for (int k = 0; k < WIDTH; ++k) sum[k] = workspace.load(k * threads + scanned);
  warp_scan(sum, ROWS, thread & 31);
#pragma unroll
  for (int k = 0; k < WIDTH; ++k) workspace.store(k * threads + scanned, sum[k]);
  Shape::sync();
#pragma unroll
  for (int k = 0; k < WIDTH; ++k) {
    value[k] = carry[k];
    if (row) value[k] = State::combine(carry[k], workspace.load(k * threads + place(row - 1, column)));
    carry[k] = State::combine(carry[k], workspace.load(k * threads + place(ROWS - 1, column)));
  }
}

// Any other group: all values through `workspace`, WIDTH * threads of them, which each thread goes through.
template <class Shape, class State, int WIDTH, class Group>
__device__ __forceinline__ void scan_in_memory(
    State (&value)[WIDTH], State (&carry)[WIDTH], const Group& group, typename State::Memory workspace) {
  const int threads = group.size * group.columns;
  Shape::sync();
#pragma unroll
  for (int k = 0; k < WIDTH; ++k) {
    workspace.store(k * threads + group.rank * group.columns + group.column, value[k]);
  }
  Shape::sync();
#pragma unroll
  for (int k = 0; k < WIDTH; ++k) {
    for (int i = 0; i < group.size; ++i) {
      if (i == group.rank) value[k] = carry[k];
      carry[k] = State::combine(carry[k], workspace.load(k * threads + i * group.columns + group.column));
    }
  }
}

template <class State, int AXES, class Shape, int WIDTH>
__device__ __forceinline__ void block_scan(
    State (&value)[WIDTH], State (&carry)[WIDTH], typename State::Memory workspace) {
  const block_group<AXES, Shape> group;
  constexpr int x = Shape::X_EXTENT, rows = Shape::rows(AXES);
  if constexpr (x > 1 && x <= 32 && (x & (x - 1)) == 0 && rows > 2 && rows <= 32 && (rows & (rows - 1)) == 0 &&
                x * rows % 32 == 0) {
    scan_every_xth_lane<Shape, x, rows>(value, carry, group.thread, workspace);
  } else if (group.dense && group.size <= 32 && (group.size & (group.size - 1)) == 0) {
    scan_in_warp(value, carry, group.size, group.thread & 31);
  } else if (group.dense && group.size % 32 == 0) {
    const int warps = group.size >> 5;
    scan_across_warps<Shape>(value, carry, group.thread, group.column * warps, warps, workspace);
  } else {
    scan_in_memory<Shape>(value, carry, group, workspace);
  }
}

}  // namespace fw
