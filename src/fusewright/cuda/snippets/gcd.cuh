// requires: unsigned_of
// Greatest common divisor by Euclid's algorithm, never negative; of 0 and 0 it is 0.

namespace fw {

template <class T>
__device__ T gcd(T a, T b) {
  using U = typename unsigned_of<T>::type;
  // Magnitudes: the least integer has one only among the unsigned.
  U x = a < 0 ? U(0) - U(a) : U(a), y = b < 0 ? U(0) - U(b) : U(b);
  while (y != 0) {
    U rest = x % y;
    x = y;
    y = rest;
  }
  return T(x);
}

}  // namespace fw
