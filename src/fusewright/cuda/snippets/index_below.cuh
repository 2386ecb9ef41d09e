// requires:
// A loaded value as an index: -1, which no bounds check lets pass, unless it lies in [0, extent - 1].

namespace fw {

template <class Index, class Value> __device__ __forceinline__ Index index_below(Value value, Index extent) {
  const bool valid = value >= 0 && (unsigned long long)value < (unsigned long long)extent;
  return valid ? (Index)value : (Index)-1;
}

}  // namespace fw
