// requires:
// Reduction among neighbouring lanes of a warp by a butterfly of shuffles.
//
// A State holds one partial result: static identity(), static combine(a, b), `symmetric` (combine(a, b) equals
// combine(b, a) bit for bit), shuffle_xor(mask) and shuffle(lane).

namespace fw {

// Shuffles a value of any size, a 4-byte word at a time.
template <class T> __device__ __forceinline__ T shuffle_xor(T value, int mask) {
  unsigned words[(sizeof(T) + 3) / 4] = {};
  memcpy(words, &value, sizeof(T));
#pragma unroll
  for (int i = 0; i < int(sizeof(words) / 4); ++i) words[i] = __shfl_xor_sync(0xffffffffu, words[i], mask);
  memcpy(&value, words, sizeof(T));
  return value;
}

template <class T> __device__ __forceinline__ T shuffle(T value, int lane) {
  unsigned words[(sizeof(T) + 3) / 4] = {};
  memcpy(words, &value, sizeof(T));
#pragma unroll
  for (int i = 0; i < int(sizeof(words) / 4); ++i) words[i] = __shfl_sync(0xffffffffu, words[i], lane);
  memcpy(&value, words, sizeof(T));
  return value;
}

// Reduces the values of a whole warp where the State has an instruction for it.
template <class State> __device__ __forceinline__ auto over_warp(State& value, int) -> decltype(value.over_warp(), true) {
  value.over_warp();
  return true;
}
template <class State> __device__ __forceinline__ bool over_warp(State&, long) { return false; }

// Every aligned group of `lanes` lanes (a power of two up to 32) reduces `value`; all its lanes get the result.
template <class State, int WIDTH>
__device__ __forceinline__ void warp_reduce(State (&value)[WIDTH], int lanes, int lane) {
  bool done = lanes == 32;
#pragma unroll
  for (int k = 0; k < WIDTH; ++k) done = done && over_warp(value[k], 0);
  if (done) return;
#pragma unroll
  for (int mask = 16; mask > 0; mask >>= 1) {
    if (mask >= lanes) continue;
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) value[k] = State::combine(value[k], value[k].shuffle_xor(mask));
  }
  // Lanes that met their partners in another order may differ in the last bits: all take the first one's.
  if (!State::symmetric) {
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) value[k] = value[k].shuffle(lane & ~(lanes - 1));
  }
}

}  // namespace fw
