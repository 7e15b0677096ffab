// The sparse inverse Cholesky factor of rows that are conditioned in groups: the rows of a group follow each other, and are
// given the same earlier rows. To build, products and solves.
#pragma once

#include <cstdint>
#include <vector>

#include "engine.hpp"
#include "schedule.hpp"

namespace halfgp {

// Points in the order of the factor, and groups of them. Arrays are row-major and belong to the caller.
struct GroupedRows {
  std::vector<const double*> features;  // by leaf: (points, f), scaled
  const double* diagonal;               // (points): variance and noise
  const double* explained;              // (points, landmarks): A is conditioned on what has these products
  std::int64_t points;
  int landmarks;
  const std::int64_t* starts;           // (groups + 1): group g is rows starts[g] ... starts[g + 1] - 1
  const std::int64_t* member_starts;    // (groups + 1)
  const std::int64_t* members;          // rows before those of the group
  std::int64_t groups;
};

// Entries are held as `Entry`, float or double; vectors and sums are in double.
template <class Entry>
class GroupedFactor {
 public:
  // A group that is not positive definite with its members in double goes without them; and if it is not by itself, its
  // rows have landmarks alone.
  GroupedFactor(const Target& target, const KernelProgram& program, const GroupedRows& of, const Execution& execution);

  // G v and G' v of v (points, count), row-major; rows of no group are zero. The number of threads does not change them.
  void multiply(const double* v, int count, double* out, const Execution& execution) const;
  void multiply_transposed(const double* v, int count, double* out, const Execution& execution) const;

  // Of the rows of its groups, what G^-1 v and G'^-1 v are in the place of v, where earlier (later) groups have been
  // solved for: one group after the other, and so by one thread.
  void solve(double* v, int count) const;
  void solve_transposed(double* v, int count) const;

  std::int64_t size() const { return points_; }
  double log_pivots() const { return log_pivots_; }     // sum of the logarithms of the diagonal
  std::int64_t indefinite() const { return indefinite_; }  // rows whose variance landmarks explain to nothing

 private:
  // Of columns of v and out whose rows are `stride` numbers apart; `parts` has room for what groups find.
  void add_transposed(const double* v, int count, int stride, double* parts, double* out, const Execution& execution) const;
  std::int64_t groups() const { return static_cast<std::int64_t>(starts_.size()) - 1; }
  std::int64_t rows(std::int64_t group) const;
  std::int64_t members(std::int64_t group) const;
  const std::int32_t* columns(std::int64_t group) const;
  const Entry* entries(std::int64_t group) const;  // column after column

  std::int64_t points_;
  std::vector<std::int64_t> starts_, column_starts_, entry_starts_;  // by group
  std::vector<std::int32_t> columns_;                                // members, then the rows themselves
  std::vector<Entry> entries_;
  std::vector<std::int64_t> met_starts_, met_;  // by point: where it stands among columns_
  double log_pivots_ = 0;
  std::int64_t indefinite_ = 0;
};

}  // namespace halfgp
