// Vectors of NEON as every 64-bit ARM processor has it (ARMv8-A Advanced SIMD).
#pragma once  // included inside a target's own namespace, after the system headers

template <class T>
struct Vec;

template <>
struct Vec<float> {
  static constexpr int lanes = 4;
  float32x4_t v;
};
template <>
struct Vec<double> {
  static constexpr int lanes = 2;
  float64x2_t v;
};
using F = Vec<float>;
using D = Vec<double>;

// Shapes of the register blocks: 32 registers.
inline constexpr int kRowVectors = 4;
inline constexpr int kColumns = 4;
inline constexpr int kProductVectors = 4;  // products: row vectors x right-hand sides at a time
inline constexpr int kRhs = 6;
inline constexpr int kDotColumns = 4;  // transposed products: columns x right-hand sides at a time
inline constexpr int kDotRhs = 6;
inline constexpr bool kFixedPoint = false;

inline F load(const float* p) { return {vld1q_f32(p)}; }
inline D load(const double* p) { return {vld1q_f64(p)}; }
inline void store(float* p, F a) { vst1q_f32(p, a.v); }
inline void store(double* p, D a) { vst1q_f64(p, a.v); }
inline F broadcast(float a) { return {vdupq_n_f32(a)}; }
inline D broadcast(double a) { return {vdupq_n_f64(a)}; }

inline F operator+(F a, F b) { return {vaddq_f32(a.v, b.v)}; }
inline D operator+(D a, D b) { return {vaddq_f64(a.v, b.v)}; }
inline F operator-(F a, F b) { return {vsubq_f32(a.v, b.v)}; }
inline D operator-(D a, D b) { return {vsubq_f64(a.v, b.v)}; }
inline F operator*(F a, F b) { return {vmulq_f32(a.v, b.v)}; }
inline D operator*(D a, D b) { return {vmulq_f64(a.v, b.v)}; }
inline F operator/(F a, F b) { return {vdivq_f32(a.v, b.v)}; }
inline D operator/(D a, D b) { return {vdivq_f64(a.v, b.v)}; }
inline F fma(F a, F b, F c) { return {vfmaq_f32(c.v, a.v, b.v)}; }  // a b + c
inline D fma(D a, D b, D c) { return {vfmaq_f64(c.v, a.v, b.v)}; }
// b where a is not a number, as on x86; vmaxq would pass that on.
inline F max(F a, F b) { return {vmaxnmq_f32(a.v, b.v)}; }
inline D max(D a, D b) { return {vmaxnmq_f64(a.v, b.v)}; }

// x where the mask is all ones, else 0.
inline F keep(uint32x4_t mask, float32x4_t x) {
  return {vreinterpretq_f32_u32(vandq_u32(mask, vreinterpretq_u32_f32(x)))};
}
inline D keep(uint64x2_t mask, float64x2_t x) {
  return {vreinterpretq_f64_u64(vandq_u64(mask, vreinterpretq_u64_f64(x)))};
}

// where(a > b, x, y)
inline F select_greater(F a, F b, F x, F y) { return {vbslq_f32(vcgtq_f32(a.v, b.v), x.v, y.v)}; }
inline D select_greater(D a, D b, D x, D y) { return {vbslq_f64(vcgtq_f64(a.v, b.v), x.v, y.v)}; }
// a where |a| > least, else 0; the instruction compares magnitudes, and `least` is not negative.
inline unsigned lanes_below(D a, D b) {  // bit i: whether lane i of a is less than that of b
  const uint64x2_t less = vcltq_f64(a.v, b.v);
  return static_cast<unsigned>(vgetq_lane_u64(less, 0) & 1) | static_cast<unsigned>(vgetq_lane_u64(less, 1) & 2);
}
inline F keep_larger_than(F a, F least) { return keep(vcagtq_f32(a.v, least.v), a.v); }
inline D keep_larger_than(D a, D least) { return keep(vcagtq_f64(a.v, least.v), a.v); }

