// One tile's share of the gradient of sum_ij W_ij K_ij in every hyperparameter and, where asked, in the features.
// Forward through the program, back through it with W as the root's adjoint; then each leaf turns its adjoints times
// slopes, H_ij = adjoint dk/dq, into derivatives of q = -|psi_i - psi_j|^2 / 2 (or psi_i.psi_j).

template <class T>
struct GradientBuffers {
  // By node: values, adjoints; by leaf: slopes, exponents and shape slopes. Subtiles, in one allocation.
  T *values, *adjoints, *slopes, *exponents, *shape_slopes, *sums;
  GradientBuffers(const Program& program, T* at) {
    const std::size_t subtile = static_cast<std::size_t>(kSubtile) * kBlock;
    values = at;
    adjoints = values + program.node_count * subtile;
    slopes = adjoints + program.node_count * subtile;
    exponents = slopes + program.leaf_count * subtile;
    shape_slopes = exponents + program.leaf_count * subtile;
    sums = shape_slopes + program.leaf_count * subtile;  // by leaf: H Psi and H' Psi panels, row and column sums of H (or 0)
  }
  static std::size_t size(const Program& program) {
    std::size_t total = static_cast<std::size_t>(kSubtile) * kBlock * (2 * program.node_count + 3 * program.leaf_count);
    for (int l = 0; l < program.leaf_count; ++l) total += 2 * static_cast<std::size_t>(kBlock) * (program.leaves[l].features + 1);
    return total;
  }
};

template <Profile P, class T>
inline void leaf_slopes(const Tile& tile, int l, int first, int columns, T* values, T* slopes, T* exponents, T* shape_slopes) {
  const ProfileParameters<T> with = profile_parameters<T>(tile.program->leaves[l]);
  for_exponents<T>(tile, l, first, columns, [&](Vec<T>(&q)[kColumns][kRowVectors], int row, int column) {
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j)
#pragma GCC unroll 8
      for (int i = 0; i < kRowVectors; ++i) {
        const int at = (column + j) * kBlock + row + i * Vec<T>::lanes;
        const Sloped<T> k = covariance_and_slope<P>(q[j][i], with);
        store(values + at, k.value);
        store(slopes + at, k.slope);
        store(exponents + at, q[j][i]);
        if constexpr (P == Profile::rational_quadratic) store(shape_slopes + at, k.shape_slope);
      }
  });
}

// W = row_weights . column_weights over the live entries; zero on the diagonal, which is differentiated elsewhere.
template <class T>
inline void weights(const Tile& tile, const Gradient& gradient, int first, int columns, T* w) {
  const int count = gradient.weight_count;
  const T* y = static_cast<const T*>(gradient.column_weights) +
               static_cast<std::size_t>(first / kStrip) * kStrip * count + first % kStrip;
  for_register_blocks<T, false>(static_cast<const T*>(gradient.row_weights), y, nullptr, nullptr, count, tile.first_row,
                                tile.row_count, columns, [&](Vec<T>(&q)[kColumns][kRowVectors], int row, int column) {
#pragma GCC unroll 8
                                  for (int j = 0; j < kColumns; ++j)
#pragma GCC unroll 8
                                    for (int i = 0; i < kRowVectors; ++i)
                                      store(w + (column + j) * kBlock + row + i * Vec<T>::lanes, q[j][i]);
                                });
  if (tile.diagonal)
    for (int j = 0; j < columns; ++j) w[j * kBlock + first + j] = 0;
}

// What a product takes for zero is zero here too, and its weights count for nothing.
template <class T>
inline void drop_weights(const Tile& tile, int columns, const T* root, T* w) {
  if (tile.program->negligible <= 0) return;
  const Vec<T> least = broadcast(static_cast<T>(tile.program->negligible)), zero = broadcast(T(0));
  for_vectors<T>(tile, columns, [&](int o) {
    const Vec<T> k = load(root + o);
    store(w + o, select_greater(max(k, zero - k), least, load(w + o), zero));
  });
}

template <class T>
inline double dot(const Tile& tile, int columns, const T* a, const T* b) {
  Vec<T> sum[1] = {broadcast(T(0))};
  for_vectors<T>(tile, columns, [&](int o) { sum[0] = fma(load(a + o), load(b + o), sum[0]); });
  T total[1];
  sum_lanes<1>(sum, total);
  return static_cast<double>(total[0]);
}

