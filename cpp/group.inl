// A group of rows, given the same members: the last rows of L^-1, where L L' is the covariance of members and group, less what
// landmarks explain of it. Matrices lie in strips of kGroupRows rows, column after column, so that a vector of rows meets
// one number of another row at a time.

inline constexpr int kGroupRows = kRegisterRows<double>;
static_assert(kGroupRows % kColumns == 0);

struct GroupBuffers {
  using V = Vec<double>;
  int size, columns, strips, row_strips, before;  // before: columns of landmarks, to the left of L
  std::size_t width, feature_count, count = 0;
  double *features, *lower, *inverse, *values;

  GroupBuffers(const RowGroup& of, double* at)
      : size(of.member_count + of.row_count),
        columns((size + kColumns - 1) / kColumns * kColumns),
        strips((columns + kGroupRows - 1) / kGroupRows),
        row_strips((of.row_count + kGroupRows - 1) / kGroupRows),
        before(of.landmarks),
        width(static_cast<std::size_t>(before) + columns),
        feature_count(ConditionalBuffers<double>::total_features(*of.program)) {
    auto take = [&](double*& part, std::size_t numbers) {
      part = at ? at + count : nullptr;
      count += (numbers + V::lanes - 1) / V::lanes * V::lanes;
    };
    take(features, feature_count * strips * kGroupRows);
    take(lower, width * strips * kGroupRows);
    take(inverse, static_cast<std::size_t>(columns) * row_strips * kGroupRows);
    take(values, static_cast<std::size_t>(of.program->node_count) * V::lanes);
  }
  static std::size_t bytes(const RowGroup& of) { return GroupBuffers(of, nullptr).count * sizeof(double); }

  double* strip(int i) const { return lower + i * width * kGroupRows; }
  // Row j of [landmarks, L]; its columns are kGroupRows numbers apart.
  double* row(int j) const { return strip(j / kGroupRows) + j % kGroupRows; }
};

inline std::int64_t group_point(const RowGroup& of, int j) {
  return j < of.member_count ? of.members[j] : of.first + (j - of.member_count);
}

// Features, relative to the first row of the group where that loses nothing, and what landmarks explain; what is beyond the
// last row is independent of everything.
inline void gather_group(const RowGroup& of, const GroupBuffers& at) {
  const Program& program = *of.program;
  const int rows = at.strips * kGroupRows;
  double* to = at.features;
  for (int l = 0; l < program.leaf_count; ++l) {
    const Leaf& leaf = program.leaves[l];
    const double* origin = of.features[l] + of.first * leaf.features;
    for (int f = 0; f < leaf.features; ++f, to += rows) {
      const double from = leaf.profile == Profile::linear ? 0.0 : origin[f];
      for (int j = 0; j < rows; ++j)
        to[j] = j < at.size ? (of.features[l][group_point(of, j) * leaf.features + f] - from) * of.factors[l] : 0.0;
    }
  }
  for (int j = 0; j < rows; ++j) {
    double* own = at.row(j);
    const double* explained = j < at.size ? of.explained + group_point(of, j) * of.landmarks : nullptr;
    for (int k = 0; k < at.before; ++k) own[static_cast<std::size_t>(k) * kGroupRows] = explained ? explained[k] : 0.0;
  }
}

