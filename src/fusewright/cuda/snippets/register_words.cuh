// requires:
// N elements into registers. Those of 16 bits are written two at a time: memcpy is taken apart into elements, and what a
// branch may change then takes a register each, and instructions to take it out of a word and to widen it (an sm_90 sum
// of three tensors of bfloat16 whose vectors start anywhere has 96 registers so, not 162).

namespace fw {

// Registers are words of any alignment and type.
struct __attribute__((__packed__, __may_alias__)) register_word {
  unsigned bits;
};

template <int N, class T> __device__ __forceinline__ void to_registers(T* to, const void* from) {
  constexpr int BYTES = N * sizeof(T), WORDS = BYTES / 4;
  if constexpr (sizeof(T) == 2 && WORDS * 4 == BYTES) {
    unsigned words[WORDS];
    memcpy(words, from, BYTES);
    _Pragma("unroll") for (int i = 0; i < WORDS; ++i) reinterpret_cast<register_word*>(to)[i].bits = words[i];
  } else {
    memcpy(to, from, BYTES);
  }
}

}  // namespace fw