// x - floor(x), and y 2^floor(x) where x > least (a normal power), else 0.
inline F fraction(F x) { return {vsubq_f32(x.v, vrndmq_f32(x.v))}; }
inline D fraction(D x) { return {vsubq_f64(x.v, vrndmq_f64(x.v))}; }
inline F scale_by_power(F y, F x, F least) {
  const int32x4_t power = vshlq_n_s32(vcvtmq_s32_f32(x.v), 23);
  const float32x4_t scaled = vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(y.v), power));
  return keep(vcgtq_f32(x.v, least.v), scaled);
}
inline D scale_by_power(D y, D x, D least) {
  const int64x2_t power = vshlq_n_s64(vcvtmq_s64_f64(x.v), 52);
  const float64x2_t scaled = vreinterpretq_f64_s64(vaddq_s64(vreinterpretq_s64_f64(y.v), power));
  return keep(vcgtq_f64(x.v, least.v), scaled);
}

// An estimate of 1 / sqrt(x) (the caller refines), and the correctly rounded square root. The instruction's own estimate
// is good to 2^-8, which the caller's one step would leave at 2^-15: a step here makes it 2^-15 beforehand.
inline F reciprocal_sqrt_estimate(F x) {
  const float32x4_t y = vrsqrteq_f32(x.v);
  return {vmulq_f32(y, vrsqrtsq_f32(vmulq_f32(x.v, y), y))};
}
inline D square_root(D x) { return {vsqrtq_f64(x.v)}; }

// x = mantissa 2^exponent with the mantissa in [1, 2), for normal x > 0.
inline F exponent(F x) {
  const int32x4_t biased = vshrq_n_s32(vreinterpretq_s32_f32(x.v), 23);
  return {vcvtq_f32_s32(vsubq_s32(biased, vdupq_n_s32(127)))};
}
inline D exponent(D x) {
  const int64x2_t biased = vshrq_n_s64(vreinterpretq_s64_f64(x.v), 52);
  return {vcvtq_f64_s64(vsubq_s64(biased, vdupq_n_s64(1023)))};
}
inline F mantissa(F x) {  // the bits below the exponent from x, the others from 1
  return {vbslq_f32(vdupq_n_u32(0x7fffff), x.v, vdupq_n_f32(1.0f))};
}
inline D mantissa(D x) { return {vbslq_f64(vdupq_n_u64(0xfffffffffffff), x.v, vdupq_n_f64(1.0))}; }

// Sums over the lanes of each of `count` vectors, four (two) at a time.
template <int count>
inline void sum_lanes(const F* a, float* sums) {
  constexpr int whole = count / 4 * 4;
#pragma GCC unroll 8
  for (int i = 0; i < whole; i += 4)
    vst1q_f32(sums + i, vpaddq_f32(vpaddq_f32(a[i].v, a[i + 1].v), vpaddq_f32(a[i + 2].v, a[i + 3].v)));
#pragma GCC unroll 4
  for (int i = whole; i < count; ++i) sums[i] = vaddvq_f32(a[i].v);
}
template <int count>
inline void sum_lanes(const D* a, double* sums) {
  constexpr int whole = count / 2 * 2;
#pragma GCC unroll 16
  for (int i = 0; i < whole; i += 2) vst1q_f64(sums + i, vpaddq_f64(a[i].v, a[i + 1].v));
  if constexpr (whole < count) sums[whole] = vaddvq_f64(a[whole].v);
}

// Stored entries: a vector of them between memory and registers. The conversions ignore the flush-to-zero mode where the
// half is concerned: denormal halves live.
inline F load_float16(const std::uint16_t* p) { return {vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)))}; }
inline void store_float16(std::uint16_t* p, F a) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a.v))); }
inline F load_bfloat16(const std::uint16_t* p) {
  return {vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vld1_u16(p)), 16))};
}
inline void store_bfloat16(std::uint16_t* p, F a) {  // round to nearest, ties to even; entries are finite
  const uint32x4_t bits = vreinterpretq_u32_f32(a.v);
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  vst1_u16(p, vshrn_n_u32(vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff))), 16));
}
