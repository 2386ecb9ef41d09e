// requires: maximum, minimum, half, bfloat16
// The extremum of several values of a reduced float, two in an instruction: it is one of them, so they are widened
// after it is found, not before. NaN if one of them is.

namespace fw {

#define FW_PAIRS(NAME, TYPE, FUNCTION, INSTRUCTION)                                                       \
  template <int N> __device__ __forceinline__ void NAME(float& found, const TYPE* values) {               \
    unsigned pairs[N / 2];                                                                                \
    memcpy(pairs, values, sizeof(pairs));                                                                 \
    _Pragma("unroll") for (int step = 1; step < N / 2; step *= 2) {                                       \
      _Pragma("unroll") for (int i = 0; i + step < N / 2; i += 2 * step) {                                \
        asm(INSTRUCTION " %0, %1, %2;" : "=r"(pairs[i]) : "r"(pairs[i]), "r"(pairs[i + step]));           \
      }                                                                                                   \
    }                                                                                                     \
    TYPE both[2];                                                                                         \
    memcpy(both, pairs, sizeof(both));                                                                    \
    found = FUNCTION(found, FUNCTION(float(both[0]), float(both[1])));                                    \
  }
FW_PAIRS(maximum_run, bfloat16, maximum, "max.NaN.bf16x2")
FW_PAIRS(minimum_run, bfloat16, minimum, "min.NaN.bf16x2")
FW_PAIRS(maximum_run, half, maximum, "max.NaN.f16x2")
FW_PAIRS(minimum_run, half, minimum, "min.NaN.f16x2")
#undef FW_PAIRS

}  // namespace fw
