// Products of a subtile of entries with panels of right-hand sides. A subtile is evaluated once and used twice: with the
// columns' vectors for the rows' results, and, for the other half of a symmetric matrix, the other way round.

// rows += K V: K is kSubtile columns of kBlock rows; V has a strip of columns, `at` its first; results a panel. Products
// of a subtile are added up before they join the others: the rounding of a sum grows with how many went before.
template <class T, int C>
inline void rows_product(const T* k, const T* v, int columns, int first_row, int row_count, int stride, T* results) {
  using V = Vec<T>;
  constexpr int R = kProductVectors;
  for (int row = first_row; row < row_count; row += R * V::lanes) {
    T* out = results + static_cast<std::size_t>(row / kStrip) * kStrip * stride + row % kStrip;
    V sum[C][R];
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c)
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sum[c][r] = broadcast(T(0));
    for (int j = 0; j < columns; ++j) {
      V ks[R];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) ks[r] = load(k + j * kBlock + row + r * V::lanes);
#pragma GCC unroll 16
      for (int c = 0; c < C; ++c) {
        const V w = broadcast(v[c * kStrip + j]);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) sum[c][r] = fma(ks[r], w, sum[c][r]);
      }
    }
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c)
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        T* at = out + c * kStrip + r * V::lanes;
        store(at, load(at) + sum[c][r]);
      }
  }
}

// columns += K' V: sums over the rows stay in the lanes until the block's end, where kDotColumns x C of them are folded
// together.
template <class T, int C>
inline void columns_product(const T* k, const T* v, int columns, int first_row, int row_count, int stride, T* results) {
  using V = Vec<T>;
  constexpr int J = kDotColumns, per_strip = kStrip / V::lanes;
  const int vectors = (row_count + V::lanes - 1) / V::lanes;
  for (int j = 0; j < columns; j += J) {
    V sum[C * J];
#pragma GCC unroll 32
    for (int i = 0; i < C * J; ++i) sum[i] = broadcast(T(0));
    for (int i = first_row / V::lanes; i < vectors; ++i) {
      const T* at = v + static_cast<std::size_t>(i / per_strip) * kStrip * stride + (i % per_strip) * V::lanes;
      V ks[J];
#pragma GCC unroll 8
      for (int jj = 0; jj < J; ++jj) ks[jj] = load(k + (j + jj) * kBlock + i * V::lanes);
#pragma GCC unroll 16
      for (int c = 0; c < C; ++c) {
        const V w = load(at + c * kStrip);
#pragma GCC unroll 8
        for (int jj = 0; jj < J; ++jj) sum[c * J + jj] = fma(ks[jj], w, sum[c * J + jj]);
      }
    }
    alignas(64) T totals[C * J];
    sum_lanes<C * J>(sum, totals);
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c)
#pragma GCC unroll 8
      for (int jj = 0; jj < J; ++jj) results[c * kStrip + j + jj] += totals[c * J + jj];
  }
}

// Calls f with the count of right-hand sides as a compile-time constant, at most `Most` at a time and evenly divided.
template <int C, class Function>
inline void with_count(int count, Function& f, int c) {
  if constexpr (C > 0) {
    if (count == C) return f.template operator()<C>(c);
    with_count<C - 1>(count, f, c);
  }
}
template <int Most, class Function>
inline void for_rhs(int count, Function f) {
  const int parts = (count + Most - 1) / Most;
  for (int part = 0, c = 0; part < parts; ++part) {
    const int size = (count - c) / (parts - part);
    with_count<Most>(size, f, c);
    c += size;
  }
}

// Panels of `stride` columns; the first `count` take part. `first` is the subtile's first column.
template <class T>
inline void add_rows_product(const Tile& tile, const T* k, int first, int columns, const T* v, int stride, T* results) {
  const T* at = v + static_cast<std::size_t>(first / kStrip) * kStrip * stride + first % kStrip;
  for_rhs<kRhs>(stride, [&]<int C>(int c) {
    rows_product<T, C>(k, at + c * kStrip, columns, tile.first_row, tile.row_count, stride, results + c * kStrip);
  });
}
template <class T>
inline void add_columns_product(const Tile& tile, const T* k, int first, int columns, const T* v, int stride, T* results) {
  T* at = results + static_cast<std::size_t>(first / kStrip) * kStrip * stride + first % kStrip;
  for_rhs<kDotRhs>(stride, [&]<int C>(int c) {
    columns_product<T, C>(k, v + c * kStrip, columns, tile.first_row, tile.row_count, stride, at + c * kStrip);
  });
}

template <class T>
inline void clear(T* p, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) p[i] = 0;
}

// Asks for the stored entries of the subtile after this one, half of them before each use of it: memory then works while
// the processor multiplies.
template <class T>
inline void prefetch_next(const Tile& tile, int first, int half) {
  if (!tile.stored || first + kSubtile >= tile.column_count) return;
  const std::size_t width = tile.stored_format == Stored::native ? sizeof(T) : 2, bytes = kSubtile * kBlock * width;
  const char* next = static_cast<const char*>(tile.stored) + static_cast<std::size_t>(first + kSubtile) * kBlock * width;
  for (std::size_t at = half * bytes / 2; at < (half + 1) * bytes / 2; at += 64) __builtin_prefetch(next + at, 0, 1);
}

template <class T>
inline void product_tile(const Tile& tile, const Product& product, void* scratch) {
  const std::size_t size = static_cast<std::size_t>(product.count) * kBlock;
  T *rows = static_cast<T*>(product.row_results), *columns = static_cast<T*>(product.column_results);
  clear(rows, size);
  if (columns) clear(columns, size);
  for_subtiles<T>(tile, static_cast<T*>(scratch), [&](const Tile& part, int first, int count, const T* k) {
    prefetch_next<T>(tile, first, 0);
    add_rows_product<T>(part, k, first, count, static_cast<const T*>(product.column_vectors), product.count, rows);
    prefetch_next<T>(tile, first, 1);
    if (columns)
      add_columns_product<T>(part, k, first, count, static_cast<const T*>(product.row_vectors), product.count, columns);
  });
}

// sums += parts, in double: how the results of tiles meet. Plain, for the compiler to vectorise.
template <class T>
inline void accumulate(const void* parts, std::size_t count, double* sums) {
  const T* part = static_cast<const T*>(parts);
  for (std::size_t i = 0; i < count; ++i) sums[i] += static_cast<double>(part[i]);
}
