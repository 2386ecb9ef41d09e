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

// a * b + c * d with one rounding's error, where the sum cancels too (Kahan; Jeannerod, Louvet and Muller 2013).
template <class T>
__device__ __forceinline__ T sum_of_products(T a, T b, T c, T d) {
  T product = c * d, error = ::fma(c, d, -product);
  return ::fma(a, b, product) + error;
}

// The factor by which ldexp brings the larger part near 1, as its exponent; 0 for what is not finite or zero.
template <class T>
__device__ __forceinline__ int magnitude(complex<T> z) {
  T size = ::fmax(::fabs(z.re), ::fabs(z.im));
  return size > T(0) && isfinite(size) ? ::ilogb(size) : 0;
}

// a / b in double: all products are exact, and nothing between overflows.
__device__ __forceinline__ complex<float> quotient(complex<float> a, complex<float> b) {
  const double c = b.re, d = b.im;
  if (b.im == 0.0f) return {float(a.re / c), float(a.im / c)};
  if ((isinf(b.re) || isinf(b.im)) && isfinite(a.re) && isfinite(a.im)) return {0.0f, 0.0f};
  const double square = c * c + d * d;
  return {float((a.re * c + a.im * d) / square), float((a.im * c - a.re * d) / square)};
}

// a / b; operands are scaled so that nothing between overflows.
__device__ __forceinline__ complex<double> quotient(complex<double> a, complex<double> b) {
  if (b.im == 0.0) return {a.re / b.re, a.im / b.re};
  if ((isinf(b.re) || isinf(b.im)) && isfinite(a.re) && isfinite(a.im)) return {0.0, 0.0};
  const int m = magnitude(a), n = magnitude(b);
  a = {::ldexp(a.re, -m), ::ldexp(a.im, -m)};
  b = {::ldexp(b.re, -n), ::ldexp(b.im, -n)};
  const double square = b.re * b.re + b.im * b.im;
  const double re = sum_of_products(a.re, b.re, a.im, b.im) / square;
  const double im = sum_of_products(a.im, b.re, -a.re, b.im) / square;
  return {::ldexp(re, m - n), ::ldexp(im, m - n)};
}

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
  __device__ __forceinline__ complex<T> operator/(complex<T> a, T b) { return quotient(a, complex<T>(b)); }  \
  __device__ __forceinline__ complex<T> operator/(complex<T> a, complex<T> b) { return quotient(a, b); }     \
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
