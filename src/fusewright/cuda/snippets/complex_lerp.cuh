// requires: complex

namespace fw {

template <class T>
__device__ complex<T> lerp(complex<T> start, complex<T> end, complex<T> weight) {
  complex<T> distance = end - start;
  return weight.re < T(0.5) ? start + weight * distance : end - distance * (complex<T>(T(1)) - weight);
}

}  // namespace fw
