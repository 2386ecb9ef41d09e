// requires:
// Remainder with the sign of the divisor, as Python's %.

namespace fw {

template <class T>
__device__ __forceinline__ T int_remainder(T a, T b) {
  T rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

}  // namespace fw
