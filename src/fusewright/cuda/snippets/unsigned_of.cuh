// requires:
// unsigned_of<T>::type: the unsigned integer type of the same width.

namespace fw {

template <class T> struct unsigned_of { using type = unsigned int; };
template <> struct unsigned_of<long long> { using type = unsigned long long; };

}  // namespace fw
