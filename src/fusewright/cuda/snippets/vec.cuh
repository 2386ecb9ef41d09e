// requires:
// One access of 1 to 16 bytes for N neighbouring elements, with a cache hint where the name has one:
// ca all levels, cg level two only, cs streaming (evicted first), el to be evicted from level two last. memcpy to or from registers costs nothing.
// load_or reads memory only if `there`, and else fills every element.

namespace fw {

template <int BYTES> struct word;
template <> struct word<1> { using type = unsigned char; };
template <> struct word<2> { using type = unsigned short; };
template <> struct word<4> { using type = unsigned int; };
template <> struct word<8> { using type = uint2; };
template <> struct word<16> { using type = uint4; };

template <int N, class T> using word_of = typename word<N * sizeof(T)>::type;

// An access with a cache policy (PTX ISA, createpolicy), where the machine has it and the words are wide.
template <class W> __device__ __forceinline__ W load_last(const W* from) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (sizeof(W) == 16) {
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    uint4 bits;
    asm("ld.global.nc.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
        : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
        : "l"(__cvta_generic_to_global(from)), "l"(policy));
    W word;
    memcpy(&word, &bits, sizeof(word));
    return word;
  }
#endif
  return *from;
}

#define FW_LOAD(NAME, ACCESS)                                                                                \
  template <int N, class T> __device__ __forceinline__ void NAME(T* local, const T* memory) {                \
    const word_of<N, T>* from = reinterpret_cast<const word_of<N, T>*>(memory);                              \
    word_of<N, T> bits = ACCESS(from);                                                                       \
    memcpy(local, &bits, sizeof(bits));                                                                      \
  }                                                                                                          \
  template <int N, class T> __device__ __forceinline__ void NAME##_or(T* local, const T* memory, bool there, \
                                                                      T fill) {                              \
    const word_of<N, T>* from = reinterpret_cast<const word_of<N, T>*>(memory);                              \
    T filled[N];                                                                                             \
    _Pragma("unroll") for (int i = 0; i < N; ++i) filled[i] = fill;                                          \
    word_of<N, T> bits;                                                                                      \
    memcpy(&bits, filled, sizeof(bits));                                                                     \
    if (there) bits = ACCESS(from);                                                                          \
    memcpy(local, &bits, sizeof(bits));                                                                      \
  }
#define FW_STORE(NAME, ACCESS)                                                                               \
  template <int N, class T> __device__ __forceinline__ void NAME(T* memory, const T* local) {                \
    word_of<N, T>* to = reinterpret_cast<word_of<N, T>*>(memory);                                            \
    word_of<N, T> bits;                                                                                      \
    memcpy(&bits, local, sizeof(bits));                                                                      \
    ACCESS(to, bits);                                                                                        \
  }
#define FW_READ(from) *(from)
#define FW_WRITE(to, bits) *(to) = bits

FW_LOAD(load, FW_READ)
FW_LOAD(load_ca, __ldca)
FW_LOAD(load_cg, __ldcg)
FW_LOAD(load_cs, __ldcs)
FW_LOAD(load_el, load_last)
FW_STORE(store, FW_WRITE)
FW_STORE(store_ca, __stwb)
FW_STORE(store_cg, __stcg)
FW_STORE(store_cs, __stcs)
FW_STORE(store_el, FW_WRITE)

#undef FW_LOAD
#undef FW_STORE
#undef FW_READ
#undef FW_WRITE

// Memory to memory, without registers that have a name.
template <int N, class T> __device__ __forceinline__ void copy(T* to, const T* from) {
  *reinterpret_cast<word_of<N, T>*>(to) = *reinterpret_cast<const word_of<N, T>*>(from);
}

}  // namespace fw
