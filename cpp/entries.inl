// Entries of one subtile: kSubtile columns by up to kBlock rows, column after column (leading dimension kBlock).
// A register block holds kRowVectors vectors of rows by kColumns columns.

template <class T>
inline constexpr int kRegisterRows = kRowVectors* Vec<T>::lanes;
static_assert(kStrip % kRegisterRows<float> == 0 && kStrip % kRegisterRows<double> == 0);  // a span may begin at any strip

// Applies `finish(exponents, row, column)` to every register block of inner products sum_k x_k y_k + start(...).
// Rows and columns are panels of `count` columns; `column` is the first column's place in its strip.
template <class T, bool kDifference, class Finish>
inline void for_register_blocks(const T* rows, const T* columns, const T* row_norms, const T* column_norms, int count,
                                int first_row, int row_count, int column_count, Finish finish) {
  using V = Vec<T>;
  for (int row = first_row; row < row_count; row += kRegisterRows<T>) {
    const T* x = rows + static_cast<std::size_t>(row / kStrip) * kStrip * count + row % kStrip;
    for (int column = 0; column < column_count; column += kColumns) {
      V q[kColumns][kRowVectors];
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j)
#pragma GCC unroll 8
        for (int i = 0; i < kRowVectors; ++i)
          q[j][i] = kDifference || !row_norms
                        ? broadcast(T(0))
                        : load(row_norms + row + i * V::lanes) + broadcast(column_norms[column + j]);
      for (int k = 0; k < count; ++k) {
        V xs[kRowVectors];
#pragma GCC unroll 8
        for (int i = 0; i < kRowVectors; ++i) xs[i] = load(x + k * kStrip + i * V::lanes);
#pragma GCC unroll 8
        for (int j = 0; j < kColumns; ++j) {
          const V y = broadcast(columns[k * kStrip + column + j]);
#pragma GCC unroll 8
          for (int i = 0; i < kRowVectors; ++i) {
            if constexpr (kDifference) {
              const V d = xs[i] - y;
              q[j][i] = fma(d, d, q[j][i]);
            } else {
              q[j][i] = fma(xs[i], y, q[j][i]);
            }
          }
        }
      }
      if constexpr (kDifference) {
#pragma GCC unroll 8
        for (int j = 0; j < kColumns; ++j)
#pragma GCC unroll 8
          for (int i = 0; i < kRowVectors; ++i) q[j][i] = q[j][i] * broadcast(T(-0.5));
      }
      finish(q, row, column);
    }
  }
}

// The same from 16-bit integers: |x - y|^2 is exact, then scaled to an exponent. A template on `Number` too, so that
// targets whose vectors have no such integers (kFixedPoint) do not compile it.
template <class T, class Number, class Finish>
inline void for_fixed_point_blocks(const Number* rows, const Number* columns, const Number* row_norms,
                                   const Number* column_norms, int pairs, T unit, int first_row, int row_count,
                                   int column_count, Finish finish) {
  using F = Vec<T>;
  using I = typename F::Integers;
  for (int row = first_row; row < row_count; row += kRegisterRows<T>) {
    const Number* x = rows + static_cast<std::size_t>(row / kStrip) * kStrip * pairs + row % kStrip;
    for (int column = 0; column < column_count; column += kColumns) {
      I dots[kColumns][kRowVectors];
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j)
#pragma GCC unroll 8
        for (int i = 0; i < kRowVectors; ++i) dots[j][i] = broadcast(Number{0});
      for (int k = 0; k < pairs; ++k) {
        I xs[kRowVectors];
#pragma GCC unroll 8
        for (int i = 0; i < kRowVectors; ++i) xs[i] = load(x + k * kStrip + i * F::lanes);
#pragma GCC unroll 8
        for (int j = 0; j < kColumns; ++j) {
          const I y = broadcast(columns[k * kStrip + column + j]);
#pragma GCC unroll 8
          for (int i = 0; i < kRowVectors; ++i) dots[j][i] = add_dot16(dots[j][i], xs[i], y);
        }
      }
      F q[kColumns][kRowVectors];
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j)
#pragma GCC unroll 8
        for (int i = 0; i < kRowVectors; ++i) {
          const I norms = load(row_norms + row + i * F::lanes) + broadcast(column_norms[column + j]);
          q[j][i] = to_float(norms - dots[j][i] - dots[j][i]) * broadcast(unit);
        }
      finish(q, row, column);
    }
  }
}

