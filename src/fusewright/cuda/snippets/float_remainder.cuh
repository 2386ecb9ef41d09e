// requires:
// Remainder with the sign of the divisor, as Python's %.

namespace fw {

template <class T>
__device__ __forceinline__ T float_remainder(T a, T b) {
  T rest = ::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

}  // namespace fw
