#include "support.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "box_tree.hpp"

namespace halfgp {
namespace {

constexpr double kLn2 = 0.693147180559945309417;
// Relative errors of what follows a squared distance (roots, logarithms, powers, sums and products) are below so many
// units of the last place.
constexpr double kUlps = 64;

// Bounds of nodes from bounds of leaves; the last is the root's.
template <class LeafBound>
double root_bound(const Program& program, LeafBound leaf_bound, double growth) {
  constexpr int at_once = 64;
  double few[at_once];
  std::vector<double> many(program.node_count > at_once ? static_cast<std::size_t>(program.node_count) : 0);
  double* bounds = many.empty() ? few : many.data();
  for (int n = 0; n < program.node_count; ++n) {
    const Node node = program.nodes[n];
    switch (node.kind) {
      case NodeKind::leaf: bounds[n] = leaf_bound(static_cast<std::size_t>(node.a)); break;
      case NodeKind::constant: bounds[n] = std::abs(program.constants[node.a]); break;
      case NodeKind::add: bounds[n] = (bounds[node.a] + bounds[node.b]) * growth; break;
      case NodeKind::multiply: bounds[n] = bounds[node.a] * bounds[node.b] * growth; break;
    }
  }
  return bounds[program.node_count - 1];
}

// At least the covariance whose power of two is x (see profile.inl), for x <= 0.
double covariance_bound(Profile profile, double x) {
  const double b = -x * kLn2, k = std::exp2(x);
  if (profile == Profile::matern32) return (1 + b) * k;
  if (profile == Profile::matern52) return (1 + b * (1 + b / 3)) * k;
  return k;
}

// One box around all.
Boxes hull(const Boxes& boxes) {
  Boxes whole(1, boxes.features);
  for (std::size_t run = 0; run < boxes.norms.size(); ++run)
    whole.include(0, boxes.low(static_cast<std::int64_t>(run)), boxes.high(static_cast<std::int64_t>(run)), boxes.norms[run]);
  return whole;
}

}  // namespace

bool has_support(const Program& program) {
  const bool stationary = std::any_of(program.leaves, program.leaves + program.leaf_count,
                                      [](const Leaf& leaf) { return leaf.profile != Profile::linear; });
  return stationary && root_bound(program, [&](std::size_t l) { return program.leaves[l].profile == Profile::linear ? 1.0 : 0.0; }, 1.0) == 0;
}

Support::Support(const Program& program, const std::vector<Path>& near_paths, bool single, const Points& rows, const Points& columns)
    : program_(program), near_paths_(near_paths),
      epsilon_(single ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon()),
      least_normal_(single ? std::numeric_limits<float>::min() : std::numeric_limits<double>::min()), rows_(rows), columns_(columns) {}

// Numbers are of interest only where the root is compared with one: otherwise it matters whether they are zero.
double Support::covariance_where_it_matters(const Leaf& leaf, double exponent) const {
  if (exponent <= leaf.least_exponent) return 0.0;
  return program_.negligible > 0 ? covariance_bound(leaf.profile, exponent) * (1 + kUlps * epsilon_) : 1.0;
}

bool Support::is_dropped(double bound) const { return bound <= program_.negligible * (1 - kUlps * epsilon_); }

template <class LeafValue>
double Support::between_blocks(std::int64_t row, std::int64_t column, LeafValue value) const {
  return bound(row, column, rows_.near(row) && columns_.near(column),
               [](const Points& points, std::size_t l) -> const Boxes& { return points.block_boxes(l); }, value);
}

bool Support::blocks_apart(std::int64_t row, std::int64_t column) const {
  return is_dropped(between_blocks(row, column, [&](const Leaf& leaf, double x) { return covariance_where_it_matters(leaf, x); }));
}

bool Support::strips_apart(std::int64_t row, std::int64_t column) const {
  return is_dropped(bound(row, column, rows_.near(row / kStrips) && columns_.near(column / kStrips),
                          [](const Points& points, std::size_t l) -> const Boxes& { return points.strip_boxes(l); },
                          [&](const Leaf& leaf, double x) { return covariance_where_it_matters(leaf, x); }));
}

double Support::dropped(std::int64_t row, std::int64_t column) const {
  if (all_kept(row, column)) return 0.0;
  const double largest =
      between_blocks(row, column, [&](const Leaf& leaf, double x) { return covariance_bound(leaf.profile, x) * (1 + kUlps * epsilon_); });
  return std::min(largest, most_dropped());
}

// What the root drops, and what becomes of it where leaves drop theirs: by node, how large and how wrong it may be.
double Support::most_dropped() const {
  std::vector<double> sizes, errors;
  for (int n = 0; n < program_.node_count; ++n) {
    const Node node = program_.nodes[n];
    const auto a = static_cast<std::size_t>(node.a), b = static_cast<std::size_t>(node.b);
    double size = 1, error = 0;
    if (node.kind == NodeKind::constant) {
      size = std::abs(program_.constants[a]);
    } else if (node.kind == NodeKind::add) {
      size = sizes[a] + sizes[b];
      error = errors[a] + errors[b];
    } else if (node.kind == NodeKind::multiply) {
      size = sizes[a] * sizes[b];
      error = sizes[a] * errors[b] + errors[a] * (sizes[b] + errors[b]) + least_normal_;
    } else if (const Leaf& leaf = program_.leaves[a]; leaf.profile == Profile::linear) {
      const auto &rows = rows_.block_boxes(a).norms, &columns = columns_.block_boxes(a).norms;
      size = std::sqrt(*std::max_element(rows.begin(), rows.end()) * *std::max_element(columns.begin(), columns.end()));
      error = leaf.features * least_normal_;
    } else {
      error = covariance_bound(leaf.profile, std::min(0.0, leaf.least_exponent * (1 - kUlps * epsilon_)));
    }
    sizes.push_back(size);
    errors.push_back(error);
  }
  return (program_.negligible + errors.back()) * (1 + kUlps * epsilon_);
}

bool Support::all_kept(std::int64_t row, std::int64_t column) const {
  if (!is_one_leaf()) return false;
  const Boxes &a = rows_.block_boxes(0), &b = columns_.block_boxes(0);
  return reaches(a.low(row), a.high(row), a.norms[static_cast<std::size_t>(row)], b.low(column), b.high(column),
                 b.norms[static_cast<std::size_t>(column)]);
}

bool Support::everything_kept() const {
  if (!is_one_leaf() || !rows_.blocks() || !columns_.blocks()) return false;
  const Boxes a = hull(rows_.block_boxes(0)), b = hull(columns_.block_boxes(0));
  return reaches(a.low(0), a.high(0), a.norms[0], b.low(0), b.high(0), b.norms[0]);
}

bool Support::is_one_leaf() const {
  return program_.node_count == 1 && program_.leaf_count == 1 && program_.leaves[0].profile != Profile::linear;
}

// Whether the leaf reaches from any corner of a box to any of another, whatever the rounding.
bool Support::reaches(const double* low, const double* high, double norm, const double* other_low, const double* other_high,
                      double other_norm) const {
  const Leaf& leaf = program_.leaves[0];
  double squared = 0;
  for (int k = 0; k < leaf.features; ++k) {
    const double across = std::max(high[k] - other_low[k], other_high[k] - low[k]);
    squared += across * across;
  }
  const double part = 2 * (leaf.features + 8) * epsilon_;  // of both errors of q; see below
  const double x = exponent_bound(0, squared + 2 * part * (norm + other_norm + squared), 0.0, false);
  return x - 4 * kUlps * epsilon_ * (1 - x) > leaf.least_exponent;
}

// The power of two of a leaf is at most this, at a squared distance of psi of at least `squared`. Differences are squared
// and added with a relative error, the expansion with one relative to the squares of both points.
double Support::exponent_bound(std::size_t l, double squared, double norms, bool near) const {
  const Leaf& leaf = program_.leaves[l];
  const bool expanded = near && near_paths_[l] != Path::difference;
  const double part = (leaf.features + 8) * epsilon_;
  const double q = std::min(0.0, expanded ? part * norms - 0.5 * squared : (part - 0.5) * squared);
  double x = q;
  if (leaf.profile == Profile::rational_quadratic) x = -leaf.shape * std::log2(1 - q);
  else if (leaf.profile != Profile::rbf) x = -std::sqrt(-q);
  return std::min(0.0, x * (1 - kUlps * epsilon_) + kUlps * epsilon_);
}

template <class BoxesOf, class LeafValue>
double Support::bound(std::int64_t row, std::int64_t column, bool near, BoxesOf boxes_of, LeafValue value) const {
  return root_bound(
      program_,
      [&](std::size_t l) {
        const Leaf& leaf = program_.leaves[l];
        const Boxes &a = boxes_of(rows_, l), &b = boxes_of(columns_, l);
        const double row_norm = a.norms[static_cast<std::size_t>(row)], column_norm = b.norms[static_cast<std::size_t>(column)];
        if (leaf.profile == Profile::linear) return std::sqrt(row_norm * column_norm) * (1 + (leaf.features + kUlps) * epsilon_);
        const double squared = between(a.low(row), a.high(row), b.low(column), b.high(column), leaf.features);
        return value(leaf, exponent_bound(l, squared, row_norm + column_norm, near));
      },
      1 + kUlps * epsilon_);
}

}  // namespace halfgp
