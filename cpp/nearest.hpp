// The nearest of many points to others, exactly: a tree of boxes over strips of points, whose distances are taken a strip
// at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "memory.hpp"
#include "program.hpp"
#include "schedule.hpp"

namespace halfgp {

// Points in the order of a tree: every leaf is one strip, and every node knows the box of its points.
class PointTree {
 public:
  // `positions` (count) gives every point a place in an order, or is null.
  PointTree(const double* points, std::int64_t count, int features, const std::int64_t* positions);

  struct Node {
    std::int64_t first, last;   // of the points in the order of the tree
    std::int32_t left, right;   // nodes, or -1 in a leaf
    std::int64_t earliest;      // of the positions of its points
  };

  int features() const { return features_; }
  const Node& node(std::int32_t index) const { return nodes_[static_cast<std::size_t>(index)]; }
  const double* low(std::int32_t index) const { return boxes_.data() + static_cast<std::size_t>(index) * 2 * features_; }
  const double* high(std::int32_t index) const { return low(index) + features_; }
  const std::vector<std::int64_t>& order() const { return order_; }
  const std::vector<std::int32_t>& leaves() const { return leaves_; }
  const double* strip(std::int64_t first) const { return panel_.as<double>() + first * features_; }
  std::int32_t root() const { return root_; }

 private:
  std::int32_t grow(const double* points, const std::int64_t* positions, std::int64_t first, std::int64_t last);
  void bound(const double* points, std::int64_t first, std::int64_t last);

  int features_;
  std::int32_t root_ = -1;
  std::vector<std::int64_t> order_;
  std::vector<Node> nodes_;
  std::vector<double> boxes_;  // by node: lows, then highs
  std::vector<std::int32_t> leaves_;
  Memory panel_;               // strips of kStrip points, feature after feature
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