template <class T, class Finish>
inline void for_exponents(const Tile& tile, int l, int first, int columns, Finish finish) {
  const Leaf& leaf = tile.program->leaves[l];
  const LeafBlock &rows = tile.rows[l], &cols = tile.columns[l];
  const int strip = first / kStrip, within = first % kStrip;
  const Path path = tile.paths[l];
  if constexpr (kFixedPoint && sizeof(T) == 4) {
    if (path == Path::fixed_point) {
      const int pairs = (leaf.features + 1) / 2;
      for_fixed_point_blocks(rows.fixed_features, cols.fixed_features + strip * kStrip * pairs + within, rows.fixed_norms,
                             cols.fixed_norms + first, pairs, static_cast<T>(leaf.fixed_unit), tile.first_row, tile.row_count,
                             columns, finish);
      return;
    }
  }
  const T* x = static_cast<const T*>(rows.features);
  const T* y = static_cast<const T*>(cols.features) + strip * kStrip * leaf.features + within;
  const T* x_norms = static_cast<const T*>(rows.norms);
  const T* y_norms = static_cast<const T*>(cols.norms) + first;
  if (leaf.profile == Profile::linear)
    for_register_blocks<T, false>(x, y, nullptr, nullptr, leaf.features, tile.first_row, tile.row_count, columns, finish);
  else if (path == Path::difference)
    for_register_blocks<T, true>(x, y, x_norms, y_norms, leaf.features, tile.first_row, tile.row_count, columns, finish);
  else
    for_register_blocks<T, false>(x, y, x_norms, y_norms, leaf.features, tile.first_row, tile.row_count, columns, finish);
}

template <class T>
inline ProfileParameters<T> profile_parameters(const Leaf& leaf) {
  return {broadcast(static_cast<T>(leaf.least_exponent)), broadcast(static_cast<T>(leaf.shape))};
}

// A leaf's covariances.
template <Profile P, class T>
inline void leaf_values(const Tile& tile, int l, int first, int columns, T* values) {
  const ProfileParameters<T> with = profile_parameters<T>(tile.program->leaves[l]);
  for_exponents<T>(tile, l, first, columns, [&](Vec<T>(&q)[kColumns][kRowVectors], int row, int column) {
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j)
#pragma GCC unroll 8
      for (int i = 0; i < kRowVectors; ++i)
        store(values + (column + j) * kBlock + row + i * Vec<T>::lanes, covariance<P>(q[j][i], with));
  });
}

inline int padded_columns(int columns) { return (columns + kColumns - 1) / kColumns * kColumns; }

// Runs `f(offset)` over the vectors of the subtile's live entries.
template <class T, class Function>
inline void for_vectors(const Tile& tile, int columns, Function f) {
  const int rows = (tile.row_count + kRegisterRows<T> - 1) / kRegisterRows<T> * kRegisterRows<T>;
  for (int j = 0; j < columns; ++j)
    for (int i = tile.first_row; i < rows; i += Vec<T>::lanes) f(j * kBlock + i);
}

// The nodes above the leaves; node n's values are at buffers + n kSubtile kBlock.
template <class T>
inline void combine(const Tile& tile, int columns, T* buffers) {
  const Program& program = *tile.program;
  for (int n = 0; n < program.node_count; ++n) {
    const Node node = program.nodes[n];
    T* out = buffers + static_cast<std::size_t>(n) * kSubtile * kBlock;
    if (node.kind == NodeKind::leaf) continue;
    if (node.kind == NodeKind::constant) {
      const Vec<T> c = broadcast(static_cast<T>(program.constants[node.a]));
      for_vectors<T>(tile, columns, [&](int o) { store(out + o, c); });
      continue;
    }
    const T* a = buffers + static_cast<std::size_t>(node.a) * kSubtile * kBlock;
    const T* b = buffers + static_cast<std::size_t>(node.b) * kSubtile * kBlock;
    if (node.kind == NodeKind::add) {
      for_vectors<T>(tile, columns, [&](int o) { store(out + o, load(a + o) + load(b + o)); });
    } else {
      for_vectors<T>(tile, columns, [&](int o) { store(out + o, load(a + o) * load(b + o)); });
    }
  }
}

