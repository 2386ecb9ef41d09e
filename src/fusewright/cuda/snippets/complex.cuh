// requires:
// Complex numbers: two scalars side by side, laid out as torch lays them out.

namespace fw {

template <class T>
struct alignas(2 * sizeof(T)) complex {
  T re, im;

  complex() = default;
  __device__ constexpr complex(T re, T im = T(0)) : re(re), im(im) {}
  template <class U>
  __device__ explicit complex(const complex<U>& other) : re(T(other.re)), im(T(other.im)) {}
  __device__ explicit operator bool() const { return re != T(0) || im != T(0); }
};

// Plain overloads instead of templates, so that a scalar operand converts implicitly.
#define FW_COMPLEX(T)                                                                                        \
  __device__ __forceinline__ complex<T> operator+(complex<T> a) { return a; }                                \
  __device__ __forceinline__ complex<T> operator-(complex<T> a) { return {-a.re, -a.im}; }                   \
  __device__ __forceinline__ complex<T> operator+(complex<T> a, complex<T> b) {                              \
    return {a.re + b.re, a.im + b.im};                                                                       \
  }                                                                                                          \
  __device__ __forceinline__ complex<T> operator-(complex<T> a, complex<T> b) {                              \
    return {a.re - b.re, a.im - b.im};                                                                       \
  }                                                                                                          \
  __device__ __forceinline__ complex<T> operator*(complex<T> a, complex<T> b) {                              \
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};                                           \
  }                                                                                                          \
  __device__ __forceinline__ complex<T> operator*(complex<T> a, T b) { return {a.re * b, a.im * b}; }        \
  __device__ __forceinline__ complex<T> operator*(T a, complex<T> b) { return {a * b.re, a * b.im}; }        \
  __device__ __forceinline__ complex<T> operator/(complex<T> a, T b) { return {a.re / b, a.im / b}; }        \
  /* Smith's method: scaling by the larger part of b keeps |b|^2 from overflowing. */                        \
  __device__ __forceinline__ complex<T> operator/(complex<T> a, complex<T> b) {                              \
    T x = b.re < T(0) ? -b.re : b.re, y = b.im < T(0) ? -b.im : b.im;                                        \
    if (x >= y) {                                                                                            \
      if (x == T(0) && y == T(0)) return {a.re / x, a.im / y};                                               \
      T ratio = b.im / b.re, scale = T(1) / (b.re + b.im * ratio);                                           \
      return {(a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale};                                 \
    }                                                                                                        \
    T ratio = b.re / b.im, scale = T(1) / (b.re * ratio + b.im);                                             \
    return {(a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale};                                   \
  }                                                                                                          \
  __device__ __forceinline__ bool operator==(complex<T> a, complex<T> b) {                                   \
    return a.re == b.re && a.im == b.im;                                                                     \
  }                                                                                                          \
  __device__ __forceinline__ bool operator!=(complex<T> a, complex<T> b) { return !(a == b); }

FW_COMPLEX(float)
FW_COMPLEX(double)
#undef FW_COMPLEX

__device__ __forceinline__ float abs(complex<float> a) { return ::hypotf(a.re, a.im); }
__device__ __forceinline__ double abs(complex<double> a) { return ::hypot(a.re, a.im); }

}  // namespace fw
