// requires:
// bits_as<To>(value): what the bits of a value are in another type of its size.

namespace fw {

template <class To, class From> __device__ __forceinline__ To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From), "types of one size");
  To result;
  memcpy(&result, &value, sizeof(To));
  return result;
}

}  // namespace fw
