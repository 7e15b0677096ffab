// The covariances A_S of a neighbourhood, and their Cholesky factor: A_S = L L'. With the row last, L^-1 y_S ends in the row's
// residual over its deviation, t, and L's last pivot is that deviation; g = L^-T e_last is the row's row of the sparse inverse
// factor, and h what the gradient of its loss is made of beside it.

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