// Adjoints of all nodes from the root's; each node has one user, so they are assigned rather than added up.
template <class T>
inline void propagate(const Tile& tile, const Gradient& gradient, int columns, const GradientBuffers<T>& at) {
  const Program& program = *tile.program;
  const std::size_t subtile = static_cast<std::size_t>(kSubtile) * kBlock;
  for (int n = program.node_count - 1; n >= 0; --n) {
    const Node node = program.nodes[n];
    const T* g = at.adjoints + n * subtile;
    if (node.kind == NodeKind::constant) {
      Vec<T> sum[1] = {broadcast(T(0))};
      for_vectors<T>(tile, columns, [&](int o) { sum[0] = sum[0] + load(g + o); });
      T total[1];
      sum_lanes<1>(sum, total);
      gradient.constants[node.a] += gradient.weight * static_cast<double>(total[0]);
    } else if (node.kind != NodeKind::leaf) {
      T *ga = at.adjoints + node.a * subtile, *gb = at.adjoints + node.b * subtile;
      const T *a = at.values + node.a * subtile, *b = at.values + node.b * subtile;
      const bool product = node.kind == NodeKind::multiply;
      for_vectors<T>(tile, columns, [&](int o) {
        const Vec<T> h = load(g + o);
        store(ga + o, product ? h * load(b + o) : h);
        store(gb + o, product ? h * load(a + o) : h);
      });
    }
  }
}

// sum_ij H_ij (psi_ik - psi_jk)^2 by feature k, from the differences: for points far from the centre, where the products
// with the features would cancel.
template <class T>
inline void add_squared_differences(const Tile& tile, int l, int first, int columns, const T* h, double* scales, double weight) {
  using V = Vec<T>;
  const int features = tile.program->leaves[l].features;
  const T* rows = static_cast<const T*>(tile.rows[l].features);
  const T* cols = static_cast<const T*>(tile.columns[l].features) +
                  static_cast<std::size_t>(first / kStrip) * kStrip * features + first % kStrip;
  for (int k = 0; k < features; ++k) {
    V sum[1] = {broadcast(T(0))};
    for (int j = 0; j < columns; ++j) {
      const V y = broadcast(cols[k * kStrip + j]);
      for (int i = tile.first_row; i < tile.row_count; i += V::lanes) {
        const V d = load(rows + static_cast<std::size_t>(i / kStrip) * kStrip * features + k * kStrip + i % kStrip) - y;
        sum[0] = fma(load(h + j * kBlock + i) * d, d, sum[0]);
      }
    }
    T total[1];
    sum_lanes<1>(sum, total);
    scales[k] -= weight * static_cast<double>(total[0]);
  }
}

// sum_j H_ij (psi_jk - psi_ik) into the rows' panel, and the same the other way round into the columns', if there is one.
template <class T>
inline void add_differences(const Tile& tile, int l, int first, int columns, const T* h, T* row_sums, T* column_sums) {
  using V = Vec<T>;
  const int features = tile.program->leaves[l].features;
  const std::size_t start = static_cast<std::size_t>(first / kStrip) * kStrip * features + first % kStrip;
  const T* rows = static_cast<const T*>(tile.rows[l].features);
  const T* cols = static_cast<const T*>(tile.columns[l].features) + start;
  for (int k = 0; k < features; ++k)
    for (int j = 0; j < columns; ++j) {
      const V y = broadcast(cols[k * kStrip + j]);
      V sum[1] = {broadcast(T(0))};
      for (int i = tile.first_row; i < tile.row_count; i += V::lanes) {
        const std::size_t at = static_cast<std::size_t>(i / kStrip) * kStrip * features + k * kStrip + i % kStrip;
        const V g = load(h + j * kBlock + i) * (y - load(rows + at));
        store(row_sums + at, load(row_sums + at) + g);
        sum[0] = sum[0] + g;
      }
      if (!column_sums) continue;
      T total[1];
      sum_lanes<1>(sum, total);
      column_sums[start + k * kStrip + j] -= total[0];
    }
}

// Whether differences come from products with the features, rather than one by one.
inline bool by_products(const Tile& tile, int l) {
  const Leaf& leaf = tile.program->leaves[l];
  return leaf.profile == Profile::linear || (tile.near && leaf.by_products);
}

// What leaf l's H gives in this subtile: H overwrites the adjoints.
template <class T>
inline void leaf_gradient(const Tile& tile, const Gradient& gradient, int l, int first, int columns, T* h, const T* slopes,
                          const T* exponents, const T* shape_slopes, T* sums) {
  const Leaf& leaf = tile.program->leaves[l];
  const bool linear = leaf.profile == Profile::linear;
  if (leaf.profile == Profile::rational_quadratic)
    gradient.shapes[l] += gradient.weight * dot<T>(tile, columns, h, shape_slopes);
  if (!linear) for_vectors<T>(tile, columns, [&](int o) { store(h + o, load(h + o) * load(slopes + o)); });
  if (leaf.shared_scale) gradient.scales[l][0] += 2 * gradient.weight * dot<T>(tile, columns, h, exponents);
  const bool features = leaf.wants_features;
  const std::size_t panel = static_cast<std::size_t>(kBlock) * leaf.features;
  if (!by_products(tile, l)) {
    if (!leaf.shared_scale) add_squared_differences<T>(tile, l, first, columns, h, gradient.scales[l], gradient.weight);
    if (features) add_differences<T>(tile, l, first, columns, h, sums, gradient.column_features[l] ? sums + panel : nullptr);
    return;
  }
  if (!features && leaf.shared_scale) return;
  alignas(64) static constexpr auto ones = [] {
    struct { T v[kBlock]; } a{};
    for (T& x : a.v) x = 1;
    return a;
  }();
  const T* psi_rows = static_cast<const T*>(tile.rows[l].features);
  const T* psi_columns = static_cast<const T*>(tile.columns[l].features);
  T *row_products = sums, *column_products = row_products + panel, *row_sums = column_products + panel, *column_sums = row_sums + kBlock;
  add_rows_product<T>(tile, h, first, columns, psi_columns, leaf.features, row_products);
  if (features && gradient.column_features[l])
    add_columns_product<T>(tile, h, first, columns, psi_rows, leaf.features, column_products);
  if (!linear) {
    add_rows_product<T>(tile, h, first, columns, ones.v, 1, row_sums);
    add_columns_product<T>(tile, h, first, columns, ones.v, 1, column_sums);
  }
}

