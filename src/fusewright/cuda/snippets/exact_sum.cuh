// requires:
// Sums of numbers and squares that cancel, to three times the digits of their type (Dekker 1971; Ogita, Rump and
// Oishi 2005).

namespace fw {

// A product that the compiler does not make one with a sum that follows.
__device__ __forceinline__ float separate_product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double separate_product(double a, double b) { return __dmul_rn(a, b); }

template <class T>
struct exact_sum {
  T total = T(0), rest = T(0), last = T(0);

  // sum + x, and in `error` what its rounding drops.
  static __device__ __forceinline__ T two_sum(T sum, T x, T& error) {
    const T result = sum + x, part = result - sum;
    error = (sum - (result - part)) + (x - part);
    return result;
  }
  __device__ __forceinline__ void add(T x) {
    T error, dropped;
    total = two_sum(total, x, error);
    rest = two_sum(rest, error, dropped);
    last += dropped;
  }
  __device__ __forceinline__ void add_square(T x) {
    const T square = separate_product(x, x);
    add(square);
    add(::fma(x, x, -square));
  }
  __device__ __forceinline__ T value() const {
    T error;
    const T sum = two_sum(total, rest, error);
    return sum + (error + last);
  }
};

}  // namespace fw
