#include "box_tree.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace halfgp {

BoxTree::BoxTree(const double* points, int features, std::vector<std::int64_t> rows, int block, int grain)
    : features_(features), block_(block), grain_(grain), order_(std::move(rows)) {
  if (!order_.empty()) grow(points, 0, static_cast<std::int64_t>(order_.size()));
}

std::int32_t BoxTree::grow(const double* points, std::int64_t first, std::int64_t last) {
  const auto index = static_cast<std::int32_t>(nodes_.size());
  nodes_.push_back({first, last, -1, -1});
  bound(points, first, last);
  if (last - first <= grain_) {
    leaves_.push_back(index);
    return index;
  }
  int widest = 0;
  for (int f = 1; f < features_; ++f)
    if (high(index)[f] - low(index)[f] > high(index)[widest] - low(index)[widest]) widest = f;
  const std::int64_t whole = last - first > block_ ? block_ : grain_;
  const std::int64_t parts = (last - first + whole - 1) / whole, middle = first + parts / 2 * whole;
  // By coordinate and, for one order whatever the library, by row; side by side, which is faster than looking them up.
  const auto at = order_.begin() + first;
  std::vector<std::pair<double, std::int64_t>> places;
  places.reserve(static_cast<std::size_t>(last - first));
  for (std::int64_t i = 0; i < last - first; ++i) places.emplace_back(points[at[i] * features_ + widest], at[i]);
  std::nth_element(places.begin(), places.begin() + (middle - first), places.end());
  std::transform(places.begin(), places.end(), at, [](const auto& place) { return place.second; });
  places = {};  // not held while the halves are halved
  const std::int32_t left = grow(points, first, middle), right = grow(points, middle, last);
  nodes_[static_cast<std::size_t>(index)].left = left;
  nodes_[static_cast<std::size_t>(index)].right = right;
  return index;
}

void BoxTree::bound(const double* points, std::int64_t first, std::int64_t last) {
  const std::size_t at = boxes_.size();
  boxes_.resize(at + 2 * static_cast<std::size_t>(features_));
  double *low = boxes_.data() + at, *high = low + features_;
  std::fill(low, low + features_, std::numeric_limits<double>::infinity());
  std::fill(high, high + features_, -std::numeric_limits<double>::infinity());
  for (std::int64_t i = first; i < last; ++i) {
    const double* x = points + order_[static_cast<std::size_t>(i)] * features_;
    for (int f = 0; f < features_; ++f) {
      low[f] = std::min(low[f], x[f]);
      high[f] = std::max(high[f], x[f]);
    }
  }
}

}  // namespace halfgp
