// requires: cache_policy, register_words
// One access of 1 to 16 bytes for N neighbouring elements, with a cache hint where the name has one:
// ca all levels, cg level two only, cs streaming (evicted first; cs_word in order), el evicted from level two last. memcpy to or
// from registers costs nothing.
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

// What the L2 cache evicts last: accesses that name a policy. The loads have a predicate of their own, since the CUDA
// compiler would branch around them; volatile keeps them in the order that they are written in.
template <class T> __device__ __forceinline__ void read_last(T& bits, const T* from, bool there) {
  if (there) bits = *from;
}
template <class T> __device__ __forceinline__ void write_last(T* to, T bits) { *to = bits; }
#ifdef __CUDA_ARCH__
__device__ __forceinline__ void read_last(unsigned int& bits, const unsigned int* from, bool there) {
  asm volatile("{ .reg .pred there; setp.ne.u32 there, %1, 0; @there ld.global.L2::cache_hint.u32 %0, [%2], %3; }"
               : "+r"(bits) : "r"(unsigned(there)), "l"(__cvta_generic_to_global(from)), "l"(evict_last_policy()));
}
__device__ __forceinline__ void read_last(uint2& bits, const uint2* from, bool there) {
  asm volatile("{ .reg .pred there; setp.ne.u32 there, %2, 0;"
               " @there ld.global.L2::cache_hint.v2.u32 {%0, %1}, [%3], %4; }"
               : "+r"(bits.x), "+r"(bits.y)
               : "r"(unsigned(there)), "l"(__cvta_generic_to_global(from)), "l"(evict_last_policy()));
}
__device__ __forceinline__ void read_last(uint4& bits, const uint4* from, bool there) {
  asm volatile("{ .reg .pred there; setp.ne.u32 there, %4, 0;"
               " @there ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%5], %6; }"
               : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w)
               : "r"(unsigned(there)), "l"(__cvta_generic_to_global(from)), "l"(evict_last_policy()));
}
__device__ __forceinline__ void write_last(unsigned int* to, unsigned int bits) {
  asm volatile("st.global.L2::cache_hint.u32 [%0], %1, %2;"
               :: "l"(__cvta_generic_to_global(to)), "r"(bits), "l"(evict_last_policy()) : "memory");
}
__device__ __forceinline__ void write_last(uint2* to, uint2 bits) {
  asm volatile("st.global.L2::cache_hint.v2.u32 [%0], {%1, %2}, %3;"
               :: "l"(__cvta_generic_to_global(to)), "r"(bits.x), "r"(bits.y), "l"(evict_last_policy()) : "memory");
}
__device__ __forceinline__ void write_last(uint4* to, uint4 bits) {
  asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;"
               :: "l"(__cvta_generic_to_global(to)), "r"(bits.x), "r"(bits.y), "r"(bits.z), "r"(bits.w),
                  "l"(evict_last_policy()) : "memory");
}
#endif

// Words that are evicted first, under a predicate of their own and in the order that they are written in, too: given a
// condition, the CUDA compiler moves each load to where its element is used, so that few are in flight.
template <class T> __device__ __forceinline__ void read_word(T& bits, const T* from, bool there) {
  if (there) bits = __ldcs(from);
}
#ifdef __CUDA_ARCH__
__device__ __forceinline__ void read_word(unsigned short& bits, const unsigned short* from, bool there) {
  asm volatile("{ .reg .pred there; setp.ne.u32 there, %1, 0; @there ld.global.cs.u16 %0, [%2]; }"
               : "+h"(bits) : "r"(unsigned(there)), "l"(__cvta_generic_to_global(from)));
}
__device__ __forceinline__ void read_word(unsigned int& bits, const unsigned int* from, bool there) {
  asm volatile("{ .reg .pred there; setp.ne.u32 there, %1, 0; @there ld.global.cs.u32 %0, [%2]; }"
               : "+r"(bits) : "r"(unsigned(there)), "l"(__cvta_generic_to_global(from)));
}
#endif

// ACCESS changes `bits` to what is at `from` if `there`.
#define FW_LOAD(NAME, ACCESS)                                                                                \
  template <int N, class T> __device__ __forceinline__ void NAME(T* local, const T* memory) {                \
    const word_of<N, T>* from = reinterpret_cast<const word_of<N, T>*>(memory);                              \
    word_of<N, T> bits = {};                                                                                 \
    ACCESS(bits, from, true);                                                                                \
    to_registers<N>(local, &bits);                                                                            \
  }                                                                                                          \
  template <int N, class T> __device__ __forceinline__ void NAME##_or(T* local, const T* memory, bool there, \
                                                                      T fill) {                              \
    const word_of<N, T>* from = reinterpret_cast<const word_of<N, T>*>(memory);                              \
    T filled[N];                                                                                             \
    _Pragma("unroll") for (int i = 0; i < N; ++i) filled[i] = fill;                                          \
    word_of<N, T> bits;                                                                                      \
    memcpy(&bits, filled, sizeof(bits));                                                                     \
    ACCESS(bits, from, there);                                                                               \
    to_registers<N>(local, &bits);                                                                            \
  }
#define FW_STORE(NAME, ACCESS)                                                                               \
  template <int N, class T> __device__ __forceinline__ void NAME(T* memory, const T* local) {                \
    word_of<N, T>* to = reinterpret_cast<word_of<N, T>*>(memory);                                            \
    word_of<N, T> bits;                                                                                      \
    memcpy(&bits, local, sizeof(bits));                                                                      \
    ACCESS(to, bits);                                                                                        \
  }
#define FW_READ(bits, from, there) if (there) bits = *(from)
#define FW_READ_CA(bits, from, there) if (there) bits = __ldca(from)
#define FW_READ_CG(bits, from, there) if (there) bits = __ldcg(from)
#define FW_READ_CS(bits, from, there) if (there) bits = __ldcs(from)
#define FW_WRITE(to, bits) *(to) = bits

FW_LOAD(load, FW_READ)
FW_LOAD(load_ca, FW_READ_CA)
FW_LOAD(load_cg, FW_READ_CG)
FW_LOAD(load_cs, FW_READ_CS)
FW_LOAD(load_cs_word, read_word)
FW_LOAD(load_el, read_last)
FW_STORE(store, write_global)
FW_STORE(store_shared, FW_WRITE)
FW_STORE(store_ca, __stwb)
FW_STORE(store_cg, __stcg)
FW_STORE(store_cs, __stcs)
FW_STORE(store_el, write_last)

#undef FW_LOAD
#undef FW_STORE
#undef FW_READ
#undef FW_READ_CA
#undef FW_READ_CG
#undef FW_READ_CS
#undef FW_WRITE

// Memory to memory, without registers that have a name.
template <int N, class T> __device__ __forceinline__ void copy(T* to, const T* from) {
  *reinterpret_cast<word_of<N, T>*>(to) = *reinterpret_cast<const word_of<N, T>*>(from);
}

}  // namespace fw
