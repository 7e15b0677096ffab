#include "engine.hpp"

#include <algorithm>
#include <utility>

namespace halfgp {
namespace {

std::size_t stored_width(Stored format, std::size_t native) { return format == Stored::native ? native : 2; }

// Vectors as the tiles want them: panels in the points' order, zero in the padding.
template <class T, class U>
void pack_panel(const U* vectors, int count, const Points& points, int at, int columns, T* panel) {
  for (std::int64_t slot = 0; slot < points.blocks() * kBlock; ++slot) {
    const std::int64_t point = points.point(slot);
    if (point < 0) continue;
    for (int c = 0; c < count; ++c) panel[panel_index(slot, at + c, columns)] = static_cast<T>(vectors[point * count + c]);
  }
}

// One row of a tile, its columns put where their points belong.
template <class T, class U>
void unpack_row(const T* from, const Points& points, std::int64_t block, U* to) {
  const std::int64_t slot = block * kBlock, first = points.point(slot);
  const int live = points.live(block);
  if (points.point(slot + live - 1) - first == live - 1) {  // in their original order, as they mostly are
    for (int j = 0; j < live; ++j) to[first + j] = static_cast<U>(from[j]);
  } else {
    for (int j = 0; j < live; ++j) to[points.point(slot + j)] = static_cast<U>(from[j]);
  }
}

}  // namespace

KernelMatrix::KernelMatrix(const Target& target, bool single, KernelProgram program, std::shared_ptr<const Points> rows,
                           std::shared_ptr<const Points> columns)
    : target_(target), single_(single), program_(std::move(program)), rows_(std::move(rows)), columns_(std::move(columns)) {}

std::size_t KernelMatrix::tile_index(std::int64_t row, std::int64_t column) const {
  const auto r = static_cast<std::size_t>(row), c = static_cast<std::size_t>(column);
  return square() ? c * (c + 1) / 2 + r : r * static_cast<std::size_t>(columns().blocks()) + c;
}

Tile KernelMatrix::tile(const Program& program, std::int64_t row, std::int64_t column, std::vector<Path>& paths) const {
  const bool near = rows_->near(row) && columns().near(column);
  for (std::size_t l = 0; l < program_.leaves.size(); ++l) paths[l] = near ? program_.near_paths[l] : Path::difference;
  const void* stored = nullptr;
  if (stored_format_ != Stored::none)
    stored = stored_.bytes_at(tile_index(row, column) * kBlock * kBlock * stored_width(stored_format_, width()));
  return {&program, rows_->leaf_blocks(row), columns().leaf_blocks(column), paths.data(), rows_->live(row), columns().live(column),
          square() && row == column, stored, stored_format_};
}

Memory KernelMatrix::pack(const void* vectors, bool vectors_single, int count, const Points& points) const {
  Memory panel = Memory::zeroed(static_cast<std::size_t>(points.blocks()) * kBlock * count * width());
  const auto* f = static_cast<const float*>(vectors);
  const auto* d = static_cast<const double*>(vectors);
  if (single_)
    vectors_single ? pack_panel(f, count, points, 0, count, panel.as<float>()) : pack_panel(d, count, points, 0, count, panel.as<float>());
  else
    vectors_single ? pack_panel(f, count, points, 0, count, panel.as<double>()) : pack_panel(d, count, points, 0, count, panel.as<double>());
  return panel;
}

std::vector<Memory> KernelMatrix::scratch(const Program& program, const Execution& execution) const {
  std::vector<Memory> memory;
  for (int worker = 0; worker < execution.threads; ++worker) memory.emplace_back(functions().scratch_bytes(program));
  return memory;
}

// No more threads than the work can feed: making one costs as much as a few hundred thousand entries.
Execution KernelMatrix::sized(const Execution& execution, std::int64_t work) const {
  constexpr std::int64_t entries_per_thread = 1 << 18;
  Execution sized = execution;
  sized.threads = static_cast<int>(std::clamp<std::int64_t>(work / entries_per_thread, 1, std::max(1, execution.threads)));
  return sized;
}

template <class U>
void KernelMatrix::product(const U* vectors, int count, const double* diagonal, U* results, const Execution& execution) const {
  const Execution sized = this->sized(execution, rows_->count() * columns().count());
  if (square())
    square_product(vectors, count, diagonal, results, sized);
  else
    rectangular_product(vectors, count, results, sized);
}

// Each pair of blocks is evaluated once and multiplies both blocks' vectors.
template <class U>
void KernelMatrix::square_product(const U* vectors, int count, const double* diagonal, U* results,
                                  const Execution& execution) const {
  const Program program = program_.view();
  const std::size_t panel = static_cast<std::size_t>(kBlock) * count, bytes = panel * width();
  const Memory packed = pack(vectors, sizeof(U) == 4, count, *rows_);
  Memory sums = Memory::zeroed(static_cast<std::size_t>(rows_->blocks()) * panel * sizeof(double));
  std::vector<Memory> scratches = scratch(program, execution), parts;
  for (int worker = 0; worker < execution.threads; ++worker) parts.emplace_back(2 * bytes);
  std::vector<std::vector<Path>> paths(static_cast<std::size_t>(execution.threads), std::vector<Path>(program_.leaves.size()));

  for_each_pair(
      rows_->blocks(), rows_->blocks(), true, execution,
      [&](std::int64_t row, std::int64_t column, int worker) {
        const auto w = static_cast<std::size_t>(worker);
        const Product product{count, packed.bytes_at(static_cast<std::size_t>(row) * bytes),
                              packed.bytes_at(static_cast<std::size_t>(column) * bytes), parts[w].bytes_at(0),
                              row == column ? nullptr : parts[w].bytes_at(bytes)};
        functions().product(tile(program, row, column, paths[w]), product, scratches[w].as<void>());
      },
      [&](std::int64_t row, std::int64_t column, int worker) {
        const Memory& part = parts[static_cast<std::size_t>(worker)];
        functions().accumulate(part.bytes_at(0), panel, sums.as<double>() + static_cast<std::size_t>(row) * panel);
        if (row != column)
          functions().accumulate(part.bytes_at(bytes), panel, sums.as<double>() + static_cast<std::size_t>(column) * panel);
      });

  for (std::int64_t slot = 0; slot < rows_->blocks() * kBlock; ++slot) {
    const std::int64_t point = rows_->point(slot);
    if (point < 0) continue;
    for (int c = 0; c < count; ++c) {
      const double k_v = sums.as<double>()[panel_index(slot, c, count)] * program_.scale;
      const std::size_t at = static_cast<std::size_t>(point) * count + c;
      results[at] = static_cast<U>(k_v + diagonal[point] * static_cast<double>(vectors[at]));
    }
  }
}

// A row block meets the columns' blocks in their order, whatever other rows there are.
template <class U>
void KernelMatrix::rectangular_product(const U* vectors, int count, U* results, const Execution& execution) const {
  const Program program = program_.view();
  const std::size_t panel = static_cast<std::size_t>(kBlock) * count, bytes = panel * width();
  const Memory packed = pack(vectors, sizeof(U) == 4, count, columns());
  std::vector<Memory> scratches = scratch(program, execution), parts, sums;
  for (int worker = 0; worker < execution.threads; ++worker) {
    parts.emplace_back(bytes);
    sums.emplace_back(panel * sizeof(double));
  }
  std::vector<std::vector<Path>> paths(static_cast<std::size_t>(execution.threads), std::vector<Path>(program_.leaves.size()));

  for_each_task(rows_->blocks(), execution, [&](std::int64_t row, int worker) {
    const auto w = static_cast<std::size_t>(worker);
    double* sum = sums[w].as<double>();
    std::fill_n(sum, panel, 0.0);
    for (std::int64_t column = 0; column < columns().blocks(); ++column) {
      const Product product{count, nullptr, packed.bytes_at(static_cast<std::size_t>(column) * bytes), parts[w].bytes_at(0), nullptr};
      functions().product(tile(program, row, column, paths[w]), product, scratches[w].as<void>());
      functions().accumulate(parts[w].bytes_at(0), panel, sum);
    }
    for (int i = 0; i < rows_->live(row); ++i) {
      const std::int64_t point = rows_->point(row * kBlock + i);
      for (int c = 0; c < count; ++c)
        results[static_cast<std::size_t>(point) * count + c] = static_cast<U>(sum[panel_index(i, c, count)] * program_.scale);
    }
  });
}

template <class U>
void KernelMatrix::block(U* entries, const Execution& execution) const {
  const Execution sized = this->sized(execution, rows_->count() * columns().count());
  const Program program = program_.view();
  std::vector<Memory> scratches = scratch(program, sized), parts;
  for (int worker = 0; worker < sized.threads; ++worker) parts.emplace_back(kBlock * kBlock * width());
  std::vector<std::vector<Path>> paths(static_cast<std::size_t>(sized.threads), std::vector<Path>(program_.leaves.size()));
  const std::int64_t column_blocks = columns().blocks();

  for_each_task(rows_->blocks() * column_blocks, sized, [&](std::int64_t index, int worker) {
    const auto w = static_cast<std::size_t>(worker);
    const std::int64_t row = index / column_blocks, column = index % column_blocks;
    // Transposed, which changes no entry: a tile holds its rows side by side, and the caller's columns are.
    Tile tile = this->tile(program, row, column, paths[w]);
    std::swap(tile.rows, tile.columns);
    std::swap(tile.row_count, tile.column_count);
    tile.stored = nullptr;  // tiles below the diagonal are not held; evaluating one is as fast
    functions().evaluate(tile, parts[w].bytes_at(0), scratches[w].as<void>());
    for (int i = 0; i < rows_->live(row); ++i) {
      U* out = entries + rows_->point(row * kBlock + i) * columns().count();
      const std::size_t at = static_cast<std::size_t>(i) * kBlock;
      if (single_)
        unpack_row(parts[w].as<float>() + at, columns(), column, out);
      else
        unpack_row(parts[w].as<double>() + at, columns(), column, out);
    }
  });
}

void KernelMatrix::store(Stored format, const Execution& execution) {
  const Execution sized = this->sized(execution, rows_->count() * columns().count());
  const Program program = program_.view();
  const std::int64_t row_blocks = rows_->blocks(), column_blocks = columns().blocks();
  const std::size_t tiles = square() ? static_cast<std::size_t>(row_blocks * (row_blocks + 1) / 2)
                                     : static_cast<std::size_t>(row_blocks * column_blocks);
  const std::size_t tile_bytes = kBlock * kBlock * stored_width(format, width());
  Memory entries(tiles * tile_bytes);
  std::vector<Memory> scratches = scratch(program, sized);
  std::vector<std::vector<Path>> paths(static_cast<std::size_t>(sized.threads), std::vector<Path>(program_.leaves.size()));
  for_each_task(row_blocks * column_blocks, sized, [&](std::int64_t index, int worker) {
    const auto w = static_cast<std::size_t>(worker);
    const std::int64_t row = index / column_blocks, column = index % column_blocks;
    if (square() && row > column) return;
    functions().store(tile(program, row, column, paths[w]), format, entries.bytes_at(tile_index(row, column) * tile_bytes),
                      scratches[w].as<void>());
  });
  stored_ = std::move(entries);
  stored_format_ = format;
}

template <class U>
GradientSums KernelMatrix::gradient(const U* left, const U* right, int count, const std::vector<double*>& row_features,
                                    const std::vector<double*>& column_features, const Execution& execution) const {
  const Execution sized = this->sized(execution, rows_->count() * columns().count());
  KernelProgram described = program_;
  const std::size_t leaf_count = described.leaves.size();
  for (std::size_t l = 0; l < leaf_count; ++l) described.leaves[l].wants_features = row_features[l] != nullptr;
  const Program program = described.view();

  // Weights: W_ij = left_i.right_j, and both ways round where a pair of blocks is met only once.
  const int weights = square() ? 2 * count : count;
  auto packed_weights = [&](const Points& points, const U* first, const U* second) {
    Memory panel = Memory::zeroed(static_cast<std::size_t>(points.blocks()) * kBlock * weights * width());
    auto pack = [&](auto* to) {
      pack_panel(first, count, points, 0, weights, to);
      if (second) pack_panel(second, count, points, count, weights, to);
    };
    single_ ? pack(panel.as<float>()) : pack(panel.as<double>());
    return panel;
  };
  const Memory row_weights = packed_weights(*rows_, left, square() ? right : nullptr);
  const Memory column_weights = packed_weights(columns(), right, square() ? left : nullptr);

  // Scalar sums by row block, so that the order of additions is fixed: root, constants, shapes, scales of each leaf.
  std::vector<std::size_t> scale_at(leaf_count);
  std::size_t scalars = 1 + described.constants.size() + leaf_count;
  for (std::size_t l = 0; l < leaf_count; ++l) {
    scale_at[l] = scalars;
    scalars += described.leaves[l].shared_scale ? 1 : static_cast<std::size_t>(described.leaves[l].features);
  }
  std::vector<double> sums(static_cast<std::size_t>(rows_->blocks()) * scalars);
  std::vector<std::vector<double>> row_panels(leaf_count), column_panels(leaf_count);
  for (std::size_t l = 0; l < leaf_count; ++l) {
    const auto f = static_cast<std::size_t>(described.leaves[l].features);
    if (row_features[l]) row_panels[l].resize(static_cast<std::size_t>(rows_->blocks()) * kBlock * f);
    if (column_features[l]) column_panels[l].resize(static_cast<std::size_t>(columns().blocks()) * kBlock * f);
  }

  struct Worker {
    std::vector<double> scalars;
    std::vector<std::vector<double>> rows, columns;
    std::vector<double*> scales, row_pointers, column_pointers;
    std::vector<Path> paths;
  };
  std::vector<Worker> workers(static_cast<std::size_t>(sized.threads));
  for (Worker& worker : workers) {
    worker.scalars.resize(scalars);
    worker.paths.resize(leaf_count);
    for (std::size_t l = 0; l < leaf_count; ++l) {
      const std::size_t panel = static_cast<std::size_t>(kBlock) * described.leaves[l].features;
      worker.rows.emplace_back(row_features[l] ? panel : 0);
      worker.columns.emplace_back(row_features[l] ? panel : 0);
      worker.scales.push_back(worker.scalars.data() + scale_at[l]);
    }
    worker.row_pointers.resize(leaf_count);
    worker.column_pointers.resize(leaf_count);
  }
  std::vector<Memory> scratches = scratch(program, sized);
  const auto accumulate = target_.double_.accumulate;
  const std::size_t weight_bytes = static_cast<std::size_t>(kBlock) * weights * width();

  for_each_pair(
      rows_->blocks(), columns().blocks(), square(), sized,
      [&](std::int64_t row, std::int64_t column, int w) {
        Worker& worker = workers[static_cast<std::size_t>(w)];
        std::fill(worker.scalars.begin(), worker.scalars.end(), 0.0);
        const bool diagonal = square() && row == column;
        for (std::size_t l = 0; l < leaf_count; ++l) {
          std::fill(worker.rows[l].begin(), worker.rows[l].end(), 0.0);
          std::fill(worker.columns[l].begin(), worker.columns[l].end(), 0.0);
          worker.row_pointers[l] = row_features[l] ? worker.rows[l].data() : nullptr;
          worker.column_pointers[l] = row_features[l] && !diagonal ? worker.columns[l].data() : nullptr;
        }
        const Gradient gradient{weights,
                                row_weights.bytes_at(static_cast<std::size_t>(row) * weight_bytes),
                                column_weights.bytes_at(static_cast<std::size_t>(column) * weight_bytes),
                                worker.scalars.data(),
                                worker.scalars.data() + 1,
                                worker.scalars.data() + 1 + described.constants.size(),
                                worker.scales.data(),
                                worker.row_pointers.data(),
                                worker.column_pointers.data(),
                                diagonal ? 0.5 : 1.0};
        functions().gradient(tile(program, row, column, worker.paths), gradient,
                             scratches[static_cast<std::size_t>(w)].as<void>());
      },
      [&](std::int64_t row, std::int64_t column, int w) {
        const Worker& worker = workers[static_cast<std::size_t>(w)];
        accumulate(worker.scalars.data(), scalars, sums.data() + static_cast<std::size_t>(row) * scalars);
        for (std::size_t l = 0; l < leaf_count; ++l) {
          if (!row_features[l]) continue;
          const std::size_t panel = worker.rows[l].size();
          accumulate(worker.rows[l].data(), panel, row_panels[l].data() + static_cast<std::size_t>(row) * panel);
          if (square() && row == column) continue;
          std::vector<double>& others = square() ? row_panels[l] : column_panels[l];
          accumulate(worker.columns[l].data(), panel, others.data() + static_cast<std::size_t>(column) * panel);
        }
      });

  auto unpack = [&](std::size_t l, const std::vector<double>& panel, const Points& points, double* out) {
    const int f = described.leaves[l].features;
    for (std::int64_t slot = 0; slot < points.blocks() * kBlock; ++slot)
      if (const std::int64_t point = points.point(slot); point >= 0)
        for (int k = 0; k < f; ++k)
          out[point * f + k] += panel[panel_index(slot, k, f)] * described.packing[l].factor * described.scale;
  };
  std::vector<double> totals(scalars);
  for (std::int64_t block = 0; block < rows_->blocks(); ++block)
    accumulate(sums.data() + static_cast<std::size_t>(block) * scalars, scalars, totals.data());
  GradientSums result;
  auto at = totals.begin();
  result.root = *at++;
  auto take = [&](std::size_t n) {
    std::vector<double> part(at, at + static_cast<std::ptrdiff_t>(n));
    for (double& x : part) x *= described.scale;
    at += static_cast<std::ptrdiff_t>(n);
    return part;
  };
  result.constants = take(described.constants.size());
  result.shapes = take(leaf_count);
  for (std::size_t l = 0; l < leaf_count; ++l) {
    result.scales.push_back(take(described.leaves[l].shared_scale ? 1 : static_cast<std::size_t>(described.leaves[l].features)));
    if (row_features[l]) unpack(l, row_panels[l], *rows_, row_features[l]);
    if (column_features[l]) unpack(l, column_panels[l], columns(), column_features[l]);
  }
  return result;
}

template void KernelMatrix::product(const float*, int, const double*, float*, const Execution&) const;
template void KernelMatrix::product(const double*, int, const double*, double*, const Execution&) const;
template void KernelMatrix::block(float*, const Execution&) const;
template void KernelMatrix::block(double*, const Execution&) const;
template GradientSums KernelMatrix::gradient(const float*, const float*, int, const std::vector<double*>&,
                                             const std::vector<double*>&, const Execution&) const;
template GradientSums KernelMatrix::gradient(const double*, const double*, int, const std::vector<double*>&,
                                             const std::vector<double*>&, const Execution&) const;

}  // namespace halfgp
