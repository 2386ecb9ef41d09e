// requires: unsigned_of
// Shifts that are defined for every amount: a negative one, or one of the width or more, moves out all bits.

namespace fw {

template <class T>
__device__ __forceinline__ bool shifts_within(T amount) {
  return typename unsigned_of<T>::type(amount) < 8 * sizeof(T);
}

template <class T>
__device__ __forceinline__ T bitwise_left_shift(T a, T amount) {
  using U = typename unsigned_of<T>::type;
  return shifts_within(amount) ? T(U(a) << amount) : T(0);
}

template <class T>
__device__ __forceinline__ T bitwise_right_shift(T a, T amount) {
  return a >> (shifts_within(amount) ? amount : T(8 * sizeof(T) - 1));
}

template <class T>
__device__ __forceinline__ T logical_right_shift(T a, T amount) {
  using U = typename unsigned_of<T>::type;
  return shifts_within(amount) ? T(U(a) >> amount) : T(0);
}

}  // namespace fw
