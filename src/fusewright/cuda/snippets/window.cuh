// requires: register_words
// N elements of 2 N in registers, from a place on that differs between threads: words are chosen by halving the
// distance, then shifted by the bytes that are left. An array with such an index would be in slow local memory.

namespace fw {

template <int STEP, int WORDS> __device__ __forceinline__ void shift_words(unsigned* words, int offset) {
  if constexpr (STEP > 0) {
    _Pragma("unroll") for (int i = 0; i + STEP < WORDS; ++i) {
      words[i] = offset & STEP ? words[i + STEP] : words[i];
    }
    shift_words<STEP / 2, WORDS>(words, offset);
  }
}

template <int N, class T> __device__ __forceinline__ void window(T* to, const T* from, int offset) {
  constexpr int BYTES = N * sizeof(T), WORDS = 2 * BYTES / 4;
  if constexpr (WORDS < 2) {
    unsigned word = 0;
    memcpy(&word, from, 2 * BYTES);
    word >>= 8 * sizeof(T) * offset;
    memcpy(to, &word, BYTES);
  } else {
    unsigned words[WORDS];
    memcpy(words, from, 2 * BYTES);
    if constexpr (sizeof(T) >= 4) {
      shift_words<(N / 2) * int(sizeof(T) / 4), WORDS>(words, offset * int(sizeof(T) / 4));
    } else {
      constexpr int A_WORD = 4 / sizeof(T);
      if constexpr (N > A_WORD) shift_words<N / A_WORD / 2, WORDS>(words, offset / A_WORD);
      const unsigned bits = offset % A_WORD * 8 * sizeof(T);
      _Pragma("unroll") for (int i = 0; i < WORDS / 2; ++i) {
        words[i] = __funnelshift_r(words[i], words[i + 1], bits);
      }
    }
    to_registers<N>(to, words);
  }
}

}  // namespace fw
