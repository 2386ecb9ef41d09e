// requires: complex, precise_division
// The quotient whose real divisions are correctly rounded, so that one by a real number is.

namespace fw {

#define FW_DIVIDE(T)                                                                                         \
  __device__ __forceinline__ complex<T> divide(complex<T> a, complex<T> b) {                                 \
    return quotient(a, b, [](T x, T y) { return divide(x, y); });                                            \
  }

FW_DIVIDE(float)
FW_DIVIDE(double)
#undef FW_DIVIDE

}  // namespace fw
