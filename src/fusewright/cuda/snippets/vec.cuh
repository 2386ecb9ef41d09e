// requires:
// One access of 1 to 16 bytes for N neighbouring elements, with a cache hint where the name has one:
// ca all levels, cg level two only, cs streaming (evicted first). memcpy to or from registers costs nothing.
// load_or reads memory only if `there`, and else fills every element. Plain and hinted stores are to global memory,
// store_shared to shared memory.

namespace fw {

template <int BYTES> struct word;
template <> struct word<1> { using type = unsigned char; };
template <> struct word<2> { using type = unsigned short; };
template <> struct word<4> { using type = unsigned int; };
template <> struct word<8> { using type = uint2; };
template <> struct word<16> { using type = uint4; };

template <int N, class T> using word_of = typename word<N * sizeof(T)>::type;

// A store to global memory in PTX: the CUDA compiler takes most of those in C++ apart, into one for each word.
template <class T> __device__ __forceinline__ void write_global(T* to, T bits) { *to = bits; }
#ifdef __CUDA_ARCH__
__device__ __forceinline__ void write_global(uint2* to, uint2 bits) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};"
               :: "l"(__cvta_generic_to_global(to)), "r"(bits.x), "r"(bits.y) : "memory");
}
__device__ __forceinline__ void write_global(uint4* to, uint4 bits) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
               :: "l"(__cvta_generic_to_global(to)), "r"(bits.x), "r"(bits.y), "r"(bits.z), "r"(bits.w) : "memory");
}
#endif

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
FW_STORE(store, write_global)
FW_STORE(store_shared, FW_WRITE)
FW_STORE(store_ca, __stwb)
FW_STORE(store_cg, __stcg)
FW_STORE(store_cs, __stcs)

#undef FW_LOAD
#undef FW_STORE
#undef FW_READ
#undef FW_WRITE

// Memory to memory, without registers that have a name.
template <int N, class T> __device__ __forceinline__ void copy(T* to, const T* from) {
  *reinterpret_cast<word_of<N, T>*>(to) = *reinterpret_cast<const word_of<N, T>*>(from);
}

}  // namespace fw
