// Rows, each given a few others: of a vector of neighbourhoods, all that follows from their factors.
#include "neighbourhood.inl"
#include "neighbourhood_factor.inl"
#include "neighbourhood_gradient.inl"

template <class T>
inline void conditional(const Conditional& of, void* scratch) {
  using V = Vec<T>;
  const ConditionalBuffers<T> at(of, static_cast<T*>(scratch));
  const int size = of.neighbours + 1, last = of.neighbours, q = of.target_count;
  gather<T>(of, at);
  if (of.landmarks) explain<T>(of, at);
  factor_neighbourhood<T>(of, at);
  row_of_factor<T>(of, at);
  const T* pivot = at.lower + (static_cast<std::size_t>(last) * (last + 1) / 2 + last) * V::lanes;
  for (int lane = 0; lane < of.count; ++lane) {
    of.deviations[lane] = static_cast<double>(pivot[lane]);
    for (int c = 0; c < q; ++c)
      of.residuals[lane * q + c] = static_cast<double>(at.targets[(static_cast<std::size_t>(last) * q + c) * V::lanes + lane]);
    for (int j = 0; j < size; ++j) {
      if (of.factor) of.factor[lane * size + j] = static_cast<double>(at.g[j * V::lanes + lane]);
      if (of.gradient)
        of.by_diagonal[lane * size + j] = static_cast<double>(at.g[j * V::lanes + lane]) * static_cast<double>(at.h[j * V::lanes + lane]);
    }
  }
  if (!of.gradient) return;
  neighbourhood_gradient<T>(of, at);
  add_gradient<T>(of, at);
}
