// The gradient of the loss t^2/2 + log L_last of a row in all that its covariances are made of: sym(g h') in A_S, where
// h = (1 - t^2)/2 g - t u and u = (A_c^-1 y_c, 0); of several targets the sum.

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

// All pairs of a neighbourhood, from g and h, into the sums of the buffers.
template <class T>
inline void neighbourhood_gradient(const Conditional& of, const ConditionalBuffers<T>& at) {
  using V = Vec<T>;
  const Program& program = *of.program;
  const int size = of.neighbours + 1;
  const std::size_t total = ConditionalBuffers<T>::total_features(program);
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
}

// What the lanes of the buffers hold, added to what the caller has of other rows.
template <class T>
inline void add_gradient(const Conditional& of, const ConditionalBuffers<T>& at) {
  using V = Vec<T>;
  const Program& program = *of.program;
  const int size = of.neighbours + 1;
  const std::size_t total = ConditionalBuffers<T>::total_features(program);
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
