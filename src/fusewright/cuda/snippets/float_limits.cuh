// requires:
// What formulas need to know of a floating-point type.

namespace fw {

template <class T> struct float_limits;
template <> struct float_limits<float> {
  static constexpr float largest = 0x1.fffffep127f;
  static constexpr float huge = 0x1p62f;       // its square is finite, with room for a factor of 8
  static constexpr float vast = 0x1p124f;      // so is eight times this
  static constexpr float tiny = 0x1p-100f;     // below, sums lose digits to subnormals
  static constexpr float largest_exp = 88.0f;  // of which exp is finite
  static constexpr float largest_tanh = 11.0f;  // beyond, tanh is 1
  static constexpr float smallest_sigmoid = 80.0f;  // beyond its negative, sigmoid is nearly subnormal
  static constexpr float ln2_rest = -1.904654299957768e-09f;  // log(2), less its value as a float
};
template <> struct float_limits<double> {
  static constexpr double largest = 0x1.fffffffffffffp1023;
  static constexpr double huge = 0x1p510;
  static constexpr double vast = 0x1p1020;
  static constexpr double tiny = 0x1p-960;
  static constexpr double largest_exp = 709.0;
  static constexpr double largest_tanh = 22.0;
  static constexpr double smallest_sigmoid = 700.0;
  static constexpr double ln2_rest = 2.3190468138462996e-17;
};

}  // namespace fw
