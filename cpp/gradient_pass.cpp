// The gradient of sum_c left_c' K right_c: tiles give their shares, which are added up block by block.
#include <algorithm>

#include "engine.hpp"
#include "panels.hpp"

namespace halfgp {

template <class U>
class GradientPass {
 public:
  GradientPass(const KernelMatrix& matrix, const U* left, const U* right, int count, const std::vector<double*>& row_features,
               const std::vector<double*>& column_features, const Execution& execution)
      : matrix_(matrix), described_(matrix.program_), row_features_(row_features), column_features_(column_features) {
    for (std::size_t l = 0; l < leaves(); ++l) described_.leaves[l].wants_features = wanted(l);
    program_ = described_.view();
    // W_ij = left_i.right_j, and both ways round where a pair of blocks is met only once.
    weight_count_ = square() ? 2 * count : count;
    row_weights_ = weights(*matrix.rows_, left, square() ? right : nullptr, count);
    column_weights_ = weights(matrix.columns(), right, square() ? left : nullptr, count);
    // Root, constants, shapes, and the scales of each leaf.
    scalar_count_ = 1 + described_.constants.size() + leaves();
    for (std::size_t l = 0; l < leaves(); ++l) {
      scales_at_.push_back(scalar_count_);
      scalar_count_ += scale_count(l);
      row_panels_.emplace_back(wanted(l) ? blocks(*matrix.rows_) * panel(l) : 0);
      column_panels_.emplace_back(column_features[l] ? blocks(matrix.columns()) * panel(l) : 0);
    }
    scalars_.resize(blocks(*matrix.rows_) * scalar_count_);
    scratches_ = matrix.scratch(program_, execution);
    workers_.resize(static_cast<std::size_t>(execution.threads));
    for (Worker& worker : workers_) prepare(worker);
  }

  void compute(std::int64_t row, std::int64_t column, int w) {
    Worker& worker = workers_[static_cast<std::size_t>(w)];
    const bool diagonal = square() && row == column;
    std::fill(worker.scalars.begin(), worker.scalars.end(), 0.0);
    for (std::size_t l = 0; l < leaves(); ++l) {
      std::fill(worker.rows[l].begin(), worker.rows[l].end(), 0.0);
      std::fill(worker.columns[l].begin(), worker.columns[l].end(), 0.0);
      worker.column_pointers[l] = wanted(l) && !diagonal ? worker.columns[l].data() : nullptr;
    }
    const std::size_t bytes = static_cast<std::size_t>(kBlock) * weight_count_ * matrix_.width();
    const Gradient gradient{weight_count_,
                            row_weights_.bytes_at(static_cast<std::size_t>(row) * bytes),
                            column_weights_.bytes_at(static_cast<std::size_t>(column) * bytes),
                            worker.scalars.data(),
                            worker.scalars.data() + 1,
                            worker.scalars.data() + 1 + described_.constants.size(),
                            worker.scale_pointers.data(),
                            worker.row_pointers.data(),
                            worker.column_pointers.data(),
                            diagonal ? 0.5 : 1.0};
    matrix_.functions().gradient(matrix_.tile(program_, row, column, worker.paths), gradient,
                                 scratches_[static_cast<std::size_t>(w)].template as<void>());
  }

  // Scalar sums go to the row's block, so that the order of additions is as fixed as that of the panels.
  void commit(std::int64_t row, std::int64_t column, int w) {
    const Worker& worker = workers_[static_cast<std::size_t>(w)];
    add(worker.scalars, scalars_, row);
    for (std::size_t l = 0; l < leaves(); ++l) {
      if (!wanted(l)) continue;
      add(worker.rows[l], row_panels_[l], row);
      if (square() && row == column) continue;
      add(worker.columns[l], square() ? row_panels_[l] : column_panels_[l], column);
    }
  }

  GradientSums finish() {
    std::vector<double> totals(scalar_count_);
    for (std::size_t block = 0; block < blocks(*matrix_.rows_); ++block)
      for (std::size_t i = 0; i < scalar_count_; ++i) totals[i] += scalars_[block * scalar_count_ + i];
    GradientSums result;
    result.root = totals[0];
    auto at = totals.cbegin() + 1;
    auto take = [&](std::size_t count) {
      std::vector<double> part(at, at + static_cast<std::ptrdiff_t>(count));
      for (double& x : part) x *= described_.scale;
      at += static_cast<std::ptrdiff_t>(count);
      return part;
    };
    result.constants = take(described_.constants.size());
    result.shapes = take(leaves());
    for (std::size_t l = 0; l < leaves(); ++l) {
      result.scales.push_back(take(scale_count(l)));
      unpack(l, row_panels_[l], *matrix_.rows_, row_features_[l]);
      unpack(l, column_panels_[l], matrix_.columns(), column_features_[l]);
    }
    return result;
  }