// Covariances of the rows of a vector, from row i on, with row j.
inline Vec<double> group_covariances(const RowGroup& of, const GroupBuffers& at, int i, int j) {
  using V = Vec<double>;
  const Program& program = *of.program;
  const int rows = at.strips * kGroupRows;
  auto exponents = [&](const Leaf& leaf, const double* features) {
    V q = broadcast(0.0);
    const bool linear = leaf.profile == Profile::linear;
    for (int f = 0; f < leaf.features; ++f, features += rows) {
      const V x = load(features + i), y = broadcast(features[j]), d = x - y;
      q = linear ? fma(x, y, q) : fma(d, d, q);
    }
    return linear ? q : q * broadcast(-0.5);
  };
  if (program.node_count == 1 && program.leaf_count == 1) {
    V out = broadcast(0.0);
    with_profile(program.leaves[0].profile, [&]<Profile P>() {
      out = covariance<P, double>(exponents(program.leaves[0], at.features), profile_parameters<double>(program.leaves[0]));
    });
    return out;
  }
  for (int n = 0; n < program.node_count; ++n) {
    if (program.nodes[n].kind != NodeKind::leaf) continue;
    const Leaf& leaf = program.leaves[program.nodes[n].a];
    const double* features = at.features;
    for (int l = 0; l < program.nodes[n].a; ++l) features += static_cast<std::size_t>(program.leaves[l].features) * rows;
    with_profile(leaf.profile, [&]<Profile P>() {
      store(at.values + n * V::lanes, covariance<P, double>(exponents(leaf, features), profile_parameters<double>(leaf)));
    });
  }
  return combine_pair<double>(program, at.values);
}

// The covariances, on and below the diagonal.
inline void group_entries(const RowGroup& of, const GroupBuffers& at) {
  using V = Vec<double>;
  const V scale = broadcast(of.scale);
  for (int s = 0; s < at.strips; ++s) {
    const int first = s * kGroupRows, last = first + kGroupRows;
    for (int j = 0; j < at.columns && j < last; ++j) {
      double* column = at.strip(s) + (at.before + static_cast<std::size_t>(j)) * kGroupRows;
      if (j < at.size)
        for (int i = 0; i < kGroupRows; i += V::lanes) store(column + i, group_covariances(of, at, first + i, j) * scale);
      for (int i = j < at.size && at.size > first ? at.size - first : 0; i < kGroupRows; ++i) column[i] = 0.0;
      if (j >= first) column[j - first] = j < at.size ? of.diagonal[group_point(of, j)] : 1.0;
    }
  }
}

// sums = Σ of columns of a strip, from one to before another, times kColumns numbers: those of `others`, each `step` further.
inline void strip_products(const double* strip, int from, int to, const double* const (&others)[kColumns], std::size_t step,
                           Vec<double> (&sums)[kColumns][kRowVectors]) {
  using V = Vec<double>;
#pragma GCC unroll 8
  for (int c = 0; c < kColumns; ++c)
#pragma GCC unroll 8
    for (int v = 0; v < kRowVectors; ++v) sums[c][v] = broadcast(0.0);
  for (int k = from; k < to; ++k) {
    V x[kRowVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kRowVectors; ++v) x[v] = load(strip + static_cast<std::size_t>(k) * kGroupRows + v * V::lanes);
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) {
      const V y = broadcast(others[c][(k - from) * step]);
#pragma GCC unroll 8
      for (int v = 0; v < kRowVectors; ++v) sums[c][v] = fma(x[v], y, sums[c][v]);
    }
  }
}

// L in the place of the covariances, kColumns columns at a time. False where they are not positive definite.
inline bool factor_group_covariances(const GroupBuffers& at) {
  using V = Vec<double>;
  for (int j = 0; j < at.columns; j += kColumns) {
    const int done = at.before + j;
    const double* others[kColumns];
    double within[kColumns][kColumns], reciprocal[kColumns];
    for (int c = 0; c < kColumns; ++c) others[c] = at.row(j + c);
    for (int s = j / kGroupRows; s < at.strips; ++s) {
      double* strip = at.strip(s);
      V sums[kColumns][kRowVectors];
      strip_products(strip, 0, done, others, kGroupRows, sums);
      for (int c = 0; c < kColumns; ++c) {
        double* column = strip + (static_cast<std::size_t>(done) + c) * kGroupRows;
        if (s == j / kGroupRows)
          for (int b = 0; b < c; ++b) within[c][b] = others[c][(static_cast<std::size_t>(done) + b) * kGroupRows];
#pragma GCC unroll 8
        for (int v = 0; v < kRowVectors; ++v) {
          V x = load(column + v * V::lanes) - sums[c][v];
          for (int b = 0; b < c; ++b)
            x = x - load(column - static_cast<std::size_t>(c - b) * kGroupRows + v * V::lanes) * broadcast(within[c][b]);
          store(column + v * V::lanes, x);
        }
        if (s == j / kGroupRows) {
          const double pivot = column[(j + c) % kGroupRows];
          if (!(pivot > 0)) return false;
          V root, unused;
          square_root(broadcast(pivot), root, unused);
          alignas(kAlignment) double lanes[V::lanes];
          store(lanes, broadcast(1.0) / root);
          reciprocal[c] = lanes[0];
        }
#pragma GCC unroll 8
        for (int v = 0; v < kRowVectors; ++v)
          store(column + v * V::lanes, load(column + v * V::lanes) * broadcast(reciprocal[c]));
      }
    }
  }
  return true;
}

