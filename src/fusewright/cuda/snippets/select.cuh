// requires:
// One of two values, both of which are computed first: no branch around what computes them.

namespace fw {

template <class T> __device__ __forceinline__ T select(bool first, T one, T other) {
  return first ? one : other;
}

}  // namespace fw
