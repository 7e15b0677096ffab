// A kernel matrix that is never held, or held compressed: products, gradients and blocks of it, tile by tile.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "live_tiles.hpp"
#include "panels.hpp"
#include "points.hpp"
#include "program.hpp"
#include "schedule.hpp"
#include "support.hpp"

namespace halfgp {

// All that there is to say about one leaf, as the caller plans it.
struct LeafDescription {
  Profile profile;
  int features;
  bool shared_scale;      // one lengthscale for all features
  double shape;           // of the profile, where it has one
  double least_exponent;  // entries whose power of two lies below this are zero
  Path near_path;         // for pairs of points near the centre; others take differences
  bool by_products;       // gradients of such pairs come from products with the features, and of others from differences
  LeafPacking packing;
};

// A program with the memory behind it.
struct KernelProgram {
  std::vector<Leaf> leaves;
  std::vector<Node> nodes;
  std::vector<double> constants;
  std::vector<LeafPacking> packing;  // by leaf
  std::vector<Path> near_paths;      // by leaf, for pairs of points near the centre; others take differences
  double scale;                      // of the whole matrix
  double negligible;                 // entries of the root at most this large are zero

  KernelProgram(const std::vector<LeafDescription>& described, std::vector<Node> nodes, std::vector<double> constants,
                double scale, double negligible)
      : nodes(std::move(nodes)), constants(std::move(constants)), scale(scale), negligible(negligible) {
    for (const LeafDescription& leaf : described) {
      const double step = leaf.packing.fixed_step;
      leaves.push_back({leaf.profile, leaf.features, leaf.shared_scale, leaf.by_products, 0, leaf.shape, leaf.least_exponent, -0.5 * step * step});
      near_paths.push_back(leaf.near_path);
      packing.push_back(leaf.packing);
    }
  }

  Program view() const {
    return {static_cast<std::int32_t>(leaves.size()), static_cast<std::int32_t>(nodes.size()), leaves.data(), nodes.data(),
            constants.data(), negligible};
  }
};

struct GradientSums {
  double root = 0;
  std::vector<double> constants, shapes;
  std::vector<std::vector<double>> scales;  // by leaf: d/d log(scale)
};

template <class U>
class GradientPass;

class KernelMatrix {
  template <class U>
  friend class GradientPass;

 public:
  // `columns` null: a square matrix, symmetric, whose diagonal is left to the caller. Until `skip_zeros` every tile is
  // looked at.
  KernelMatrix(const Target& target, bool single, KernelProgram program, std::shared_ptr<const Points> rows,
               std::shared_ptr<const Points> columns);

  KernelMatrix(const KernelMatrix&) = delete;

  // results (rows, count) = scale K vectors + diagonal * vectors, in any layout; U is float or double. No diagonal is zero.
  // Where points are in runs, a part's tiles within its own are not in it.
  template <class U>
  void product(const Columns<const U>& vectors, const double* diagonal, const Columns<U>& results, const Execution& execution) const;
  // The product with these, of vectors and results (points of the run, count), their points ascending.
  template <class U>
  void product_within(const Columns<const U>& vectors, const double* diagonal, const Columns<U>& results,
                      const Execution& execution) const;

  // The gradient of sum_c left_c' K right_c over the off-diagonal entries. row_features, column_features: by leaf,
  // (points, f) row-major, += the gradient in the scaled features; null where not wanted (square: rows only).
  template <class U>
  GradientSums gradient(const U* left, const U* right, int count, const std::vector<double*>& row_features,
                        const std::vector<double*>& column_features, const Execution& execution) const;

  // Entries (rows, columns) row-major, not yet times scale nor rounded; the diagonal of a square matrix is zero.
  template <class U>
  void block(U* entries, const Execution& execution) const;

  // From now on products, gradients and what is stored look at these tiles only. If zeros are left out, tiles and strips of
  // them whose entries are all zero are: results are the same, to the bit. Those of all parts, of a square matrix, add up
  // to the whole.
  void choose_tiles(bool skip_zeros, const Part& part, const Execution& execution);
  // Of all entries, the share that all parts leave out.
  double share_skipped() const;

  // Those that are looked at here.
  std::size_t tiles() const { return live_.count(); }
  // At least the largest sum over a row of |entries|, not times scale, that are taken for zero.
  double dropped(const Execution& execution) const;

  // From now on products read the entries from memory.
  void store(Stored format, const Execution& execution);

 private:
  const Points& columns() const { return columns_ ? *columns_ : *rows_; }
  bool square() const { return !columns_; }
  std::size_t width() const { return single_ ? 4 : 8; }
  const TileFunctions& functions() const { return single_ ? target_.single : target_.double_; }
  Tile whole_tile(const Program& program, std::int64_t row, std::int64_t column, std::vector<Path>& paths) const;
  Tile tile(const Program& program, std::int64_t row, std::int64_t column, std::vector<Path>& paths) const;
  template <class U>
  Memory pack(const Columns<const U>& vectors, const Window& window) const;
  std::vector<Memory> scratch(const Program& program, const Execution& execution) const;
  Execution sized(const Execution& execution, std::int64_t work) const;

  template <class U>
  void square_product(const BlockPairs& pairs, const Window& window, const Columns<const U>& vectors, const double* diagonal,
                      const Columns<U>& results, const Execution& execution) const;
  template <class U>
  void rectangular_product(const Columns<const U>& vectors, const Columns<U>& results, const Execution& execution) const;

  const Target& target_;
  bool single_;
  KernelProgram program_;
  std::shared_ptr<const Points> rows_, columns_;
  Support support_;
  LiveTiles live_;
  bool skips_ = false;
  Stored stored_format_ = Stored::none;
  Memory stored_;
};

}  // namespace halfgp
