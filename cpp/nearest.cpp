#include "nearest.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace halfgp {
namespace {

constexpr double kFar = std::numeric_limits<double>::infinity();
constexpr std::int64_t kLast = std::numeric_limits<std::int64_t>::max();

// The queries of one leaf, and the best candidates of each so far.
class Group {
 public:
  Group(const Target& target, const NearestSearch& search, const PointTree& tree)
      : target_(target), search_(search), tree_(tree), k_(static_cast<std::size_t>(search.neighbours)),
        distances_(kStrip * k_), candidates_(kStrip * k_), strip_(kStrip * sizeof(double)) {}

  void find(const PointTree& queries, std::int32_t leaf, std::int64_t* found) {
    const PointTree::Node& node = queries.node(leaf);
    low_ = queries.low(leaf), high_ = queries.high(leaf);
    count_ = static_cast<std::size_t>(node.last - node.first);
    latest_ = -1;
    for (std::size_t q = 0; q < count_; ++q) {
      const std::int64_t query = queries.order()[static_cast<std::size_t>(node.first) + q];
      Query& at = queries_[q];
      at = {search_.queries + query * search_.features, search_.own[query], kLast, 0, kFar};
      if (search_.positions && at.own >= 0) at.before = search_.positions[at.own];
      latest_ = std::max(latest_, at.before);
    }
    farthest_ = kFar;
    if (tree_.root() >= 0 && k_ > 0) visit(tree_.root(), 0.0);
    for (std::size_t q = 0; q < count_; ++q) {
      std::int64_t* to = found + queries.order()[static_cast<std::size_t>(node.first) + q] * search_.neighbours;
      std::fill(to, to + k_, -1);
      std::copy_n(candidates_.begin() + static_cast<std::ptrdiff_t>(q * k_), queries_[q].size, to);
    }
  }

 private:
  struct Query {
    const double* point;
    std::int64_t own, before;  // candidates have positions below `before`
    std::size_t size;          // candidates so far
    double worst;              // the distance that a candidate has to be below
  };

  // The nearer child first: it brings the distances down that the other is measured by.
  void visit(std::int32_t index, double distance) {
    const PointTree::Node& node = tree_.node(index);
    if (distance >= farthest_ || (search_.positions && tree_.earliest(index) >= latest_)) return;
    if (node.left < 0) return look(index);
    double near = to_box(node.left), far = to_box(node.right);
    std::int32_t first = node.left, second = node.right;
    if (far < near) std::swap(near, far), std::swap(first, second);
    visit(first, near);
    visit(second, far);
  }

  double to_box(std::int32_t index) const { return between(low_, high_, tree_.low(index), tree_.high(index), search_.features); }

  void look(std::int32_t leaf) {
    const PointTree::Node& node = tree_.node(leaf);
    const double *low = tree_.low(leaf), *high = tree_.high(leaf), *strip = tree_.strip(node.first);
    double* distances = strip_.as<double>();
    const auto size = static_cast<unsigned>(node.last - node.first);
    const std::uint64_t all = size < 64 ? (std::uint64_t{1} << size) - 1 : ~std::uint64_t{0};
    farthest_ = 0;
    for (std::size_t q = 0; q < count_; ++q) {
      Query& at = queries_[q];
      const bool early = search_.positions && tree_.earliest(leaf) >= at.before;
      if (!early && between(at.point, at.point, low, high, search_.features) < at.worst)
        for (std::uint64_t left = target_.near_strip(strip, search_.features, at.point, at.worst, distances) & all; left; left &= left - 1)
          consider(q, tree_.order()[static_cast<std::size_t>(node.first + __builtin_ctzll(left))], distances[__builtin_ctzll(left)]);
      farthest_ = std::max(farthest_, at.worst);
    }
  }

  void consider(std::size_t q, std::int64_t point, double distance) {
    Query& at = queries_[q];
    if (point == at.own || distance >= at.worst || (search_.positions && search_.positions[point] >= at.before)) return;
    double* distances = distances_.data() + q * k_;
    std::int64_t* candidates = candidates_.data() + q * k_;
    std::size_t place = at.size < k_ ? at.size++ : k_ - 1;
    for (; place > 0 && distances[place - 1] > distance; --place) {
      distances[place] = distances[place - 1];
      candidates[place] = candidates[place - 1];
    }
    distances[place] = distance;
    candidates[place] = point;
    if (at.size == k_) at.worst = distances[k_ - 1];
  }

  const Target& target_;
  const NearestSearch& search_;
  const PointTree& tree_;
  const std::size_t k_;
  std::vector<double> distances_;          // by query, ascending
  std::vector<std::int64_t> candidates_;
  Memory strip_;
  Query queries_[kStrip];
  std::size_t count_ = 0;
  const double *low_ = nullptr, *high_ = nullptr;
  std::int64_t latest_ = 0;
  double farthest_ = kFar;                 // that any of the queries still looks
};

std::vector<std::int64_t> all_rows(std::int64_t count) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(count));
  std::iota(rows.begin(), rows.end(), std::int64_t{0});
  return rows;
}

}  // namespace

PointTree::PointTree(const double* points, std::int64_t count, int features, const std::int64_t* positions)
    : BoxTree(points, features, all_rows(count), kStrip, kStrip) {
  const std::size_t strips = static_cast<std::size_t>((count + kStrip - 1) / kStrip);
  panel_ = Memory::zeroed(strips * kStrip * static_cast<std::size_t>(features) * sizeof(double));
  for (std::int64_t i = 0; i < count; ++i) {
    double* to = panel_.as<double>() + i / kStrip * kStrip * features + i % kStrip;
    const double* from = points + order()[static_cast<std::size_t>(i)] * features;
    for (int f = 0; f < features; ++f) to[f * kStrip] = from[f];
  }
  if (!positions) return;
  earliest_.assign(static_cast<std::size_t>(this->count()), kLast);
  for (std::int32_t index = this->count() - 1; index >= 0; --index) {  // children before their parents
    const Node& at = node(index);
    std::int64_t& earliest = earliest_[static_cast<std::size_t>(index)];
    if (at.left >= 0) {
      earliest = std::min(earliest_[static_cast<std::size_t>(at.left)], earliest_[static_cast<std::size_t>(at.right)]);
      continue;
    }
    for (std::int64_t i = at.first; i < at.last; ++i) earliest = std::min(earliest, positions[order()[static_cast<std::size_t>(i)]]);
  }
}

void nearest(const Target& target, const NearestSearch& search, std::int64_t* found, const Execution& execution) {
  const PointTree tree(search.points, search.count, search.features, search.positions);
  const PointTree queries(search.queries, search.query_count, search.features, nullptr);
  std::vector<Group> groups;
  for (int worker = 0; worker < execution.threads; ++worker) groups.emplace_back(target, search, tree);
  const auto count = static_cast<std::int64_t>(queries.leaves().size());
  for_each_task(count, execution, [&](std::int64_t leaf, int worker, const Check& check) {
    check();
    groups[static_cast<std::size_t>(worker)].find(queries, queries.leaves()[static_cast<std::size_t>(leaf)], found);
  });
}

}  // namespace halfgp
