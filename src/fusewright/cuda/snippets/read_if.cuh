// requires:
// One element of memory that the kernel only reads, or what `value` has before, if it is not `there`. The load has a
// predicate of its own. Given a condition, the CUDA compiler moves all that the address takes behind it, and then computes
// for each of a thread's elements anew what they have in common.

namespace fw {

template <int BYTES> struct read_bits;
#ifdef __CUDA_ARCH__
#define FW_READ_IF(BYTES, TYPE, PTX, REGISTER)                                                                       \
  template <> struct read_bits<BYTES> {                                                                              \
    using type = TYPE;                                                                                               \
    static __device__ __forceinline__ void read(type& bits, const void* from, bool there) {                          \
      asm("{ .reg .pred there; setp.ne.u32 there, %1, 0; @there ld.global.nc." PTX " %0, [%2]; }"                    \
          : "+" REGISTER(bits)                                                                                       \
          : "r"(unsigned(there)), "l"(__cvta_generic_to_global(from)));                                              \
    }                                                                                                                \
  };
FW_READ_IF(1, unsigned short, "u8", "h")
FW_READ_IF(2, unsigned short, "u16", "h")
FW_READ_IF(4, unsigned int, "u32", "r")
FW_READ_IF(8, unsigned long long, "u64", "l")
#undef FW_READ_IF
#endif

template <class T> __device__ __forceinline__ T read_if(bool there, const T* from, T value) {
#ifdef __CUDA_ARCH__
  typename read_bits<sizeof(T)>::type bits = 0;
  memcpy(&bits, &value, sizeof(T));
  read_bits<sizeof(T)>::read(bits, from, there);
  memcpy(&value, &bits, sizeof(T));
  return value;
#else
  return there ? *from : value;
#endif
}

}  // namespace fw
