// requires:
// Registers that the compiler takes for new ones: what it computed from them before, it computes again.

namespace fw {

template <class T, int N> __device__ __forceinline__ void hold(T (&values)[N]) {
  constexpr int per_word = sizeof(T) < 4 ? 4 / sizeof(T) : 1;
  constexpr int words = sizeof(T) * per_word / 4;
#pragma unroll
  for (int i = 0; i < N; i += per_word) {
    unsigned bits[words];
    memcpy(bits, &values[i], sizeof(bits));
#pragma unroll
    for (int w = 0; w < words; ++w) asm volatile("" : "+r"(bits[w]));
    memcpy(&values[i], bits, sizeof(bits));
  }
}

}  // namespace fw
