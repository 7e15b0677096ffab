#include "sparse_factor.hpp"

#include <algorithm>

namespace halfgp {
namespace {

constexpr std::int64_t kRows = 1024;  // of a task

// out = sum of entries times rows of v.
inline void combine(const double* entries, const std::int32_t* indices, std::int64_t size, const double* v, int count, double* out) {
  if (count == 1) {  // four sums at once hide the latency of each
    double sums[4] = {0, 0, 0, 0};
    std::int64_t i = 0;
    for (; i + 4 <= size; i += 4)
      for (int j = 0; j < 4; ++j) sums[j] += entries[i + j] * v[indices[i + j]];
    for (; i < size; ++i) sums[0] += entries[i] * v[indices[i]];
    *out = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    return;
  }
  std::fill(out, out + count, 0.0);
  for (std::int64_t i = 0; i < size; ++i) {
    const double* row = v + static_cast<std::int64_t>(indices[i]) * count;
    for (int c = 0; c < count; ++c) out[c] += entries[i] * row[c];
  }
}

void combine_all(const std::vector<std::int64_t>& starts, const std::vector<std::int32_t>& indices, const std::vector<double>& entries,
                 const double* v, int count, double* out, const Execution& execution) {
  const auto rows = static_cast<std::int64_t>(starts.size()) - 1;
  for_each_task((rows + kRows - 1) / kRows, execution, [&](std::int64_t task, int, const Check& check) {
    check();
    for (std::int64_t row = task * kRows; row < std::min(rows, (task + 1) * kRows); ++row) {
      const std::int64_t from = starts[static_cast<std::size_t>(row)], size = starts[static_cast<std::size_t>(row) + 1] - from;
      combine(entries.data() + from, indices.data() + from, size, v, count, out + row * count);
    }
  });
}

}  // namespace

SparseFactor::SparseFactor(const std::int64_t* columns, const double* entries, std::int64_t rows, int width)
    : rows_(rows), row_starts_(1), column_starts_(static_cast<std::size_t>(rows) + 1) {
  const std::int64_t present = rows + std::count_if(columns, columns + rows * width, [](std::int64_t column) { return column >= 0; });
  columns_.reserve(static_cast<std::size_t>(present));  // as many as there are: growing would hold them twice
  entries_.reserve(static_cast<std::size_t>(present));
  row_starts_.reserve(static_cast<std::size_t>(rows) + 1);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (int k = 0; k <= width; ++k) {
      const std::int64_t column = k < width ? columns[row * width + k] : row;
      if (column < 0) continue;
      columns_.push_back(static_cast<std::int32_t>(column));
      entries_.push_back(entries[row * (width + 1) + k]);
      ++column_starts_[static_cast<std::size_t>(column) + 1];
    }
    row_starts_.push_back(static_cast<std::int64_t>(columns_.size()));
  }
  for (std::size_t column = 0; column < static_cast<std::size_t>(rows); ++column) column_starts_[column + 1] += column_starts_[column];
  rows_of_.resize(columns_.size());
  entries_by_column_.resize(columns_.size());
  std::vector<std::int64_t> next(column_starts_.begin(), column_starts_.end() - 1);
  for (std::int64_t row = 0; row < rows; ++row)  // ascending, and so the diagonal, the earliest row of a column, comes first
    for (std::int64_t i = row_starts_[static_cast<std::size_t>(row)]; i < row_starts_[static_cast<std::size_t>(row) + 1]; ++i) {
      const auto to = static_cast<std::size_t>(next[static_cast<std::size_t>(columns_[static_cast<std::size_t>(i)])]++);
      rows_of_[to] = static_cast<std::int32_t>(row);
      entries_by_column_[to] = entries_[static_cast<std::size_t>(i)];
    }
}

void SparseFactor::multiply(const double* v, int count, double* out, const Execution& execution) const {
  combine_all(row_starts_, columns_, entries_, v, count, out, execution);
}

void SparseFactor::multiply_transposed(const double* v, int count, double* out, const Execution& execution) const {
  combine_all(column_starts_, rows_of_, entries_by_column_, v, count, out, execution);
}

void SparseFactor::solve(double* v, int count) const {
  std::vector<double> sum(static_cast<std::size_t>(count));
  for (std::int64_t row = 0; row < rows_; ++row) {
    const std::int64_t from = row_starts_[static_cast<std::size_t>(row)], last = row_starts_[static_cast<std::size_t>(row) + 1] - 1;
    combine(entries_.data() + from, columns_.data() + from, last - from, v, count, sum.data());
    for (int c = 0; c < count; ++c)
      v[row * count + c] = (v[row * count + c] - sum[static_cast<std::size_t>(c)]) / entries_[static_cast<std::size_t>(last)];
  }
}

void SparseFactor::solve_transposed(double* v, int count) const {
  std::vector<double> sum(static_cast<std::size_t>(count));
  for (std::int64_t row = rows_ - 1; row >= 0; --row) {
    const std::int64_t first = column_starts_[static_cast<std::size_t>(row)], size = column_starts_[static_cast<std::size_t>(row) + 1] - first;
    combine(entries_by_column_.data() + first + 1, rows_of_.data() + first + 1, size - 1, v, count, sum.data());
    for (int c = 0; c < count; ++c)
      v[row * count + c] = (v[row * count + c] - sum[static_cast<std::size_t>(c)]) / entries_by_column_[static_cast<std::size_t>(first)];
  }
}

}  // namespace halfgp
