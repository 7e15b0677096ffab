// Rows, each given a few others: the small matrix A_S of a row and its neighbours, the row itself last, its Cholesky factor
// L, and what follows from it. A lane of a vector is a row, so that the algebra of a neighbourhood reads as that of numbers.
//
// With A_S = L L' and the row last, L^-1 y_S ends in the row's residual over its deviation, t, and L's last pivot is that
// deviation; g = L^-T e_last is the row's row of the sparse inverse factor. The loss t^2/2 + log L_last has the gradient
// sym(g h') in A_S, where h = (1 - t^2)/2 g - t u and u = (A_c^-1 y_c, 0); of several targets the sum.

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

// The exponents of a leaf between member j and `pairs` members from k on.
template <int pairs, class T>
inline void leaf_exponents(const Leaf& leaf, const T* own, const T* others, std::size_t stride, Vec<T> (&q)[pairs]) {
  using V = Vec<T>;
#pragma GCC unroll 4
  for (int i = 0; i < pairs; ++i) q[i] = broadcast(T(0));
  const bool linear = leaf.profile == Profile::linear;
  for (int f = 0; f < leaf.features; ++f) {
    const V x = load(own + f * V::lanes);
#pragma GCC unroll 4
    for (int i = 0; i < pairs; ++i) {
      const V y = load(others + i * stride + f * V::lanes), d = x - y;
      q[i] = linear ? fma(x, y, q[i]) : fma(d, d, q[i]);
    }
  }
  if (linear) return;
#pragma GCC unroll 4
  for (int i = 0; i < pairs; ++i) q[i] = q[i] * broadcast(T(-0.5));
}

// The nodes above the leaves of one pair, from the leaves' values.
template <class T>
inline Vec<T> combine_pair(const Program& program, T* values) {
  constexpr int lanes = Vec<T>::lanes;
  for (int n = 0; n < program.node_count; ++n) {
    const Node node = program.nodes[n];
    T* out = values + n * lanes;
    if (node.kind == NodeKind::constant) store(out, broadcast(static_cast<T>(program.constants[node.a])));
    if (node.kind == NodeKind::add) store(out, load(values + node.a * lanes) + load(values + node.b * lanes));
    if (node.kind == NodeKind::multiply) store(out, load(values + node.a * lanes) * load(values + node.b * lanes));
  }
  return load(values + (program.node_count - 1) * lanes);
}

// Covariances between member j and `pairs` earlier ones from k on.
template <int pairs, class T>
inline void pair_covariances(const Conditional& of, const ConditionalBuffers<T>& at, int j, int k, Vec<T> (&out)[pairs]) {
  using V = Vec<T>;
  const Program& program = *of.program;
  const std::size_t stride = ConditionalBuffers<T>::total_features(program) * V::lanes;
  const T *own = at.features + j * stride, *others = at.features + k * stride;
  if (program.node_count == 1 && program.leaf_count == 1) {
    V q[pairs];
    leaf_exponents<pairs>(program.leaves[0], own, others, stride, q);
    with_profile(program.leaves[0].profile, [&]<Profile P>() {
#pragma GCC unroll 4
      for (int i = 0; i < pairs; ++i) out[i] = covariance<P, T>(q[i], profile_parameters<T>(program.leaves[0]));
    });
    return;
  }
  for (int i = 0; i < pairs; ++i) {
    std::size_t first = 0;
    for (int n = 0; n < program.node_count; ++n) {
      if (program.nodes[n].kind != NodeKind::leaf) continue;
      const Leaf& leaf = program.leaves[program.nodes[n].a];
      first = 0;
      for (int l = 0; l < program.nodes[n].a; ++l) first += program.leaves[l].features * V::lanes;
      V q[1];
      leaf_exponents<1>(leaf, own + first, others + i * stride + first, stride, q);
      with_profile(leaf.profile,
                   [&]<Profile P>() { store(at.values + n * V::lanes, covariance<P, T>(q[0], profile_parameters<T>(leaf))); });
    }
    out[i] = combine_pair<T>(program, at.values);
  }
}

