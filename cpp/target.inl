// The algorithm, once, for whatever vectors the including target has brought along.
#include "profile.inl"
#include "entries.inl"
#include "products.inl"
#include "gradient.inl"
#include "conditionals.inl"
#include "group.inl"
#include "nearest.inl"

template <class T>
inline std::size_t scratch_bytes(const Program& program) {
  return GradientBuffers<T>::size(program) * sizeof(T);
}

template <class T>
constexpr TileFunctions tile_functions() {
  return {scratch_bytes<T>, product_tile<T>, accumulate<T>, gradient_tile<T>, evaluate_tile<T>, store_tile<T>,
          Vec<T>::lanes, ConditionalBuffers<T>::bytes, conditional<T>};
}

// Independent multiply-adds, as many as hide the latency: the machine's peak.
inline double multiply_adds(std::int64_t rounds) {
  constexpr int chains = 12;
  Vec<float> x[chains];
#pragma GCC unroll 16
  for (int i = 0; i < chains; ++i) x[i] = broadcast(1.0f + static_cast<float>(i));
  const Vec<float> a = broadcast(0.999f), b = broadcast(0.001f);
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < chains; ++i) x[i] = fma(x[i], a, b);
  }
  alignas(64) float out[Vec<float>::lanes];
  float total = 0;
#pragma GCC unroll 16
  for (int i = 0; i < chains; ++i) {
    store(out, x[i]);
    total += out[0];
  }
  // The condition keeps the chains alive; it is never true.
  return total < 0 ? 0.0 : static_cast<double>(rounds) * chains * Vec<float>::lanes;
}
