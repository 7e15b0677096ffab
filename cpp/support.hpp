// How large entries between two boxes of points can be, as tiles compute them, rounding included: where that is zero,
// nobody need look.
#pragma once

#include <cstdint>

#include "points.hpp"
#include "program.hpp"

namespace halfgp {

// Whether distance alone makes entries vanish: not where a constant or an inner product stands by itself.
bool has_support(const Program& program);

class Support {
 public:
  Support(const Program& program, const std::vector<Path>& near_paths, bool single, const Points& rows, const Points& columns);

  // Whether all entries of two blocks, or of two strips, are zero.
  bool blocks_apart(std::int64_t row, std::int64_t column) const;
  bool strips_apart(std::int64_t row, std::int64_t column) const;
  // Whether no entry of two blocks, or none at all, is taken for zero, as far as that is seen at a glance.
  bool all_kept(std::int64_t row, std::int64_t column) const;
  bool everything_kept() const;
  // How large an entry of two blocks can be, in exact arithmetic, that is taken for zero.
  double dropped(std::int64_t row, std::int64_t column) const;

 private:
  template <class LeafValue>
  double between_blocks(std::int64_t row, std::int64_t column, LeafValue value) const;
  template <class BoxesOf, class LeafValue>
  double bound(std::int64_t row, std::int64_t column, bool near, BoxesOf boxes_of, LeafValue value) const;
  bool is_dropped(double bound) const;
  double covariance_where_it_matters(const Leaf& leaf, double exponent) const;
  double exponent_bound(std::size_t leaf, double squared, double norms, bool near) const;
  double most_dropped() const;
  bool is_one_leaf() const;
  bool reaches(const double* low, const double* high, double norm, const double* other_low, const double* other_high,
               double other_norm) const;

  Program program_;
  const std::vector<Path>& near_paths_;
  double epsilon_, least_normal_;
  const Points &rows_, &columns_;
};

}  // namespace halfgp
