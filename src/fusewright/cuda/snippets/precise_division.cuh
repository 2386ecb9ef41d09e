// requires:
// Division that is correctly rounded whatever the compiler's `/` is told to be (--prec-div=false: 2 ulp), without the
// branch of __fdiv_rn: a row that waits for a call to its slow path waits for that of a mean in every row.

namespace fw {

// A reciprocal, corrected once, and a quotient, corrected twice by what it leaves over (Markstein 1990). That is
// exact where neither a remainder nor a reciprocal is subnormal; elsewhere the quotient is within 2 ulp.
__device__ __forceinline__ float divide(float a, float b) {
  float r = 1.0f / b;
  r = fmaf(fmaf(-b, r, 1.0f), r, r);
  float q = a * r;
  q = fmaf(fmaf(-b, q, a), r, q);
  q = fmaf(fmaf(-b, q, a), r, q);
  bool in_range = fabsf(a) >= 0x1p-100f && fabsf(b) <= 0x1p125f && fabsf(q) >= 0x1p-125f && fabsf(q) <= 0x1p126f;
  return in_range ? q : a / b;
}
__device__ __forceinline__ double divide(double a, double b) { return a / b; }

// The same where registers are scarce: `divide` lets the compiler hold the corrected reciprocal of a divisor that all rows
// share, and spill something else. Layer norm backward of 8192 x 16384 bfloat16 spilled 24 bytes with `divide` and took
// 242 us (an H200); an earlier run, of the code when every precise division was __fdiv_rn, took 215 us. That the spills
// make the difference is inferred.
__device__ __forceinline__ float divide_in_few_registers(float a, float b) { return __fdiv_rn(a, b); }
__device__ __forceinline__ double divide_in_few_registers(double a, double b) { return a / b; }

}  // namespace fw
