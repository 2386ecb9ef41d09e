// requires: complex_exp

namespace fw {

template <class T>
__device__ complex<T> sigmoid(complex<T> z) { return complex<T>(T(1)) / (complex<T>(T(1)) + exp(-z)); }

}  // namespace fw
