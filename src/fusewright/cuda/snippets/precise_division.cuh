// requires:
// Division that is correctly rounded whatever the compiler's `/` is told to be (--prec-div=false: 2 ulp).

namespace fw {

__device__ __forceinline__ float divide(float a, float b) { return __fdiv_rn(a, b); }
__device__ __forceinline__ double divide(double a, double b) { return a / b; }

}  // namespace fw
