// requires:

namespace fw {

struct philox_block {
  unsigned int a, b, c, d;
};

// Philox4x32-10: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
__device__ __forceinline__ philox_block philox(long long block, long long seed, long long offset) {
  unsigned int a = offset, b = offset >> 32, c = block, d = block >> 32;
  unsigned int k0 = seed, k1 = seed >> 32;
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    unsigned int high0 = __umulhi(a, 0xD2511F53u), low0 = a * 0xD2511F53u;
    unsigned int high1 = __umulhi(c, 0xCD9E8D57u), low1 = c * 0xCD9E8D57u;
    a = high1 ^ b ^ k0;
    b = low1;
    c = high0 ^ d ^ k1;
    d = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {a, b, c, d};
}

__device__ __forceinline__ float uniform_float(long long block, int place, long long seed, long long offset) {
  philox_block r = philox(block, seed, offset);
  unsigned int word = place < 2 ? (place == 0 ? r.a : r.b) : (place == 2 ? r.c : r.d);
  return (word >> 8) * 0x1p-24f;
}

__device__ __forceinline__ double fraction(unsigned int low, unsigned int high) {
  return (double)(((unsigned long long)high << 21) | (low >> 11)) * 0x1p-53;
}

__device__ __forceinline__ double uniform_double(long long block, int place, long long seed, long long offset) {
  philox_block r = philox(block, seed, offset);
  return place == 0 ? fraction(r.a, r.b) : fraction(r.c, r.d);
}

// Box and Muller, "A note on the generation of random normal deviates", 1958; the radius is never 0.
__device__ __forceinline__ float normal_float(long long block, int place, long long seed, long long offset) {
  philox_block r = philox(block, seed, offset);
  float above = ::fmaf((float)(place < 2 ? r.a : r.c), 0x1p-32f, 0x1p-33f);
  float sine, cosine;
  ::sincospif((float)(place < 2 ? r.b : r.d) * 0x1p-31f, &sine, &cosine);
  return ::sqrtf(-2.0f * ::logf(above)) * (place % 2 == 0 ? cosine : sine);
}

__device__ __forceinline__ double normal_double(long long block, int place, long long seed, long long offset) {
  philox_block r = philox(block, seed, offset);
  double sine, cosine;
  ::sincospi(2 * fraction(r.c, r.d), &sine, &cosine);
  return ::sqrt(-2.0 * ::log(fraction(r.a, r.b) + 0x1p-53)) * (place == 0 ? cosine : sine);
}

}  // namespace fw
