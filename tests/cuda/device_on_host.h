// Runs device code on the host, for tests: every thread of a block is a coroutine, so that barriers and shuffles
// mean what they mean on the device, in a fixed order. Blocks run one after another.

#include <math.h>
#include <ucontext.h>

#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#define __device__
#define __global__
#define __shared__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct dim3 { unsigned x, y, z; };
inline float __fdividef(float a, float b) { return a * (1.0f / b); }  // as inexact as the device's
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long long)a * b >> 32; }
struct uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };

namespace host {

enum State { READY, AT_WARP_BARRIER, AT_BLOCK_BARRIER, DONE };

struct Thread {
  ucontext_t context;
  std::vector<char> stack = std::vector<char>(64 * 1024);
  dim3 index;
  State state = READY;
  unsigned shuffled;
};

inline std::vector<std::unique_ptr<Thread>> threads;
inline Thread* current;
inline ucontext_t scheduler;
inline dim3 block_index, block_size, grid_size;
inline int votes;
inline std::function<void()> kernel;

inline void wait_at(State barrier) {
  current->state = barrier;
  swapcontext(&current->context, &scheduler);
}

inline void thread_main() {
  kernel();
  current->state = DONE;
  swapcontext(&current->context, &scheduler);
}

// Releases threads first .. last-1 if those that still run all wait at `barrier`.
inline bool release(size_t first, size_t last, State barrier) {
  bool any = false;
  for (size_t i = first; i < last; ++i) {
    if (threads[i]->state == DONE) continue;
    if (threads[i]->state != barrier) return false;
    any = true;
  }
  for (size_t i = first; any && i < last; ++i) {
    if (threads[i]->state == barrier) threads[i]->state = READY;
  }
  return any;
}

inline void run_block() {
  threads.clear();
  for (unsigned z = 0; z < block_size.z; ++z)
    for (unsigned y = 0; y < block_size.y; ++y)
      for (unsigned x = 0; x < block_size.x; ++x) {
        auto thread = std::make_unique<Thread>();
        thread->index = {x, y, z};
        getcontext(&thread->context);
        thread->context.uc_stack.ss_sp = thread->stack.data();
        thread->context.uc_stack.ss_size = thread->stack.size();
        makecontext(&thread->context, thread_main, 0);
        threads.push_back(std::move(thread));
      }
  const size_t count = threads.size();
  for (bool moved = true; moved;) {
    moved = false;
    for (auto& thread : threads) {
      if (thread->state != READY) continue;
      current = thread.get();
      swapcontext(&scheduler, &current->context);
      moved = true;
    }
    for (size_t warp = 0; warp < count; warp += 32) {
      moved |= release(warp, warp + 32 < count ? warp + 32 : count, AT_WARP_BARRIER);
    }
    moved |= release(0, count, AT_BLOCK_BARRIER);
  }
  for (auto& thread : threads) {
    if (thread->state != DONE) {
      fprintf(stderr, "deadlock: thread (%u, %u, %u)\n", thread->index.x, thread->index.y, thread->index.z);
      exit(3);
    }
  }
}

inline void launch(dim3 grid, dim3 block, std::function<void()> body) {
  kernel = std::move(body);
  grid_size = grid;
  block_size = block;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        block_index = {x, y, z};
        run_block();
      }
}

// Calls a kernel with arguments passed by address, as the driver does.
template <class... A, size_t... I>
void call(void (*function)(A...), void** arguments, std::index_sequence<I...>) {
  function(*static_cast<std::remove_const_t<A>*>(arguments[I])...);
}
template <class... A> void run(void (*function)(A...), const unsigned* extents, void** arguments) {
  const dim3 grid{extents[0], extents[1], extents[2]}, block{extents[3], extents[4], extents[5]};
  launch(grid, block, [=] { call(function, arguments, std::index_sequence_for<A...>()); });
}

// The linear index of the current thread in its block.
inline size_t linear_index() {
  const unsigned x = current->index.x, y = current->index.y, z = current->index.z;
  return x + size_t(block_size.x) * (y + size_t(block_size.y) * z);
}

inline unsigned shuffle(unsigned value, int source) {
  current->shuffled = value;
  wait_at(AT_WARP_BARRIER);
  const size_t from = linear_index() / 32 * 32 + source;
  if (from >= threads.size()) exit(4);  // such a lane does not exist: its value is undefined on the device
  const unsigned result = threads[from]->shuffled;
  wait_at(AT_WARP_BARRIER);
  return result;
}

inline bool all_of_warp(bool vote) {
  current->shuffled = vote;
  wait_at(AT_WARP_BARRIER);
  const size_t first = linear_index() / 32 * 32;
  bool all = true;
  for (size_t i = first; i < first + 32 && i < threads.size(); ++i) all = all && threads[i]->shuffled;
  wait_at(AT_WARP_BARRIER);
  return all;
}

inline int lane() { return int(linear_index() % 32); }

template <class To, class From> To bit_cast(From from) {
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

}  // namespace host

#define threadIdx (host::current->index)
#define blockIdx (host::block_index)
#define blockDim (host::block_size)
#define gridDim (host::grid_size)

alignas(128) inline unsigned char fw_smem[1 << 18];

inline void __syncthreads() { host::wait_at(host::AT_BLOCK_BARRIER); }
inline void __threadfence() {}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned bits) {
  return unsigned(((unsigned long long)high << 32 | low) >> (bits & 31));
}
inline int __syncthreads_or(int vote) {
  host::votes = 0;
  __syncthreads();
  host::votes |= vote;
  __syncthreads();
  const int result = host::votes;
  __syncthreads();
  return result;
}
inline unsigned __shfl_xor_sync(unsigned, unsigned value, int mask) {
  return host::shuffle(value, host::lane() ^ mask);
}
inline unsigned __shfl_sync(unsigned, unsigned value, int source) { return host::shuffle(value, source); }
inline int __all_sync(unsigned, int vote) { return host::all_of_warp(vote != 0); }
inline unsigned atomicAdd(unsigned* address, unsigned value) {
  const unsigned old = *address;
  *address = old + value;
  return old;
}
inline unsigned atomicInc(unsigned* address, unsigned limit) {
  const unsigned old = *address;
  *address = old >= limit ? 0 : old + 1;
  return old;
}
template <class T> T __ldca(const T* p) { return *p; }
template <class T> T __ldcg(const T* p) { return *p; }
template <class T> T __ldcs(const T* p) { return *p; }
template <class T> void __stwb(T* p, T value) { *p = value; }
template <class T> void __stcg(T* p, T value) { *p = value; }
template <class T> void __stcs(T* p, T value) { *p = value; }
inline float __uint_as_float(unsigned bits) { return host::bit_cast<float>(bits); }
inline float __int_as_float(int bits) { return host::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return host::bit_cast<unsigned>(value); }
inline int __float_as_int(float value) { return host::bit_cast<int>(value); }
inline double __longlong_as_double(long long bits) { return host::bit_cast<double>(bits); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline double __dsub_rn(double a, double b) { return a - b; }
template <class T> T min(T a, T b) { return b < a ? b : a; }
template <class T> T max(T a, T b) { return a < b ? b : a; }
