// A sparse lower triangular matrix of which every row has a few entries and the diagonal: products and solves.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule.hpp"

namespace halfgp {

class SparseFactor {
 public:
  // Entries (rows, width + 1) of columns (rows, width) before the row's own, -1 for none; the last entry is the diagonal's.
  SparseFactor(const std::int64_t* columns, const double* entries, std::int64_t rows, int width);

  std::int64_t size() const { return rows_; }

  // G v and G' v of v (rows, count), row-major; the number of threads does not change them.
  void multiply(const double* v, int count, double* out, const Execution& execution) const;
  void multiply_transposed(const double* v, int count, double* out, const Execution& execution) const;

  // G^-1 v and G'^-1 v in the place of v: one row after the other, and so by one thread.
  void solve(double* v, int count) const;
  void solve_transposed(double* v, int count) const;

 private:
  std::int64_t rows_;
  // By row, with its diagonal last; and by column, with its diagonal first.
  std::vector<std::int64_t> row_starts_, column_starts_;
  std::vector<std::int32_t> columns_, rows_of_;
  std::vector<double> entries_, entries_by_column_;
};

}  // namespace halfgp
