// Points in the order of a tree of boxes, in which neighbours are together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace halfgp {

// The squared distance between two boxes; a point is a box whose corners are the same.
inline double between(const double* low, const double* high, const double* other_low, const double* other_high, int features) {
  double sum = 0;
  for (int f = 0; f < features; ++f) {
    const double gap = std::max({0.0, low[f] - other_high[f], other_low[f] - high[f]});
    sum += gap * gap;
  }
  return sum;
}

class BoxTree {
 public:
  // Halves `rows` of points (count, features) along the widest feature: at a whole number of `block` while there are
  // more, then of `grain`, so that all leaves but the last are full, and every whole block is a node.
  BoxTree(const double* points, int features, std::vector<std::int64_t> rows, int block, int grain);

  struct Node {
    std::int64_t first, last;  // of the points in the order of the tree
    std::int32_t left, right;  // nodes, or -1 in a leaf; both come later than their parent
  };

  int features() const { return features_; }
  std::int32_t count() const { return static_cast<std::int32_t>(nodes_.size()); }
  const Node& node(std::int32_t index) const { return nodes_[static_cast<std::size_t>(index)]; }
  const double* low(std::int32_t index) const { return boxes_.data() + static_cast<std::size_t>(index) * 2 * features_; }
  const double* high(std::int32_t index) const { return low(index) + features_; }
  const std::vector<std::int64_t>& order() const { return order_; }
  const std::vector<std::int32_t>& leaves() const { return leaves_; }
  std::int32_t root() const { return nodes_.empty() ? -1 : 0; }

 private:
  std::int32_t grow(const double* points, std::int64_t first, std::int64_t last);
  void bound(const double* points, std::int64_t first, std::int64_t last);

  int features_;
  std::int64_t block_, grain_;
  std::vector<std::int64_t> order_;
  std::vector<Node> nodes_;
  std::vector<double> boxes_;  // by node: lows, then highs
  std::vector<std::int32_t> leaves_;
};

}  // namespace halfgp
