// Vectors of 16 bytes in the compiler's own arithmetic, for any machine: what every other target must agree with. GCC and
// Clang turn it into whatever the baseline of the architecture has (SSE2, NEON), or into scalar code.
#pragma once  // included inside a target's own namespace, after the system headers

template <class T>
struct Vec;

template <>
struct Vec<float> {
  static constexpr int lanes = 4;
  typedef float Lanes __attribute__((vector_size(16), may_alias));
  typedef std::int32_t Bits __attribute__((vector_size(16)));
  Lanes v;
};
template <>
struct Vec<double> {
  static constexpr int lanes = 2;
  typedef double Lanes __attribute__((vector_size(16), may_alias));
  typedef std::int64_t Bits __attribute__((vector_size(16)));
  Lanes v;
};
using F = Vec<float>;
using D = Vec<double>;

inline constexpr int kRowVectors = 2;
inline constexpr int kColumns = 4;
inline constexpr int kProductVectors = 2;  // products: row vectors x right-hand sides at a time
inline constexpr int kRhs = 4;
inline constexpr int kDotColumns = 2;  // transposed products: columns x right-hand sides at a time
inline constexpr int kDotRhs = 4;
inline constexpr bool kFixedPoint = false;

// Bits of a format: where its exponent begins, and the bias.
template <class T>
struct Layout;
template <>
struct Layout<float> {
  static constexpr int mantissa_bits = 23, bias = 127;
};
template <>
struct Layout<double> {
  static constexpr int mantissa_bits = 52, bias = 1023;
};

template <class T>
inline typename Vec<T>::Bits bits(Vec<T> a) {
  return reinterpret_cast<typename Vec<T>::Bits>(a.v);
}
template <class T>
inline Vec<T> from_bits(typename Vec<T>::Bits b) {
  return {reinterpret_cast<typename Vec<T>::Lanes>(b)};
}
template <class T>
inline Vec<T> keep(typename Vec<T>::Bits mask, Vec<T> a) {  // a where the mask is all ones, else 0
  return from_bits<T>(mask & bits(a));
}

template <class T>
inline Vec<T> load(const T* p) {
  return {*reinterpret_cast<const typename Vec<T>::Lanes*>(p)};
}
template <class T>
inline void store(T* p, Vec<T> a) {
  *reinterpret_cast<typename Vec<T>::Lanes*>(p) = a.v;
}
inline F broadcast(float a) { return {F::Lanes{a, a, a, a}}; }
inline D broadcast(double a) { return {D::Lanes{a, a}}; }

template <class T>
inline Vec<T> operator+(Vec<T> a, Vec<T> b) {
  return {a.v + b.v};
}
template <class T>
inline Vec<T> operator-(Vec<T> a, Vec<T> b) {
  return {a.v - b.v};
}
template <class T>
inline Vec<T> operator*(Vec<T> a, Vec<T> b) {
  return {a.v * b.v};
}
template <class T>
inline Vec<T> operator/(Vec<T> a, Vec<T> b) {
  return {a.v / b.v};
}
template <class T>
inline Vec<T> fma(Vec<T> a, Vec<T> b, Vec<T> c) {  // fused where the baseline has it; std::fma would be a call elsewhere
  return {a.v * b.v + c.v};
}
template <class T>
inline Vec<T> select_greater(Vec<T> a, Vec<T> b, Vec<T> x, Vec<T> y) {
  const typename Vec<T>::Bits mask = a.v > b.v;
  return from_bits<T>((mask & bits(x)) | (~mask & bits(y)));
}
inline unsigned lanes_below(D a, D b) {  // bit i: whether lane i of a is less than that of b
  return unsigned{a.v[0] < b.v[0]} | unsigned{a.v[1] < b.v[1]} << 1;
}
template <class T>
inline Vec<T> max(Vec<T> a, Vec<T> b) {
  return select_greater(a, b, a, b);
}
template <class T>
inline Vec<T> keep_larger_than(Vec<T> a, Vec<T> least) {
  return keep<T>((a.v > least.v) | (-a.v > least.v), a);
}

