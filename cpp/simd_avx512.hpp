// Vectors of AVX-512 (F, BW, DQ, VL), with the 16-bit dot products of VNNI where the target has them.
#pragma once  // included inside a target's own namespace, after the system headers

template <class T>
struct Vec;
struct I;  // of 32-bit integers, for VNNI

template <>
struct Vec<float> {
  static constexpr int lanes = 16;
  using Integers = I;
  __m512 v;
};
template <>
struct Vec<double> {
  static constexpr int lanes = 8;
  __m512d v;
};
using F = Vec<float>;
using D = Vec<double>;

// Shapes of the register blocks: 32 registers.
inline constexpr int kRowVectors = 4;   // entries: row vectors x columns at a time
inline constexpr int kColumns = 4;
inline constexpr int kProductVectors = 4;  // products: row vectors x right-hand sides at a time
inline constexpr int kRhs = 6;
inline constexpr int kDotColumns = 4;  // transposed products: columns x right-hand sides at a time
inline constexpr int kDotRhs = 6;

inline F load(const float* p) { return {_mm512_load_ps(p)}; }
inline D load(const double* p) { return {_mm512_load_pd(p)}; }
inline void store(float* p, F a) { _mm512_store_ps(p, a.v); }
inline void store(double* p, D a) { _mm512_store_pd(p, a.v); }
inline F broadcast(float a) { return {_mm512_set1_ps(a)}; }
inline D broadcast(double a) { return {_mm512_set1_pd(a)}; }

inline F operator+(F a, F b) { return {_mm512_add_ps(a.v, b.v)}; }
inline D operator+(D a, D b) { return {_mm512_add_pd(a.v, b.v)}; }
inline F operator-(F a, F b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline D operator-(D a, D b) { return {_mm512_sub_pd(a.v, b.v)}; }
inline F operator*(F a, F b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline D operator*(D a, D b) { return {_mm512_mul_pd(a.v, b.v)}; }
inline F operator/(F a, F b) { return {_mm512_div_ps(a.v, b.v)}; }
inline D operator/(D a, D b) { return {_mm512_div_pd(a.v, b.v)}; }
inline F fma(F a, F b, F c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }  // a b + c
inline D fma(D a, D b, D c) { return {_mm512_fmadd_pd(a.v, b.v, c.v)}; }
inline F max(F a, F b) { return {_mm512_max_ps(a.v, b.v)}; }
inline D max(D a, D b) { return {_mm512_max_pd(a.v, b.v)}; }

// where(a > b, x, y)
inline F select_greater(F a, F b, F x, F y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ), y.v, x.v)};
}
inline D select_greater(D a, D b, D x, D y) {
  return {_mm512_mask_blend_pd(_mm512_cmp_pd_mask(a.v, b.v, _CMP_GT_OQ), y.v, x.v)};
}
inline unsigned lanes_below(D a, D b) {  // bit i: whether lane i of a is less than that of b
  return _mm512_cmp_pd_mask(a.v, b.v, _CMP_LT_OQ);
}
inline F keep_larger_than(F a, F least) {  // a where |a| > least, else 0
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(_mm512_abs_ps(a.v), least.v, _CMP_GT_OQ), a.v)};
}
inline D keep_larger_than(D a, D least) {
  return {_mm512_maskz_mov_pd(_mm512_cmp_pd_mask(_mm512_abs_pd(a.v), least.v, _CMP_GT_OQ), a.v)};
}

// x - floor(x), and y 2^floor(x) where x > least, else 0: both single instructions here.
inline F fraction(F x) { return {_mm512_reduce_ps(x.v, 1)}; }
inline D fraction(D x) { return {_mm512_reduce_pd(x.v, 1)}; }
inline F scale_by_power(F y, F x, F least) {
  return {_mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x.v, least.v, _CMP_GT_OQ), y.v, x.v)};
}
inline D scale_by_power(D y, D x, D least) {
  return {_mm512_maskz_scalef_pd(_mm512_cmp_pd_mask(x.v, least.v, _CMP_GT_OQ), y.v, x.v)};
}