// Row j of L from row j of A, which stands in its place off the diagonal's left; earlier rows are done.
template <class T>
inline void factor_row(const ConditionalBuffers<T>& at, int j) {
  using V = Vec<T>;
  auto row = [&](int i) { return at.lower + static_cast<std::size_t>(i) * (i + 1) / 2 * V::lanes; };
  T* own = row(j);
  V pivot = load(own + j * V::lanes);
  constexpr int width = 4;
  for (int first = 0; first < j; first += width) {
    const int live = j - first < width ? j - first : width;
    V sum[width];
    const T* others[width];
#pragma GCC unroll 4
    for (int i = 0; i < width; ++i) {
      others[i] = row(i < live ? first + i : first);
      sum[i] = load(own + (i < live ? first + i : first) * V::lanes);
    }
    for (int k = 0; k < first; ++k) {
      const V x = broadcast(T(-1)) * load(own + k * V::lanes);
#pragma GCC unroll 4
      for (int i = 0; i < width; ++i) sum[i] = fma(x, load(others[i] + k * V::lanes), sum[i]);
    }
    for (int i = 0; i < live; ++i) {
      for (int k = 0; k < i; ++k)
        sum[i] = sum[i] - load(own + (first + k) * V::lanes) * load(others[i] + (first + k) * V::lanes);
      const V entry = sum[i] / load(others[i] + (first + i) * V::lanes);
      store(own + (first + i) * V::lanes, entry);
      pivot = pivot - entry * entry;
    }
  }
  V root, reciprocal;
  square_root(pivot, root, reciprocal);  // not a number where A is not positive definite
  store(own + j * V::lanes, root);
}

// x <- L^-T x over the first `size` members.
template <class T>
inline void solve_transposed(const ConditionalBuffers<T>& at, int size, T* x) {
  using V = Vec<T>;
  for (int j = size - 1; j >= 0; --j) {
    const T* row = at.lower + static_cast<std::size_t>(j) * (j + 1) / 2 * V::lanes;
    const V solved = load(x + j * V::lanes) / load(row + j * V::lanes), minus = broadcast(T(-1)) * solved;
    store(x + j * V::lanes, solved);
    for (int k = 0; k < j; ++k) store(x + k * V::lanes, fma(minus, load(row + k * V::lanes), load(x + k * V::lanes)));
  }
}

// L, and targets <- L^-1 targets.
template <class T>
inline void factor_neighbourhood(const Conditional& of, const ConditionalBuffers<T>& at) {
  using V = Vec<T>;
  const int size = of.neighbours + 1, q = of.target_count;
  const V scale = broadcast(static_cast<T>(of.scale));
  for (int j = 0; j < size; ++j) {
    T* own = at.lower + static_cast<std::size_t>(j) * (j + 1) / 2 * V::lanes;
    const V present = load(at.present + j * V::lanes);
    int k = 0;
    const T* explained = at.explained + static_cast<std::size_t>(j) * (j + 1) / 2 * V::lanes;
    auto put = [&](V entry, int i) {
      entry = entry * scale;
      if (of.landmarks) entry = entry - load(explained + i * V::lanes);
      store(own + i * V::lanes, entry * present * load(at.present + i * V::lanes));
    };
    for (; k + 4 <= j; k += 4) {
      V entries[4];
      pair_covariances<4>(of, at, j, k, entries);
      for (int i = 0; i < 4; ++i) put(entries[i], k + i);
    }
    for (; k < j; ++k) {
      V entry[1];
      pair_covariances<1>(of, at, j, k, entry);
      put(entry[0], k);
    }
    factor_row<T>(at, j);
    for (int c = 0; c < q; ++c) {
      V sum = load(at.targets + (static_cast<std::size_t>(j) * q + c) * V::lanes);
      for (int i = 0; i < j; ++i)
        sum = sum - load(own + i * V::lanes) * load(at.targets + (static_cast<std::size_t>(i) * q + c) * V::lanes);
      store(at.targets + (static_cast<std::size_t>(j) * q + c) * V::lanes, sum / load(own + j * V::lanes));
    }
  }
}

