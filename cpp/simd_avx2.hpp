// Vectors of AVX2 with FMA and F16C.
#pragma once  // included inside a target's own namespace, after the system headers

template <class T>
struct Vec;

template <>
struct Vec<float> {
  static constexpr int lanes = 8;
  __m256 v;
};
template <>
struct Vec<double> {
  static constexpr int lanes = 4;
  __m256d v;
};
using F = Vec<float>;
using D = Vec<double>;

// Shapes of the register blocks: 16 registers.
inline constexpr int kRowVectors = 2;
inline constexpr int kColumns = 4;
inline constexpr int kProductVectors = 2;  // products: row vectors x right-hand sides at a time
inline constexpr int kRhs = 6;
inline constexpr int kDotColumns = 4;  // transposed products: columns x right-hand sides at a time
inline constexpr int kDotRhs = 2;
inline constexpr bool kFixedPoint = false;

inline F load(const float* p) { return {_mm256_load_ps(p)}; }
inline D load(const double* p) { return {_mm256_load_pd(p)}; }
inline void store(float* p, F a) { _mm256_store_ps(p, a.v); }
inline void store(double* p, D a) { _mm256_store_pd(p, a.v); }
inline F broadcast(float a) { return {_mm256_set1_ps(a)}; }
inline D broadcast(double a) { return {_mm256_set1_pd(a)}; }

inline F operator+(F a, F b) { return {_mm256_add_ps(a.v, b.v)}; }
inline D operator+(D a, D b) { return {_mm256_add_pd(a.v, b.v)}; }
inline F operator-(F a, F b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline D operator-(D a, D b) { return {_mm256_sub_pd(a.v, b.v)}; }
inline F operator*(F a, F b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline D operator*(D a, D b) { return {_mm256_mul_pd(a.v, b.v)}; }
inline F operator/(F a, F b) { return {_mm256_div_ps(a.v, b.v)}; }
inline D operator/(D a, D b) { return {_mm256_div_pd(a.v, b.v)}; }
inline F fma(F a, F b, F c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }  // a b + c
inline D fma(D a, D b, D c) { return {_mm256_fmadd_pd(a.v, b.v, c.v)}; }
inline F max(F a, F b) { return {_mm256_max_ps(a.v, b.v)}; }
inline D max(D a, D b) { return {_mm256_max_pd(a.v, b.v)}; }

// where(a > b, x, y)
inline F select_greater(F a, F b, F x, F y) {
  return {_mm256_blendv_ps(y.v, x.v, _mm256_cmp_ps(a.v, b.v, _CMP_GT_OQ))};
}
inline D select_greater(D a, D b, D x, D y) {
  return {_mm256_blendv_pd(y.v, x.v, _mm256_cmp_pd(a.v, b.v, _CMP_GT_OQ))};
}
inline unsigned lanes_below(D a, D b) {  // bit i: whether lane i of a is less than that of b
  return static_cast<unsigned>(_mm256_movemask_pd(_mm256_cmp_pd(a.v, b.v, _CMP_LT_OQ)));
}
inline F keep_larger_than(F a, F least) {  // a where |a| > least, else 0
  const __m256 size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v);
  return {_mm256_and_ps(a.v, _mm256_cmp_ps(size, least.v, _CMP_GT_OQ))};
}
inline D keep_larger_than(D a, D least) {
  const __m256d size = _mm256_andnot_pd(_mm256_set1_pd(-0.0), a.v);
  return {_mm256_and_pd(a.v, _mm256_cmp_pd(size, least.v, _CMP_GT_OQ))};
}

// x - floor(x), and y 2^floor(x) where x > least (a normal power), else 0.
inline F fraction(F x) { return {_mm256_sub_ps(x.v, _mm256_floor_ps(x.v))}; }
inline D fraction(D x) { return {_mm256_sub_pd(x.v, _mm256_floor_pd(x.v))}; }
inline F scale_by_power(F y, F x, F least) {
  const __m256i power = _mm256_slli_epi32(_mm256_cvtps_epi32(_mm256_floor_ps(x.v)), 23);
  const __m256 scaled = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(y.v), power));
  return {_mm256_and_ps(scaled, _mm256_cmp_ps(x.v, least.v, _CMP_GT_OQ))};
}
inline D scale_by_power(D y, D x, D least) {
  const __m256i power = _mm256_slli_epi64(_mm256_cvtepi32_epi64(_mm256_cvtpd_epi32(_mm256_floor_pd(x.v))), 52);
  const __m256d scaled = _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(y.v), power));
  return {_mm256_and_pd(scaled, _mm256_cmp_pd(x.v, least.v, _CMP_GT_OQ))};
}

