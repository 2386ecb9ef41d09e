// requires:
// Sums of numbers and squares that cancel, to three times the digits of their type (Dekker 1971; Ogita, Rump and
// Oishi 2005).

namespace fw {

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
    const T square = x * x;
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