// g, and h where a gradient is wanted.
template <class T>
inline void row_of_factor(const Conditional& of, const ConditionalBuffers<T>& at) {
  using V = Vec<T>;
  const int size = of.neighbours + 1, last = of.neighbours, q = of.target_count;
  for (int j = 0; j < size; ++j) store(at.g + j * V::lanes, broadcast(T(j == last)));
  solve_transposed<T>(at, size, at.g);
  if (!of.gradient) return;
  alignas(kAlignment) T live[V::lanes];
  for (int lane = 0; lane < V::lanes; ++lane) live[lane] = T(lane < of.count);
  V excess = broadcast(static_cast<T>(q));
  for (int j = 0; j < size; ++j) store(at.h + j * V::lanes, broadcast(T(0)));
  for (int c = 0; c < q; ++c) {
    const V t = load(at.targets + (static_cast<std::size_t>(last) * q + c) * V::lanes);
    excess = excess - t * t;
    for (int j = 0; j < last; ++j) {
      T* h = at.h + j * V::lanes;
      store(h, load(h) - t * load(at.targets + (static_cast<std::size_t>(j) * q + c) * V::lanes));
    }
  }
  solve_transposed<T>(at, last, at.h);
  for (int j = 0; j < size; ++j) {
    const V g = load(at.g + j * V::lanes) * load(live), h = load(at.h + j * V::lanes) * load(live);
    store(at.g + j * V::lanes, g);
    store(at.h + j * V::lanes, fma(excess * broadcast(T(0.5)), g, h));
  }
}

// The place of (j, k), k < j, in a triangle of vectors.
template <class T>
inline std::size_t triangle(int j, int k) {
  return (static_cast<std::size_t>(j) * (j + 1) / 2 + k) * Vec<T>::lanes;
}

template <class T>
inline void add_to(T* sum, Vec<T> x) {
  store(sum, load(sum) + x);
}

// The shares of pairs (j, k) .. (j, k + pairs) of a kernel of one leaf: the leaf's weights, and sums of scalars.
template <int pairs, class T>
inline void leaf_pairs_gradient(const Conditional& of, const ConditionalBuffers<T>& at, int j, int k, const Vec<T> (&weight)[pairs]) {
  using V = Vec<T>;
  const Leaf& leaf = of.program->leaves[0];
  const std::size_t stride = static_cast<std::size_t>(leaf.features) * V::lanes;
  V q[pairs], root = broadcast(T(0)), shape = root, scale = root;
  leaf_exponents<pairs>(leaf, at.features + j * stride, at.features + k * stride, stride, q);
  with_profile(leaf.profile, [&]<Profile P>() {
#pragma GCC unroll 4
    for (int i = 0; i < pairs; ++i) {
      const Sloped<T> found = covariance_and_slope<P, T>(q[i], profile_parameters<T>(leaf));
      const V c = weight[i] * found.slope;
      root = fma(weight[i], found.value, root);
      shape = fma(weight[i], found.shape_slope, shape);
      scale = fma(c, q[i], scale);
      store(at.weights + triangle<T>(j, k + i), c);
    }
  });
  add_to(at.root, root);
  add_to(at.shapes, shape);
  if (leaf.shared_scale) add_to(at.scales, scale + scale);
}