// An estimate of 1 / sqrt(x) good to 2^-11 (the caller refines), and the correctly rounded square root.
inline F reciprocal_sqrt_estimate(F x) { return {_mm256_rsqrt_ps(x.v)}; }
inline D square_root(D x) { return {_mm256_sqrt_pd(x.v)}; }

// x = mantissa 2^exponent with the mantissa in [1, 2), for normal x > 0.
inline F exponent(F x) {
  const __m256i e = _mm256_sub_epi32(_mm256_srli_epi32(_mm256_castps_si256(x.v), 23), _mm256_set1_epi32(127));
  return {_mm256_cvtepi32_ps(e)};
}
inline D exponent(D x) {  // the biased exponent placed in the low bits of 2^52 + 2^51, whose value then counts in ones
  const __m256i biased = _mm256_srli_epi64(_mm256_castpd_si256(x.v), 52);
  const __m256d magic = _mm256_set1_pd(6755399441055744.0);
  const __m256d shifted = _mm256_castsi256_pd(_mm256_add_epi64(biased, _mm256_castpd_si256(magic)));
  return {_mm256_sub_pd(_mm256_sub_pd(shifted, magic), _mm256_set1_pd(1023.0))};
}
inline F mantissa(F x) {
  const __m256 m = _mm256_and_ps(x.v, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffff)));
  return {_mm256_or_ps(m, _mm256_set1_ps(1.0f))};
}
inline D mantissa(D x) {
  const __m256d m = _mm256_and_pd(x.v, _mm256_castsi256_pd(_mm256_set1_epi64x(0xfffffffffffffLL)));
  return {_mm256_or_pd(m, _mm256_set1_pd(1.0))};
}

// Sums over the lanes of each of `count` vectors, eight (four) at a time.
template <int count>
inline void sum_lanes(const F* a, float* sums) {
#pragma GCC unroll 2
  for (int g = 0; g < (count + 7) / 8; ++g) {
    __m256 r[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) r[i] = g * 8 + i < count ? a[g * 8 + i].v : _mm256_setzero_ps();
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) r[i] = _mm256_hadd_ps(r[2 * i], r[2 * i + 1]);
    const __m256 low = _mm256_hadd_ps(r[0], r[1]), high = _mm256_hadd_ps(r[2], r[3]);
    const __m256 total =
        _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
    alignas(32) float out[8];
    _mm256_store_ps(out, total);
    for (int i = 0; i < 8 && g * 8 + i < count; ++i) sums[g * 8 + i] = out[i];
  }
}
template <int count>
inline void sum_lanes(const D* a, double* sums) {
#pragma GCC unroll 32
  for (int i = 0; i < count; ++i) {
    const __m128d half = _mm_add_pd(_mm256_castpd256_pd128(a[i].v), _mm256_extractf128_pd(a[i].v, 1));
    sums[i] = _mm_cvtsd_f64(_mm_add_sd(half, _mm_unpackhi_pd(half, half)));
  }
}

// Stored entries: a vector of them between memory and registers. The conversions ignore the flush-to-zero mode.
inline F load_float16(const std::uint16_t* p) { return {_mm256_cvtph_ps(_mm_load_si128((const __m128i*)p))}; }
inline void store_float16(std::uint16_t* p, F a) {
  _mm_store_si128((__m128i*)p, _mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
inline F load_bfloat16(const std::uint16_t* p) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_load_si128((const __m128i*)p)), 16))};
}
inline void store_bfloat16(std::uint16_t* p, F a) {  // round to nearest, ties to even; entries are finite
  const __m256i bits = _mm256_castps_si256(a.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i high = _mm256_srli_epi32(rounded, 16);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(high, high), 0x08);
  _mm_store_si128((__m128i*)p, _mm256_castsi256_si128(packed));
}
