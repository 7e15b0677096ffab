// A sparse lower triangular matrix of which every row has a few entries and the diagonal, or some rows of one: products
// and solves.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule.hpp"

namespace halfgp {

// Entries are held as `Entry`, float or double; vectors and sums are in double.
template <class Entry>
class SparseFactor {
 public:
  // Entries (rows, width + 1) of columns (rows, width) before the row's own, -1 for none; the last entry is the diagonal's.
  // All rows, or those numbered `own` (rows) of `size`, where that is not null.
  SparseFactor(const std::int64_t* columns, const Entry* entries, std::int64_t rows, int width, const std::int64_t* own, std::int64_t size);

  // G v of v (size, count), and G' v of v (rows, count), row-major; the number of threads does not change them.
  void multiply(const double* v, int count, double* out, const Execution& execution) const;
  void multiply_transposed(const double* v, int count, double* out, const Execution& execution) const;

  // Of all rows, G^-1 v and G'^-1 v in the place of v: one row after the other, and so by one thread.
  void solve(double* v, int count) const;
  void solve_transposed(double* v, int count) const;

 private:
  std::int64_t rows_;
  // By row, with its diagonal last; and by column, with its diagonal first.
  std::vector<std::int64_t> row_starts_, column_starts_;
  std::vector<std::int32_t> columns_, rows_of_;
  std::vector<Entry> entries_, entries_by_column_;
};

}  // namespace halfgp