// The share of one pair of any kernel, its weight in the loss given.
template <class T>
inline void pair_gradient(const Conditional& of, const ConditionalBuffers<T>& at, int j, int k, Vec<T> weight) {
  using V = Vec<T>;
  const Program& program = *of.program;
  const std::size_t stride = ConditionalBuffers<T>::total_features(program) * V::lanes;
  const std::size_t members = at.triangle_size;
  std::size_t first = 0;
  for (int l = 0; l < program.leaf_count; ++l) {
    V q[1];
    leaf_exponents<1>(program.leaves[l], at.features + j * stride + first, at.features + k * stride + first, stride, q);
    store(at.exponents + l * V::lanes, q[0]);
    first += program.leaves[l].features * V::lanes;
  }
  for (int n = 0; n < program.node_count; ++n) {
    const int l = program.nodes[n].a;
    if (program.nodes[n].kind != NodeKind::leaf) continue;
    with_profile(program.leaves[l].profile, [&]<Profile P>() {
      const Sloped<T> found = covariance_and_slope<P, T>(load(at.exponents + l * V::lanes), profile_parameters<T>(program.leaves[l]));
      store(at.values + n * V::lanes, found.value);
      store(at.slopes + l * V::lanes, found.slope);
      store(at.shape_slopes + l * V::lanes, found.shape_slope);
    });
  }
  add_to(at.root, weight * combine_pair<T>(program, at.values));
  store(at.adjoints + (program.node_count - 1) * V::lanes, weight);
  for (int n = program.node_count - 1; n >= 0; --n) {  // each node has one user
    const Node node = program.nodes[n];
    const V adjoint = load(at.adjoints + n * V::lanes);
    if (node.kind == NodeKind::constant) add_to(at.constants + node.a * V::lanes, adjoint);
    if (node.kind == NodeKind::add || node.kind == NodeKind::multiply) {
      const bool product = node.kind == NodeKind::multiply;
      store(at.adjoints + node.a * V::lanes, product ? adjoint * load(at.values + node.b * V::lanes) : adjoint);
      store(at.adjoints + node.b * V::lanes, product ? adjoint * load(at.values + node.a * V::lanes) : adjoint);
    }
    if (node.kind != NodeKind::leaf) continue;
    const Leaf& leaf = program.leaves[node.a];
    first = 0;
    for (int l = 0; l < node.a; ++l) first += program.leaves[l].features * V::lanes;
    add_to(at.shapes + node.a * V::lanes, adjoint * load(at.shape_slopes + node.a * V::lanes));
    const V c = adjoint * load(at.slopes + node.a * V::lanes);
    store(at.weights + node.a * members + triangle<T>(j, k), c);
    if (leaf.shared_scale) add_to(at.scales + first, c * load(at.exponents + node.a * V::lanes) * broadcast(T(2)));
    if (!leaf.wants_features) continue;
    const bool linear = leaf.profile == Profile::linear;
    for (int f = 0; f < leaf.features; ++f) {
      const V x = load(at.features + j * stride + first + f * V::lanes), y = load(at.features + k * stride + first + f * V::lanes);
      const V change = c * (linear ? x : x - y);
      add_to(at.by_features + k * stride + first + f * V::lanes, change);
      add_to(at.by_features + j * stride + first + f * V::lanes, linear ? c * y : broadcast(T(-1)) * change);
    }
  }
}

