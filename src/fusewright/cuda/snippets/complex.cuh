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

// a / b, whose parts are accurate each on its own; operands are scaled so that nothing between overflows.
// `divide` divides real numbers.
template <class T, class Divide>
__device__ complex<T> quotient(complex<T> a, complex<T> b, Divide divide) {
  if (b.im == T(0)) return {divide(a.re, b.re), divide(a.im, b.re)};
  const bool infinite = isinf(b.re) || isinf(b.im);
  if (infinite && isfinite(a.re) && isfinite(a.im)) {
    b = {::copysign(isinf(b.re) ? T(1) : T(0), b.re), ::copysign(isinf(b.im) ? T(1) : T(0), b.im)};
  }
  const int m = magnitude(a), n = magnitude(b);
  a = {::ldexp(a.re, -m), ::ldexp(a.im, -m)};
  b = {::ldexp(b.re, -n), ::ldexp(b.im, -n)};
  const T square = b.re * b.re + b.im * b.im;
  const T re = divide(sum_of_products(a.re, b.re, a.im, b.im), square);
  const T im = divide(sum_of_products(a.im, b.re, -a.re, b.im), square);
  if (infinite) return {re * T(0), im * T(0)};
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
  __device__ __forceinline__ complex<T> operator/(complex<T> a, T b) { return {a.re / b, a.im / b}; }        \
  __device__ __forceinline__ complex<T> operator/(complex<T> a, complex<T> b) {                              \
    return quotient(a, b, [](T x, T y) { return x / y; });                                                   \
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
