// requires: maximum, float_limits, approximate
// The maximum of values, and the sum of e^(value - maximum), in one pass (Milakov and Gimelshein 2018, "Online
// normalizer calculation for softmax").

namespace fw {

// The machine's exponential of base 2 is off by 2 units at most, and its operand by half a unit. What is far below
// the maximum, whose exponent is off by more, adds little; less than the least normal number adds nothing.
__device__ __forceinline__ float exp_of_less(float x) { return approximate_exp2(x * 1.44269504f); }
__device__ __forceinline__ double exp_of_less(double x) { return ::exp(x); }

// What exponents are less of: finite, so that -inf adds 0 where there is nothing else.
template <class T>
__device__ __forceinline__ T finite_shift(T top) {
  return ::fmin(::fmax(top, -float_limits<T>::largest), float_limits<T>::largest);
}

// Adds the states b to a. The b are deduced on their own, so that literals do.
template <class T, class Top, class Total>
__device__ __forceinline__ void max_sum_exp_combine(T& top, T& total, Top b_top, Total b_total) {
  const T both = maximum(top, T(b_top));
  const T shift = finite_shift(both);
  total = total * exp_of_less(top - shift) + T(b_total) * exp_of_less(T(b_top) - shift);
  top = both;
}

// W values at once: one exponential for what was there, and one for each value.
template <int W, class T>
__device__ __forceinline__ void max_sum_exp_combine_run(T& top, T& total, const T* x) {
  T both = top;
#pragma unroll
  for (int i = 0; i < W; ++i) both = maximum(both, x[i]);
  const T shift = finite_shift(both);
  T sum = 0;
#pragma unroll
  for (int i = 0; i < W; ++i) sum += exp_of_less(x[i] - shift);
  total = total * exp_of_less(top - shift) + sum;
  top = both;
}

}  // namespace fw
