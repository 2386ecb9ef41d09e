// requires:
// Sums of products that cancel, with errors kept (Dekker 1971; Ogita, Rump and Oishi 2005).

namespace fw {

template <class T>
struct exact_sum {
  T total = T(0), rest = T(0);

  __device__ __forceinline__ void add(T x) {
    const T sum = total + x, part = sum - total;
    rest += (total - (sum - part)) + (x - part);
    total = sum;
  }
  __device__ __forceinline__ void add_square(T x) {
    const T square = x * x;
    add(square);
    rest += ::fma(x, x, -square);
  }
  __device__ __forceinline__ T value() const { return total + rest; }
};

}  // namespace fw
