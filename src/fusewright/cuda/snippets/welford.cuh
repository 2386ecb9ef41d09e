// requires: precise_division
// Pairwise update of mean, sum of squared deviations and count (Chan, Golub, LeVeque 1983).

namespace fw {

// A difference that is never part of a fused multiply-add, which would leave the rounding error of a value that is
// a product: a single value has no deviation.
__device__ __forceinline__ float subtract(float a, float b) { return __fsub_rn(a, b); }
__device__ __forceinline__ double subtract(double a, double b) { return __dsub_rn(a, b); }

// Adds the states b to a. The b are deduced on their own, so that literals do.
template <class T, class N, class Avg, class M2, class Count>
__device__ __forceinline__ void welford_combine(T& a_avg, T& a_m2, N& a_n, Avg b_avg, M2 b_m2, Count b_n) {
  if (b_n == 0) return;
  N n = a_n + N(b_n);
  T share = divide(T(b_n), T(n));  // exactly 1 where a is empty
  T delta = subtract(T(b_avg), a_avg);
  a_avg += delta * share;
  // Grouped so that delta^2 does not overflow where a_n is 0.
  a_m2 += T(b_m2) + (delta * share) * (delta * T(a_n));
  a_n = n;
}

// One value: the literals 0 and 1 for its m2 and count.
template <class N, class X>
__device__ __forceinline__ void welford_combine(float& avg, float& m2, N& n, X x, int, int) {
  n += 1;
  const float delta = subtract(float(x), avg);
  avg += delta * (1.0f / float(n));
  m2 += delta * subtract(float(x), avg);
}

// W values at once: one division for all of them, and sums that are no chain of dependent updates.
template <int W, class T, class N>
__device__ __forceinline__ void welford_combine_run(T& avg, T& m2, N& n, const T* x) {
  T total = x[0];
#pragma unroll
  for (int i = 1; i < W; ++i) total += x[i];
  const T mean = total * (T(1) / T(W));
  T squares = 0;
#pragma unroll
  for (int i = 0; i < W; ++i) {
    const T deviation = subtract(x[i], mean);
    squares += deviation * deviation;
  }
  welford_combine(avg, m2, n, mean, squares, N(W));
}

}  // namespace fw
