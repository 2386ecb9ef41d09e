// requires:
// 1 / (1 + e^-x). The denominator is at least 1, where the fast division is good to 2 ulp.

namespace fw {

__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + ::expf(-x)); }
__device__ __forceinline__ double sigmoid(double x) { return 1.0 / (1.0 + ::exp(-x)); }

}  // namespace fw