// floor without a call: adding and subtracting 1.5 2^mantissa_bits rounds to an integer, for the exponents met here.
template <class T>
inline Vec<T> floor_small(Vec<T> x) {
  const Vec<T> magic = broadcast(T(1.5) * T(std::int64_t{1} << Layout<T>::mantissa_bits));
  const Vec<T> nearest = (x + magic) - magic;
  return nearest - keep<T>(nearest.v > x.v, broadcast(T(1)));
}
template <class T>
inline Vec<T> fraction(Vec<T> x) {
  return x - floor_small(x);
}
// y 2^floor(x) where x > least (a normal power), else 0.
template <class T>
inline Vec<T> scale_by_power(Vec<T> y, Vec<T> x, Vec<T> least) {
  const typename Vec<T>::Bits wanted = x.v > least.v;
  // floor(x) + bias as an integer, read off the low bits of a number whose last place counts in ones; then 2^floor(x).
  const Vec<T> magic = broadcast(T(1.5) * T(std::int64_t{1} << Layout<T>::mantissa_bits));
  const Vec<T> shifted = floor_small(keep(wanted, x)) + magic + broadcast(T(Layout<T>::bias));
  return keep(wanted, y * from_bits<T>((bits(shifted) - bits(magic)) << Layout<T>::mantissa_bits));
}
inline F reciprocal_sqrt_estimate(F x) {
  return {F::Lanes{1 / std::sqrt(x.v[0]), 1 / std::sqrt(x.v[1]), 1 / std::sqrt(x.v[2]), 1 / std::sqrt(x.v[3])}};
}
inline D square_root(D x) { return {D::Lanes{std::sqrt(x.v[0]), std::sqrt(x.v[1])}}; }

template <class T>
inline Vec<T> exponent(Vec<T> x) {  // of normal x > 0, by the same trick backwards
  const Vec<T> magic = broadcast(T(1.5) * T(std::int64_t{1} << Layout<T>::mantissa_bits));
  const Vec<T> biased = from_bits<T>((bits(x) >> Layout<T>::mantissa_bits) + bits(magic));
  return biased - magic - broadcast(T(Layout<T>::bias));
}
template <class T>
inline Vec<T> mantissa(Vec<T> x) {
  const Vec<T> one = broadcast(T(1));
  const typename Vec<T>::Bits low = bits(one) ^ bits(one);  // zero
  return from_bits<T>((bits(x) & ~((~low) << Layout<T>::mantissa_bits)) | bits(one));
}

template <int count>
inline void sum_lanes(const F* a, float* sums) {
  for (int i = 0; i < count; ++i) sums[i] = (a[i].v[0] + a[i].v[2]) + (a[i].v[1] + a[i].v[3]);
}
template <int count>
inline void sum_lanes(const D* a, double* sums) {
  for (int i = 0; i < count; ++i) sums[i] = a[i].v[0] + a[i].v[1];
}

inline std::uint32_t word(float x) {
  std::uint32_t w;
  std::memcpy(&w, &x, sizeof w);
  return w;
}
inline float from_word(std::uint32_t w) {
  float x;
  std::memcpy(&x, &w, sizeof x);
  return x;
}
inline float float16_to_float(std::uint16_t h) {
  const std::uint32_t sign = (h & 0x8000u) << 16, e = (h >> 10) & 31u, m = h & 1023u;
  const float magnitude = e == 0 ? static_cast<float>(m) * 5.9604644775390625e-8f  // 2^-24
                                 : from_word(((e + 112) << 23) | (m << 13));
  return from_word(word(magnitude) | sign);
}
inline std::uint16_t float_to_float16(float x) {  // round to nearest, ties to even; |x| below float16's overflow
  const std::uint32_t w = word(x), sign = (w >> 16) & 0x8000u, a = w & 0x7fffffffu;
  if (a < (113u << 23))  // a subnormal, or zero: the addition of 0.5 rounds to a multiple of 2^-24
    return static_cast<std::uint16_t>(sign | (word(from_word(a) + 0.5f) - word(0.5f)));
  return static_cast<std::uint16_t>(sign | ((a + 0xfffu + ((a >> 13) & 1u) - (112u << 23)) >> 13));
}
inline F load_float16(const std::uint16_t* p) {
  return {F::Lanes{float16_to_float(p[0]), float16_to_float(p[1]), float16_to_float(p[2]), float16_to_float(p[3])}};
}
inline void store_float16(std::uint16_t* p, F a) {
  for (int i = 0; i < 4; ++i) p[i] = float_to_float16(a.v[i]);
}
inline F load_bfloat16(const std::uint16_t* p) {
  return {F::Lanes{from_word(std::uint32_t{p[0]} << 16), from_word(std::uint32_t{p[1]} << 16),
                   from_word(std::uint32_t{p[2]} << 16), from_word(std::uint32_t{p[3]} << 16)}};
}
inline void store_bfloat16(std::uint16_t* p, F a) {
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t w = word(a.v[i]);
    p[i] = static_cast<std::uint16_t>((w + 0x7fffu + ((w >> 16) & 1u)) >> 16);
  }
}