// The last rows of L^-1: X L = E, from the last columns to the first.
inline void invert_group(const RowGroup& of, const GroupBuffers& at) {
  using V = Vec<double>;
  for (int j = at.columns - kColumns; j >= 0; j -= kColumns) {
    for (int s = 0; s < at.row_strips; ++s) {
      double* strip = at.inverse + static_cast<std::size_t>(s) * at.columns * kGroupRows;
      V sums[kColumns][kRowVectors];
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c)
#pragma GCC unroll 8
        for (int v = 0; v < kRowVectors; ++v) sums[c][v] = broadcast(0.0);
      for (int k = j + kColumns; k < at.columns; k = (k / kGroupRows + 1) * kGroupRows) {  // rows of a strip of L lie together
        const int end = (k / kGroupRows + 1) * kGroupRows < at.columns ? (k / kGroupRows + 1) * kGroupRows : at.columns;
        const double* others[kColumns];
        for (int c = 0; c < kColumns; ++c) others[c] = at.row(k) + (at.before + static_cast<std::size_t>(j) + c) * kGroupRows;
        V some[kColumns][kRowVectors];
        strip_products(strip, k, end, others, 1, some);
#pragma GCC unroll 8
        for (int c = 0; c < kColumns; ++c)
#pragma GCC unroll 8
          for (int v = 0; v < kRowVectors; ++v) sums[c][v] = sums[c][v] + some[c][v];
      }
      for (int c = kColumns - 1; c >= 0; --c) {
        double* column = strip + (static_cast<std::size_t>(j) + c) * kGroupRows;
        const std::size_t at_column = (at.before + static_cast<std::size_t>(j) + c) * kGroupRows;
        const int unit = j + c - of.member_count - s * kGroupRows;  // the row of this strip that has a one in this column
        for (int i = 0; i < kGroupRows; ++i) column[i] = i == unit ? 1.0 : 0.0;
#pragma GCC unroll 8
        for (int v = 0; v < kRowVectors; ++v) {
          V x = load(column + v * V::lanes) - sums[c][v];
          for (int b = c + 1; b < kColumns; ++b)
            x = x - load(column + static_cast<std::size_t>(b - c) * kGroupRows + v * V::lanes) * broadcast(at.row(j + b)[at_column]);
          store(column + v * V::lanes, x / broadcast(at.row(j + c)[at_column]));
        }
      }
    }
  }
}

// Rows of the inverse factor (row_count of them), column after column, members first. False where the group and its members
// are not positive definite.
inline bool factor_group(const RowGroup& of, void* scratch, double* entries) {
  const GroupBuffers at(of, static_cast<double*>(scratch));
  gather_group(of, at);
  group_entries(of, at);
  if (!factor_group_covariances(at)) return false;
  invert_group(of, at);
  for (int j = 0; j < at.size; ++j)
    for (int i = 0; i < of.row_count; ++i)
      *entries++ = at.inverse[((static_cast<std::size_t>(i / kGroupRows) * at.columns) + j) * kGroupRows + i % kGroupRows];
  return true;
}
