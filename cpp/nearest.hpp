// The nearest of many points to others, exactly: a tree of boxes over strips of points, whose distances are taken a strip
// at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "box_tree.hpp"
#include "memory.hpp"
#include "program.hpp"
#include "schedule.hpp"

namespace halfgp {

// A tree whose leaves are strips of points.
class PointTree : public BoxTree {
 public:
  // `positions` (count) gives every point a place in an order, or is null.
  PointTree(const double* points, std::int64_t count, int features, const std::int64_t* positions);

  // Of the positions of a node's points, where there are any.
  std::int64_t earliest(std::int32_t index) const { return earliest_[static_cast<std::size_t>(index)]; }
  const double* strip(std::int64_t first) const { return panel_.as<double>() + first * features(); }

 private:
  std::vector<std::int64_t> earliest_;  // by node
  Memory panel_;                        // strips of kStrip points, feature after feature
};

// What is searched for. Arrays are row-major and belong to the caller.
struct NearestSearch {
  const double* points;           // (count, features)
  std::int64_t count;
  int features;
  const std::int64_t* positions;  // (count), or null: then every other point is a candidate
  const double* queries;          // (query_count, features)
  std::int64_t query_count;
  const std::int64_t* own;        // (query_count): the point that a query is, which is no candidate; -1 for none
  int neighbours;
};

// Writes the neighbours (query_count, neighbours) of every query, nearest first, -1 where there are fewer candidates. A
// query that is a point sees those of earlier positions alone, where there are positions. No result depends on the threads.
void nearest(const Target& target, const NearestSearch& search, std::int64_t* found, const Execution& execution);

}  // namespace halfgp