// Once a tile is through: the sums become derivatives, in double. The padding is zero throughout.
template <class T>
inline void finish_leaf(const Tile& tile, const Gradient& gradient, int l, const T* sums) {
  const Leaf& leaf = tile.program->leaves[l];
  const bool products = !leaf.shared_scale && by_products(tile, l);
  const std::size_t panel = static_cast<std::size_t>(kBlock) * leaf.features;
  for (int side = 0; side < 2; ++side) {
    const LeafBlock& block = side == 0 ? tile.rows[l] : tile.columns[l];
    double* out = !leaf.wants_features ? nullptr : side == 0 ? gradient.row_features[l] : gradient.column_features[l];
    const T *psi = static_cast<const T*>(block.features), *hp = sums + side * panel, *totals = sums + 2 * panel + side * kBlock;
    // -sum H (psi_i - psi_j)^2, or 2 sum H psi_i psi_j: the mixed term is counted from the rows' side alone.
    const double mixed = side == 0 ? 2.0 : 0.0;
    for (int strip = 0; strip < kStrips; ++strip)
      for (int k = 0; k < leaf.features; ++k) {
        const std::size_t at = static_cast<std::size_t>(strip * leaf.features + k) * kStrip;
        const T *p = psi + at, *h = hp + at, *total = totals + strip * kStrip;
        if (out)
          for (int i = 0; i < kStrip; ++i)
            out[at + i] += static_cast<double>(h[i]) - static_cast<double>(total[i]) * static_cast<double>(p[i]);
        if (!products) continue;
        double scale = 0;
#pragma omp simd reduction(+ : scale)
        for (int i = 0; i < kStrip; ++i) {
          const double x = static_cast<double>(p[i]);
          scale += x * (mixed * static_cast<double>(h[i]) - static_cast<double>(total[i]) * x);
        }
        gradient.scales[l][k] += gradient.weight * scale;
      }
  }
}

template <class T>
inline void gradient_tile(const Tile& tile, const Gradient& gradient, void* scratch) {
  const Program& program = *tile.program;
  const GradientBuffers<T> at(program, static_cast<T*>(scratch));
  const std::size_t subtile = static_cast<std::size_t>(kSubtile) * kBlock;
  auto sums_of = [&](int l) {
    T* sums = at.sums;
    for (int i = 0; i < l; ++i) sums += 2 * static_cast<std::size_t>(kBlock) * (program.leaves[i].features + 1);
    return sums;
  };
  clear(at.sums, GradientBuffers<T>::size(program) - static_cast<std::size_t>(at.sums - at.values));
  for_parts(tile, [&](const Tile& part, int first, int columns) {
    for (int n = 0; n < program.node_count; ++n) {
      const int l = program.nodes[n].a;
      if (program.nodes[n].kind != NodeKind::leaf) continue;
      with_profile(program.leaves[l].profile, [&]<Profile P>() {
        leaf_slopes<P, T>(part, l, first, columns, at.values + n * subtile, at.slopes + l * subtile,
                          at.exponents + l * subtile, at.shape_slopes + l * subtile);
      });
    }
    combine<T>(part, columns, at.values);
    const std::size_t root = (program.node_count - 1) * subtile;
    weights<T>(part, gradient, first, columns, at.adjoints + root);
    drop_weights<T>(part, columns, at.values + root, at.adjoints + root);
    gradient.root[0] += gradient.weight * dot<T>(part, columns, at.adjoints + root, at.values + root);
    propagate<T>(part, gradient, columns, at);
    for (int n = 0; n < program.node_count; ++n) {
      const int l = program.nodes[n].a;
      if (program.nodes[n].kind == NodeKind::leaf)
        leaf_gradient<T>(part, gradient, l, first, columns, at.adjoints + n * subtile, at.slopes + l * subtile,
                         at.exponents + l * subtile, at.shape_slopes + l * subtile, sums_of(l));
    }
  });
  for (int l = 0; l < program.leaf_count; ++l)
    if (program.leaves[l].wants_features || (!program.leaves[l].shared_scale && by_products(tile, l)))
      finish_leaf<T>(tile, gradient, l, sums_of(l));
}