// The gradient in the logarithm of every scale of a leaf from the weights c of its pairs. With s_j = sum_k<j c_jk x_k and
// w_j = sum_k c_jk, the sum of c_jk (x_j - x_k)^2 over pairs is that of x_j (w_j x_j - 2 s_j) over members.
template <class T>
inline void scales_gradient(const Conditional& of, const ConditionalBuffers<T>& at, int l, std::size_t first) {
  using V = Vec<T>;
  const Leaf& leaf = of.program->leaves[l];
  const int size = of.neighbours + 1;
  const std::size_t stride = ConditionalBuffers<T>::total_features(*of.program) * V::lanes;
  const bool linear = leaf.profile == Profile::linear;
  const T* weights = at.weights + l * at.triangle_size;
  T* totals = at.g;  // done with
  clear(totals, size * V::lanes);
  if (!linear)
    for (int j = 0; j < size; ++j)
      for (int k = 0; k < j; ++k) {
        const V c = load(weights + triangle<T>(j, k));
        add_to(totals + j * V::lanes, c);
        add_to(totals + k * V::lanes, c);
      }
  constexpr int width = 4;
  for (int from = 0; from < leaf.features; from += width) {
    const int live = leaf.features - from < width ? leaf.features - from : width;
    V gradient[width];
#pragma GCC unroll 4
    for (int f = 0; f < width; ++f) gradient[f] = broadcast(T(0));
    const T* features = at.features + first + from * V::lanes;
    for (int j = 0; j < size; ++j) {
      V sum[width];
#pragma GCC unroll 4
      for (int f = 0; f < width; ++f) sum[f] = broadcast(T(0));
      for (int k = 0; k < j; ++k) {
        const V c = load(weights + triangle<T>(j, k));
#pragma GCC unroll 4
        for (int f = 0; f < width; ++f) sum[f] = fma(c, load(features + k * stride + (f < live ? f : 0) * V::lanes), sum[f]);
      }
      const V total = load(totals + j * V::lanes);
#pragma GCC unroll 4
      for (int f = 0; f < width; ++f) {
        const V x = load(features + j * stride + (f < live ? f : 0) * V::lanes);
        gradient[f] = fma(x, sum[f] + sum[f] - total * x, gradient[f]);
      }
    }
    for (int f = 0; f < live; ++f) add_to(at.scales + first + (from + f) * V::lanes, gradient[f]);
  }
}

template <class T>
inline void conditional(const Conditional& of, void* scratch) {
  using V = Vec<T>;
  const Program& program = *of.program;
  const ConditionalBuffers<T> at(of, static_cast<T*>(scratch));
  const int size = of.neighbours + 1, last = of.neighbours, q = of.target_count;
  const std::size_t total = ConditionalBuffers<T>::total_features(program);
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
  clear(at.scales, total * V::lanes);
  clear(at.shapes, program.leaf_count * V::lanes);
  clear(at.constants, of.constant_count * V::lanes);
  clear(at.root, V::lanes);
  clear(at.by_features, size * total * V::lanes);
  const bool alone = program.node_count == 1 && program.leaf_count == 1 && !program.leaves[0].wants_features;
  for (int j = 0; j < size; ++j) {
    const V present = load(at.present + j * V::lanes);
    const V g = load(at.g + j * V::lanes) * present, h = load(at.h + j * V::lanes) * present;
    auto weight = [&](int k) {
      return fma(g, load(at.h + k * V::lanes), h * load(at.g + k * V::lanes)) * load(at.present + k * V::lanes);
    };
    int k = 0;
    for (; alone && k + 4 <= j; k += 4) leaf_pairs_gradient<4>(of, at, j, k, {weight(k), weight(k + 1), weight(k + 2), weight(k + 3)});
    for (; alone && k < j; ++k) leaf_pairs_gradient<1>(of, at, j, k, {weight(k)});
    for (; k < j; ++k) pair_gradient<T>(of, at, j, k, weight(k));
  }
  std::size_t first = 0;
  for (int l = 0; l < program.leaf_count; ++l) {
    if (!program.leaves[l].shared_scale) scales_gradient<T>(of, at, l, first);
    first += program.leaves[l].features * V::lanes;
  }
  auto sum = [](const T* x) {
    double added = 0;
    for (int lane = 0; lane < V::lanes; ++lane) added += static_cast<double>(x[lane]);
    return added;
  };
  double* to = of.sums;
  *to++ += sum(at.root);
  for (int i = 0; i < of.constant_count; ++i) *to++ += sum(at.constants + i * V::lanes);
  for (int l = 0; l < program.leaf_count; ++l) *to++ += sum(at.shapes + l * V::lanes);
  for (std::size_t i = 0; i < total; ++i) *to++ += sum(at.scales + i * V::lanes);
  for (int lane = 0; of.by_features && lane < of.count; ++lane)
    for (std::size_t i = 0; i < size * total; ++i)
      of.by_features[lane * size * total + i] = static_cast<double>(at.by_features[i * V::lanes + lane]);
}
