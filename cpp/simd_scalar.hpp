// Vectors as small arrays, for any machine: what every other target must agree with. Four lanes, so that a compiler can
// still use whatever the baseline of its target offers (SSE2, NEON).
#pragma once  // included inside a target's own namespace, after the system headers

template <class T>
struct Vec {
  static constexpr int lanes = 4;
  T v[lanes];
};
using F = Vec<float>;
using D = Vec<double>;

inline constexpr int kRowVectors = 2;
inline constexpr int kColumns = 2;
inline constexpr int kProductVectors = 2;  // products: row vectors x right-hand sides at a time
inline constexpr int kRhs = 4;
inline constexpr int kDotColumns = 2;  // transposed products: columns x right-hand sides at a time
inline constexpr int kDotRhs = 2;
inline constexpr bool kFixedPoint = false;

template <class Function>
inline auto lanewise(Function f) {
  Vec<decltype(f(0))> r;
  for (int i = 0; i < 4; ++i) r.v[i] = f(i);
  return r;
}

template <class T>
inline Vec<T> load(const T* p) {
  return lanewise([=](int i) { return p[i]; });
}
template <class T>
inline void store(T* p, Vec<T> a) {
  for (int i = 0; i < 4; ++i) p[i] = a.v[i];
}
template <class T>
inline Vec<T> broadcast(T a) {
  return lanewise([=](int) { return a; });
}
template <class T>
inline Vec<T> operator+(Vec<T> a, Vec<T> b) {
  return lanewise([=](int i) { return a.v[i] + b.v[i]; });
}
template <class T>
inline Vec<T> operator-(Vec<T> a, Vec<T> b) {
  return lanewise([=](int i) { return a.v[i] - b.v[i]; });
}
template <class T>
inline Vec<T> operator*(Vec<T> a, Vec<T> b) {
  return lanewise([=](int i) { return a.v[i] * b.v[i]; });
}
template <class T>
inline Vec<T> operator/(Vec<T> a, Vec<T> b) {
  return lanewise([=](int i) { return a.v[i] / b.v[i]; });
}
template <class T>
inline Vec<T> fma(Vec<T> a, Vec<T> b, Vec<T> c) {  // not fused: std::fma is a call where the hardware has none
  return lanewise([=](int i) { return a.v[i] * b.v[i] + c.v[i]; });
}
template <class T>
inline Vec<T> max(Vec<T> a, Vec<T> b) {
  return lanewise([=](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
template <class T>
inline Vec<T> select_greater(Vec<T> a, Vec<T> b, Vec<T> x, Vec<T> y) {
  return lanewise([=](int i) { return a.v[i] > b.v[i] ? x.v[i] : y.v[i]; });
}
template <class T>
inline Vec<T> keep_larger_than(Vec<T> a, Vec<T> least) {
  return lanewise([=](int i) { return (a.v[i] < 0 ? -a.v[i] : a.v[i]) > least.v[i] ? a.v[i] : T(0); });
}

inline std::int32_t bits(float x) {
  std::int32_t b;
  std::memcpy(&b, &x, sizeof b);
  return b;
}
inline std::int64_t bits(double x) {
  std::int64_t b;
  std::memcpy(&b, &x, sizeof b);
  return b;
}
inline float from_bits(std::int32_t b) {
  float x;
  std::memcpy(&x, &b, sizeof x);
  return x;
}
inline double from_bits(std::int64_t b) {
  double x;
  std::memcpy(&x, &b, sizeof x);
  return x;
}

// floor without a call: the arguments here are exponents, far inside the range of an int.
template <class T>
inline T floor_small(T x) {
  const T t = static_cast<T>(static_cast<std::int32_t>(x));
  return t > x ? t - 1 : t;
}
inline float power_of_two(float n) { return from_bits((static_cast<std::int32_t>(n) + 127) << 23); }
inline double power_of_two(double n) { return from_bits((static_cast<std::int64_t>(n) + 1023) << 52); }

template <class T>
inline Vec<T> fraction(Vec<T> x) {
  // Exponents below every format's are cut off by scale_by_power; clamp them so that the conversion is defined.
  return lanewise([=](int i) {
    const T y = x.v[i] < T(-4096) ? T(-4096) : x.v[i];
    return y - floor_small(y);
  });
}
template <class T>
inline Vec<T> scale_by_power(Vec<T> y, Vec<T> x, Vec<T> least) {
  return lanewise([=](int i) { return x.v[i] > least.v[i] ? y.v[i] * power_of_two(floor_small(x.v[i])) : T(0); });
}
inline F reciprocal_sqrt_estimate(F x) {
  return lanewise([=](int i) { return 1.0f / std::sqrt(x.v[i]); });
}
inline D square_root(D x) {
  return lanewise([=](int i) { return std::sqrt(x.v[i]); });
}
inline F exponent(F x) {
  return lanewise([=](int i) { return static_cast<float>(((bits(x.v[i]) >> 23) & 0xff) - 127); });
}
inline D exponent(D x) {
  return lanewise([=](int i) { return static_cast<double>(((bits(x.v[i]) >> 52) & 0x7ff) - 1023); });
}
inline F mantissa(F x) {
  return lanewise([=](int i) { return from_bits(static_cast<std::int32_t>((bits(x.v[i]) & 0x7fffff) | (127 << 23))); });
}
inline D mantissa(D x) {
  return lanewise([=](int i) {
    return from_bits(static_cast<std::int64_t>((bits(x.v[i]) & 0xfffffffffffff) | (std::int64_t{1023} << 52)));
  });
}

template <int count, class T>
inline void sum_lanes(const Vec<T>* a, T* sums) {
  for (int i = 0; i < count; ++i) sums[i] = (a[i].v[0] + a[i].v[2]) + (a[i].v[1] + a[i].v[3]);
}

inline float float16_to_float(std::uint16_t h) {
  const std::int32_t sign = (h & 0x8000) << 16, e = (h >> 10) & 31, m = h & 1023;
  const float magnitude = e == 0 ? static_cast<float>(m) * 5.9604644775390625e-8f  // 2^-24
                                 : from_bits(((e + 112) << 23) | (m << 13));
  return from_bits(bits(magnitude) | sign);
}
inline std::uint16_t float_to_float16(float x) {  // round to nearest, ties to even; |x| below float16's overflow
  const std::int32_t b = bits(x), sign = (b >> 16) & 0x8000, a = b & 0x7fffffff;
  if (a < (113 << 23)) {  // a subnormal, or zero: let the addition of 0.5 round to a multiple of 2^-24
    const std::int32_t r = bits(from_bits(a) + 0.5f) - bits(0.5f);
    return static_cast<std::uint16_t>(sign | r);
  }
  const std::int32_t r = a + 0xfff + ((a >> 13) & 1) - (112 << 23);
  return static_cast<std::uint16_t>(sign | (r >> 13));
}
inline F load_float16(const std::uint16_t* p) {
  return lanewise([=](int i) { return float16_to_float(p[i]); });
}
inline void store_float16(std::uint16_t* p, F a) {
  for (int i = 0; i < 4; ++i) p[i] = float_to_float16(a.v[i]);
}
inline F load_bfloat16(const std::uint16_t* p) {
  return lanewise([=](int i) { return from_bits(static_cast<std::int32_t>(static_cast<std::uint32_t>(p[i]) << 16)); });
}
inline void store_bfloat16(std::uint16_t* p, F a) {
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t b = static_cast<std::uint32_t>(bits(a.v[i]));
    p[i] = static_cast<std::uint16_t>((b + 0x7fff + ((b >> 16) & 1)) >> 16);
  }
}