// Drops what the format rounds to zero, and the diagonal (which is added exactly elsewhere).
template <class T>
inline void drop_zeros(const Tile& tile, int first, int columns, T* root) {
  if (tile.program->negligible > 0) {
    const Vec<T> least = broadcast(static_cast<T>(tile.program->negligible));
    for_vectors<T>(tile, columns, [&](int o) { store(root + o, keep_larger_than(load(root + o), least)); });
  }
  if (tile.diagonal)
    for (int j = 0; j < columns; ++j) root[j * kBlock + first + j] = 0;
}

// The covariances of columns first ... first + columns of the tile; returns the root's buffer.
template <class T>
inline T* entries(const Tile& tile, int first, int columns, T* buffers) {
  const Program& program = *tile.program;
  for (int n = 0; n < program.node_count; ++n) {
    const Node node = program.nodes[n];
    if (node.kind != NodeKind::leaf) continue;
    T* out = buffers + static_cast<std::size_t>(n) * kSubtile * kBlock;
    with_profile(program.leaves[node.a].profile,
                 [&]<Profile P>() { leaf_values<P, T>(tile, node.a, first, columns, out); });
  }
  combine<T>(tile, columns, buffers);
  T* root = buffers + static_cast<std::size_t>(program.node_count - 1) * kSubtile * kBlock;
  drop_zeros<T>(tile, first, columns, root);
  return root;
}

// Calls f(part, first, columns) for each subtile that has entries: `part` is the tile cut down to the rows of its span.
template <class Function>
inline void for_parts(const Tile& tile, Function f) {
  Tile part = tile;
  for (int first = 0; first < tile.column_count; first += kSubtile) {
    const int left = tile.column_count - first, columns = padded_columns(left < kSubtile ? left : kSubtile);
    const Span span = tile.spans[first / kStrip];
    part.first_row = span.first * kStrip;
    part.row_count = span.last * kStrip < tile.row_count ? span.last * kStrip : tile.row_count;
    if (part.first_row < part.row_count) f(part, first, columns);
  }
}

// Calls f(part, first, columns, entries) for each of them, from memory where the tile is stored.
template <class T, class Function>
inline void for_subtiles(const Tile& tile, T* buffers, Function f) {
  for_parts(tile, [&](const Tile& part, int first, int columns) {
    if (!tile.stored) {
      f(part, first, columns, entries<T>(part, first, columns, buffers));
    } else if (tile.stored_format == Stored::native) {
      f(part, first, columns, static_cast<const T*>(tile.stored) + static_cast<std::size_t>(first) * kBlock);
    } else if constexpr (sizeof(T) == 4) {
      const std::uint16_t* held = static_cast<const std::uint16_t*>(tile.stored) + static_cast<std::size_t>(first) * kBlock;
      if (tile.stored_format == Stored::float16)
        for_vectors<T>(part, columns, [&](int o) { store(buffers + o, load_float16(held + o)); });
      else
        for_vectors<T>(part, columns, [&](int o) { store(buffers + o, load_bfloat16(held + o)); });
      f(part, first, columns, static_cast<const T*>(buffers));
    }
  });
}

template <class T>
inline void evaluate_tile(const Tile& tile, void* out, void* scratch) {
  for_subtiles<T>(tile, static_cast<T*>(scratch), [&](const Tile& part, int first, int columns, const T* k) {
    T* to = static_cast<T*>(out) + static_cast<std::size_t>(first) * kBlock;
    for_vectors<T>(part, columns, [&](int o) { store(to + o, load(k + o)); });
  });
}

template <class T>
inline void store_tile(const Tile& tile, Stored format, void* out, void* scratch) {
  for_subtiles<T>(tile, static_cast<T*>(scratch), [&](const Tile& part, int first, int columns, const T* k) {
    const std::size_t at = static_cast<std::size_t>(first) * kBlock;
    if (format == Stored::native) {
      for_vectors<T>(part, columns, [&](int o) { store(static_cast<T*>(out) + at + o, load(k + o)); });
    } else if constexpr (sizeof(T) == 4) {
      std::uint16_t* to = static_cast<std::uint16_t*>(out) + at;
      if (format == Stored::float16)
        for_vectors<T>(part, columns, [&](int o) { store_float16(to + o, load(k + o)); });
      else
        for_vectors<T>(part, columns, [&](int o) { store_bfloat16(to + o, load(k + o)); });
    }
  });
}