// An estimate of 1 / sqrt(x) good to 2^-14 (the caller refines), and the correctly rounded square root.
inline F reciprocal_sqrt_estimate(F x) { return {_mm512_rsqrt14_ps(x.v)}; }
inline D square_root(D x) { return {_mm512_sqrt_pd(x.v)}; }

// x = mantissa 2^exponent with the mantissa in [1, 2).
inline F exponent(F x) { return {_mm512_getexp_ps(x.v)}; }
inline D exponent(D x) { return {_mm512_getexp_pd(x.v)}; }
inline F mantissa(F x) { return {_mm512_getmant_ps(x.v, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_src)}; }
inline D mantissa(D x) { return {_mm512_getmant_pd(x.v, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_src)}; }

// Sums over the lanes of each of `count` vectors: a tree that shares its shuffles among 16 (8) of them.
template <int count>
inline void sum_lanes(const F* a, float* sums) {
  constexpr int groups = (count + 15) / 16;
#pragma GCC unroll 2
  for (int g = 0; g < groups; ++g) {
    __m512 r[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) r[i] = g * 16 + i < count ? a[g * 16 + i].v : _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i)  // r[i], r[i + 8]: halves of 256 bits
      r[i] = _mm512_add_ps(_mm512_shuffle_f32x4(r[i], r[i + 8], 0x44), _mm512_shuffle_f32x4(r[i], r[i + 8], 0xee));
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)  // quarters of 128 bits
      r[i] = _mm512_add_ps(_mm512_shuffle_f32x4(r[i], r[i + 4], 0x88), _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd));
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i)  // pairs of lanes
      r[i] = _mm512_add_ps(_mm512_shuffle_ps(r[i], r[i + 2], 0x44), _mm512_shuffle_ps(r[i], r[i + 2], 0xee));
    r[0] = _mm512_add_ps(_mm512_shuffle_ps(r[0], r[1], 0x88), _mm512_shuffle_ps(r[0], r[1], 0xdd));
    // The tree leaves vector i in lane place[i].
    const __m512i place = _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15);
    constexpr int tail = count % 16;
    const __mmask16 live = g + 1 < groups || tail == 0 ? 0xffff : (1 << tail) - 1;
    _mm512_mask_storeu_ps(sums + g * 16, live, _mm512_permutexvar_ps(place, r[0]));
  }
}
template <int count>
inline void sum_lanes(const D* a, double* sums) {
#pragma GCC unroll 32
  for (int i = 0; i < count; ++i) sums[i] = _mm512_reduce_add_pd(a[i].v);
}

// Stored entries: kLanes of them between memory and a vector. The conversions ignore the flush-to-zero mode.
inline F load_float16(const std::uint16_t* p) { return {_mm512_cvtph_ps(_mm256_load_si256((const __m256i*)p))}; }
inline void store_float16(std::uint16_t* p, F a) {
  _mm256_store_si256((__m256i*)p, _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline F load_bfloat16(const std::uint16_t* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_load_si256((const __m256i*)p)), 16))};
}
inline void store_bfloat16(std::uint16_t* p, F a) {  // round to nearest, ties to even; entries are finite
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  _mm256_store_si256((__m256i*)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}

#ifdef __AVX512VNNI__
inline constexpr bool kFixedPoint = true;
struct I {
  __m512i v;
};
inline I load(const std::int32_t* p) { return {_mm512_load_si512(p)}; }
inline I broadcast(std::int32_t a) { return {_mm512_set1_epi32(a)}; }
inline I operator+(I a, I b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline I operator-(I a, I b) { return {_mm512_sub_epi32(a.v, b.v)}; }
inline I add_dot16(I c, I a, I b) {
  // The instruction by name: around the intrinsic GCC 12 copies every accumulator twice.
  __asm__("vpdpwssd %2, %1, %0" : "+v"(c.v) : "v"(a.v), "v"(b.v));
  return c;
}
inline F to_float(I a) { return {_mm512_cvtepi32_ps(a.v)}; }
#else
inline constexpr bool kFixedPoint = false;
#endif
