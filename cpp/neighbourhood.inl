// The members of a neighbourhood, the row itself last: their features and targets, and what landmarks explain of them. A lane of
// a vector is a row, so that the algebra of a neighbourhood reads as that of numbers.

template <class T>
struct ConditionalBuffers {
  using V = Vec<T>;
  static constexpr std::size_t lanes = V::lanes;
  T *features, *lower, *targets, *g, *h, *present, *values, *adjoints, *slopes, *exponents, *shape_slopes, *weights;
  T *scales, *shapes, *constants, *root, *by_features, *explained;
  std::size_t count = 0;  // of numbers
  std::size_t triangle_size;  // of a triangle of pairs

  // Everything in one place, with its parts in the order of the pointers.
  ConditionalBuffers(const Conditional& of, T* at) {
    const Program& program = *of.program;
    const std::size_t size = of.neighbours + 1, nodes = program.node_count, leaves = program.leaf_count;
    triangle_size = size * (size + 1) / 2 * lanes;
    auto take = [&](T*& part, std::size_t vectors) {
      part = at ? at + count : nullptr;
      count += vectors * lanes;
    };
    take(features, size * total_features(program));
    take(lower, size * (size + 1) / 2);
    take(targets, size * of.target_count);
    take(g, size);
    take(h, size);
    take(present, size);
    take(values, nodes);
    take(adjoints, nodes);
    take(slopes, leaves);
    take(exponents, leaves);
    take(shape_slopes, leaves);
    take(weights, leaves * size * (size + 1) / 2);
    take(scales, total_features(program));
    take(shapes, leaves);
    take(constants, of.constant_count);
    take(root, 1);
    take(by_features, size * total_features(program));
    take(explained, of.landmarks ? size * (size + 1) / 2 : 0);
  }
  static std::size_t total_features(const Program& program) {
    std::size_t total = 0;
    for (int l = 0; l < program.leaf_count; ++l) total += program.leaves[l].features;
    return total;
  }
  static std::size_t bytes(const Conditional& of) {
    return ConditionalBuffers(of, nullptr).count * sizeof(T);
  }
};

// The features of all members of a neighbourhood, by member, leaf and feature; of stationary leaves relative to the row,
// near which its neighbours are, so that nothing is lost in single.
template <class T>
inline void gather(const Conditional& of, const ConditionalBuffers<T>& at) {
  constexpr int lanes = Vec<T>::lanes;
  const Program& program = *of.program;
  const int size = of.neighbours + 1;
  const std::size_t total = ConditionalBuffers<T>::total_features(program);
  for (int lane = 0; lane < lanes; ++lane) {
    const std::int64_t index = lane < of.count ? lane : 0, own = of.rows[index];
    for (int j = 0; j < size; ++j) {
      const std::int64_t other = j + 1 < size ? of.members[index * of.neighbours + j] : own;
      const bool present = other >= 0;
      at.present[j * lanes + lane] = T(present);
      T* to = at.features + j * total * lanes + lane;
      for (int l = 0; l < program.leaf_count; ++l) {
        const Leaf& leaf = program.leaves[l];
        const double factor = of.factors[l];
        const double *x = of.features[l] + (present ? other : own) * leaf.features, *y = of.features[l] + own * leaf.features;
        if (leaf.profile == Profile::linear)
          for (int k = 0; k < leaf.features; ++k, to += lanes) *to = static_cast<T>(x[k] * factor);
        else
          for (int k = 0; k < leaf.features; ++k, to += lanes) *to = static_cast<T>((x[k] - y[k]) * factor);
      }
      // What is not there is independent of everything, and zero.
      at.lower[(static_cast<std::size_t>(j) * (j + 1) / 2 + j) * lanes + lane] = present ? static_cast<T>(of.diagonal[other]) : T(1);
      for (int c = 0; c < of.target_count; ++c)
        at.targets[(static_cast<std::size_t>(j) * of.target_count + c) * lanes + lane] =
            present ? static_cast<T>(of.targets[other * of.target_count + c]) : T(0);
    }
  }
}

// Inner products, in double, of what landmarks explain of two members with what they explain of four; j1 and k + i may be
// beyond the last member, and then are the last.
inline void explained_pairs(const double* const (&own)[2], const double* const (&others)[4], int landmarks, double* sums) {
  using V = Vec<double>;
  V total[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) total[i] = broadcast(0.0);
  for (int l = 0; l < landmarks; l += V::lanes) {
    const V a = load(own[0] + l), b = load(own[1] + l);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const V y = load(others[i] + l);
      total[i] = fma(a, y, total[i]);
      total[4 + i] = fma(b, y, total[4 + i]);
    }
  }
  sum_lanes<8>(total, sums);
}

// What landmarks explain of the covariances of all members, to be taken from them.
template <class T>
inline void explain(const Conditional& of, const ConditionalBuffers<T>& at) {
  constexpr int lanes = Vec<T>::lanes;
  const int size = of.neighbours + 1;
  for (int lane = 0; lane < lanes; ++lane) {
    const std::int64_t index = lane < of.count ? lane : 0;
    auto row = [&](int j) {
      const std::int64_t member = j < of.neighbours ? of.members[index * of.neighbours + j] : of.rows[index];
      return of.explained + (member < 0 ? of.rows[index] : member) * of.landmarks;  // what is not there is left out later
    };
    auto within = [&](int j) { return row(j < size ? j : size - 1); };
    for (int j = 0; j < size; j += 2) {
      const double* const own[2] = {row(j), within(j + 1)};
      for (int k = 0; k <= j + 1 && k < size; k += 4) {
        const double* const others[4] = {row(k), within(k + 1), within(k + 2), within(k + 3)};
        double sums[8];
        explained_pairs(own, others, of.landmarks, sums);
        for (int i = 0; i < 8; ++i) {
          const int a = j + i / 4, b = k + i % 4;
          if (b <= a && a < size) at.explained[(static_cast<std::size_t>(a) * (a + 1) / 2 + b) * lanes + lane] = static_cast<T>(sums[i]);
        }
      }
    }
    for (int j = 0; j < size; ++j) {
      const std::size_t own = (static_cast<std::size_t>(j) * (j + 1) / 2 + j) * lanes + lane;
      const std::int64_t member = j < of.neighbours ? of.members[index * of.neighbours + j] : of.rows[index];
      if (member >= 0) at.lower[own] -= at.explained[own];
    }
  }
}
