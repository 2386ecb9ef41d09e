// requires: complex

namespace fw {

template <class T>
__device__ complex<T> reciprocal(complex<T> z) { return complex<T>(T(1)) / z; }

}  // namespace fw