 private:
  struct Worker {
    std::vector<double> scalars;
    std::vector<std::vector<double>> rows, columns;  // by leaf: panels of the gradient in psi
    std::vector<double*> scale_pointers, row_pointers, column_pointers;
    std::vector<Path> paths;
  };

  bool square() const { return matrix_.square(); }
  std::size_t leaves() const { return described_.leaves.size(); }
  bool wanted(std::size_t l) const { return row_features_[l] != nullptr; }
  std::size_t panel(std::size_t l) const { return static_cast<std::size_t>(kBlock) * described_.leaves[l].features; }
  std::size_t scale_count(std::size_t l) const {
    return described_.leaves[l].shared_scale ? 1 : static_cast<std::size_t>(described_.leaves[l].features);
  }
  static std::size_t blocks(const Points& points) { return static_cast<std::size_t>(points.blocks()); }

  void prepare(Worker& worker) const {
    worker.scalars.resize(scalar_count_);
    worker.paths.resize(leaves());
    worker.column_pointers.resize(leaves());
    for (std::size_t l = 0; l < leaves(); ++l) {
      worker.rows.emplace_back(wanted(l) ? panel(l) : 0);
      worker.columns.emplace_back(wanted(l) ? panel(l) : 0);
      worker.scale_pointers.push_back(worker.scalars.data() + scales_at_[l]);
      worker.row_pointers.push_back(wanted(l) ? worker.rows[l].data() : nullptr);
    }
  }

  Memory weights(const Points& points, const U* first, const U* second, int count) const {
    Memory packed = Memory::zeroed(blocks(points) * kBlock * weight_count_ * matrix_.width());
    const Window all(points);
    auto pack = [&](auto* to) {
      pack_panel(Columns<const U>{first, count, count, 1}, all, 0, weight_count_, to);
      if (second) pack_panel(Columns<const U>{second, count, count, 1}, all, count, weight_count_, to);
    };
    matrix_.single_ ? pack(packed.as<float>()) : pack(packed.as<double>());
    return packed;
  }

  void add(const std::vector<double>& part, std::vector<double>& sums, std::int64_t block) const {
    matrix_.target_.double_.accumulate(part.data(), part.size(), sums.data() + static_cast<std::size_t>(block) * part.size());
  }

  void unpack(std::size_t l, const std::vector<double>& panels, const Points& points, double* out) const {
    if (!out) return;
    const int f = described_.leaves[l].features;
    const double factor = described_.packing[l].factor * described_.scale;
    const Window all(points);
    for (std::int64_t strip = 0; strip < all.blocks() * kStrips; ++strip)
      for_strip(all, strip, [&](std::int64_t point, int lane) {
        for (int k = 0; k < f; ++k) out[point * f + k] += panels[static_cast<std::size_t>((strip * f + k) * kStrip + lane)] * factor;
      });
  }

  const KernelMatrix& matrix_;
  KernelProgram described_;
  const std::vector<double*>&row_features_, &column_features_;
  Program program_;
  int weight_count_;
  Memory row_weights_, column_weights_;
  std::size_t scalar_count_;
  std::vector<std::size_t> scales_at_;
  std::vector<double> scalars_;                                  // by row block
  std::vector<std::vector<double>> row_panels_, column_panels_;  // by leaf
  std::vector<Memory> scratches_;
  std::vector<Worker> workers_;
};

template <class U>
GradientSums KernelMatrix::gradient(const U* left, const U* right, int count, const std::vector<double*>& row_features,
                                    const std::vector<double*>& column_features, const Execution& execution) const {
  const Execution sized = this->sized(execution, rows_->count() * columns().count());
  GradientPass<U> pass(*this, left, right, count, row_features, column_features, sized);
  for (const BlockPairs* pairs : {&live_.own(), &live_.rest()})
    for_each_pair(
        *pairs, sized,
        [&](std::int64_t row, std::int64_t column, int worker) { pass.compute(row, column, worker); },
        [&](std::int64_t row, std::int64_t column, int worker) { pass.commit(row, column, worker); });
  return pass.finish();
}

template GradientSums KernelMatrix::gradient(const float*, const float*, int, const std::vector<double*>&,
                                             const std::vector<double*>&, const Execution&) const;
template GradientSums KernelMatrix::gradient(const double*, const double*, int, const std::vector<double*>&,
                                             const std::vector<double*>&, const Execution&) const;

}  // namespace halfgp
