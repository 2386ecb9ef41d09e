// requires:
// Greatest common divisor by Euclid's algorithm, never negative; of 0 and 0 it is 0.

namespace fw {

template <class T>
__device__ T gcd(T a, T b) {
  while (b != 0) {
    T rest = a % b;
    a = b;
    b = rest;
  }
  return a < 0 ? -a : a;
}

}  // namespace fw
