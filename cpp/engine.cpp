#include "engine.hpp"

#include <algorithm>
#include <utility>

#include "panels.hpp"

namespace halfgp {
namespace {

std::size_t stored_width(Stored format, std::size_t native) { return format == Stored::native ? native : 2; }

// One row of a tile, its columns put where their points belong.
template <class T, class U>
void unpack_row(const T* from, const Points& points, std::int64_t block, U* to) {
  const std::int64_t slot = block * kBlock, first = points.point(slot);
  const int live = points.live(block);
  if (!points.gathered() && points.point(slot + live - 1) - first == live - 1) {  // ascending without a gap
    for (int j = 0; j < live; ++j) to[first + j] = static_cast<U>(from[j]);
  } else {
    for (int j = 0; j < live; ++j) to[points.point(slot + j)] = static_cast<U>(from[j]);
  }
}

}  // namespace

KernelMatrix::KernelMatrix(const Target& target, bool single, KernelProgram program, std::shared_ptr<const Points> rows,
                           std::shared_ptr<const Points> columns)
    : target_(target), single_(single), program_(std::move(program)), rows_(std::move(rows)), columns_(std::move(columns)),
      support_(program_.view(), program_.near_paths, single, *rows_, this->columns()),
      live_(rows_->blocks(), this->columns().blocks(), square()) {}

void KernelMatrix::choose_tiles(bool skip_zeros, const Part& part, const Execution& execution) {
  skips_ = skip_zeros && has_support(program_.view()) && !support_.everything_kept();
  if (!skips_ && part.count == 1) return;
  const Execution sized = this->sized(execution, rows_->count() * columns().count());
  live_ = LiveTiles(skips_ ? &support_ : nullptr, *rows_, columns(), square(), part, sized);
}

double KernelMatrix::share_skipped() const {
  const double all = static_cast<double>(rows_->count()) * static_cast<double>(columns().count());
  return skips_ && all > 0 ? 1 - live_.entries() / all : 0.0;
}

Tile KernelMatrix::whole_tile(const Program& program, std::int64_t row, std::int64_t column, std::vector<Path>& paths) const {
  const bool near = rows_->near(row) && columns().near(column);
  for (std::size_t l = 0; l < program_.leaves.size(); ++l) paths[l] = near ? program_.near_paths[l] : Path::difference;
  return {&program, rows_->leaf_blocks(row), columns().leaf_blocks(column), paths.data(), near, 0, rows_->live(row), columns().live(column),
          {}, square() && row == column, nullptr, Stored::none};
}

// The same but for strips that are left out, and from memory where entries are held.
Tile KernelMatrix::tile(const Program& program, std::int64_t row, std::int64_t column, std::vector<Path>& paths) const {
  Tile tile = whole_tile(program, row, column, paths);
  if (!live_.whole(row, column)) std::ranges::copy(spans(support_, *rows_, columns(), row, column), tile.spans);
  if (stored_format_ != Stored::none) {
    tile.stored = stored_.bytes_at(live_.rank(row, column) * kBlock * kBlock * stored_width(stored_format_, width()));
    tile.stored_format = stored_format_;
  }
  return tile;
}

double KernelMatrix::dropped(const Execution& execution) const {
  std::vector<double> sums(static_cast<std::size_t>(rows_->blocks()));
  for_each_task(rows_->blocks(), execution, [&](std::int64_t row, int, const Check&) {
    for (std::int64_t column = 0; column < columns().blocks(); ++column)
      sums[static_cast<std::size_t>(row)] += columns().live(column) * support_.dropped(row, column);
  });
  return sums.empty() ? 0.0 : *std::max_element(sums.begin(), sums.end());
}

template <class U>
Memory KernelMatrix::pack(const Columns<const U>& vectors, const Window& window) const {
  const int count = vectors.count;
  Memory panel = Memory::zeroed(static_cast<std::size_t>(window.blocks()) * kBlock * count * width());
  if (single_)
    pack_panel(vectors, window, 0, count, panel.as<float>());
  else
    pack_panel(vectors, window, 0, count, panel.as<double>());
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
void KernelMatrix::product(const Columns<const U>& vectors, const double* diagonal, const Columns<U>& results,
                           const Execution& execution) const {
  const Execution sized = this->sized(execution, rows_->count() * columns().count());
  if (square())
    square_product(live_.rest(), Window(*rows_), vectors, diagonal, results, sized);
  else
    rectangular_product(vectors, results, sized);
}

template <class U>
void KernelMatrix::product_within(const Columns<const U>& vectors, const double* diagonal, const Columns<U>& results,
                                  const Execution& execution) const {
  const BlockPairs& pairs = live_.own();
  const Window window = Window::alone(*rows_, pairs.origin(), pairs.end());
  const std::int64_t points = pairs.phases() * kBlock;
  square_product(pairs, window, vectors, diagonal, results, sized(execution, points * points));
}

// Each pair of blocks is evaluated once and multiplies both blocks' vectors.
template <class U>
void KernelMatrix::square_product(const BlockPairs& pairs, const Window& window, const Columns<const U>& vectors,
                                  const double* diagonal, const Columns<U>& results, const Execution& execution) const {
  const int count = vectors.count;
  const Program program = program_.view();
  const std::size_t panel = static_cast<std::size_t>(kBlock) * count, bytes = panel * width();
  const Memory packed = pack(vectors, window);
  Memory sums = Memory::zeroed(static_cast<std::size_t>(window.blocks()) * panel * sizeof(double));
  auto at = [&](std::int64_t block) { return static_cast<std::size_t>(block - window.first()); };
  std::vector<Memory> scratches = scratch(program, execution), parts;
  for (int worker = 0; worker < execution.threads; ++worker) parts.emplace_back(2 * bytes);
  std::vector<std::vector<Path>> paths(static_cast<std::size_t>(execution.threads), std::vector<Path>(program_.leaves.size()));

  for_each_pair(
      pairs, execution,
      [&](std::int64_t row, std::int64_t column, int worker) {
        const auto w = static_cast<std::size_t>(worker);
        const Product product{count, packed.bytes_at(at(row) * bytes), packed.bytes_at(at(column) * bytes), parts[w].bytes_at(0),
                              row == column ? nullptr : parts[w].bytes_at(bytes)};
        functions().product(tile(program, row, column, paths[w]), product, scratches[w].as<void>());
      },
      [&](std::int64_t row, std::int64_t column, int worker) {
        const Memory& part = parts[static_cast<std::size_t>(worker)];
        functions().accumulate(part.bytes_at(0), panel, sums.as<double>() + at(row) * panel);
        if (row != column) functions().accumulate(part.bytes_at(bytes), panel, sums.as<double>() + at(column) * panel);
      });

  for (std::int64_t strip = 0; strip < window.blocks() * kStrips; ++strip) {
    const double* sum = sums.as<double>() + strip * count * kStrip;
    for_strip(window, strip, [&](std::int64_t row, int lane) {
      for (int c = 0; c < count; ++c) {
        const double own = diagonal ? diagonal[row] * static_cast<double>(vectors.at(row, c)) : 0.0;
        results.at(row, c) = static_cast<U>(sum[c * kStrip + lane] * program_.scale + own);
      }
    });
  }
}

// A row block meets the columns' blocks in their order, whatever other rows there are.
template <class U>
void KernelMatrix::rectangular_product(const Columns<const U>& vectors, const Columns<U>& results,
                                       const Execution& execution) const {
  const int count = vectors.count;
  const Program program = program_.view();
  const std::size_t panel = static_cast<std::size_t>(kBlock) * count, bytes = panel * width();
  const Memory packed = pack(vectors, Window(columns()));
  std::vector<Memory> scratches = scratch(program, execution), parts, sums;
  for (int worker = 0; worker < execution.threads; ++worker) {
    parts.emplace_back(bytes);
    sums.emplace_back(panel * sizeof(double));
  }
  std::vector<std::vector<Path>> paths(static_cast<std::size_t>(execution.threads), std::vector<Path>(program_.leaves.size()));

  for_each_task(rows_->blocks(), execution, [&](std::int64_t row, int worker, const Check& check) {
    const auto w = static_cast<std::size_t>(worker);
    double* sum = sums[w].as<double>();
    std::fill_n(sum, panel, 0.0);
    for (std::int64_t column = 0; column < columns().blocks(); ++column) {
      if (!live_.contains(row, column)) continue;
      check();
      const Product product{count, nullptr, packed.bytes_at(static_cast<std::size_t>(column) * bytes), parts[w].bytes_at(0), nullptr};
      functions().product(tile(program, row, column, paths[w]), product, scratches[w].as<void>());
      functions().accumulate(parts[w].bytes_at(0), panel, sum);
    }
    for (int i = 0; i < rows_->live(row); ++i) {
      const std::int64_t point = rows_->point(row * kBlock + i);
      for (int c = 0; c < count; ++c)
        results.at(point, c) = static_cast<U>(sum[panel_index(i, c, count)] * program_.scale);
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

  for_each_task(rows_->blocks() * column_blocks, sized, [&](std::int64_t index, int worker, const Check&) {
    const auto w = static_cast<std::size_t>(worker);
    const std::int64_t row = index / column_blocks, column = index % column_blocks;
    // Transposed, which changes no entry: a tile holds its rows side by side, and the caller's columns are.
    Tile tile = whole_tile(program, row, column, paths[w]);
    std::swap(tile.rows, tile.columns);
    std::swap(tile.row_count, tile.column_count);
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
  const std::size_t tile_bytes = kBlock * kBlock * stored_width(format, width());
  Memory entries(live_.count() * tile_bytes);
  std::vector<Memory> scratches = scratch(program, sized);
  std::vector<std::vector<Path>> paths(static_cast<std::size_t>(sized.threads), std::vector<Path>(program_.leaves.size()));
  for (const BlockPairs* pairs : {&live_.own(), &live_.rest()})
    for_each_task(pairs->last_phase() - pairs->first_phase(), sized, [&](std::int64_t index, int worker, const Check& check) {
      const auto w = static_cast<std::size_t>(worker);
      pairs->for_phase(pairs->first_phase() + index, [&](std::int64_t row, std::int64_t column) {
        if (!pairs->contains(row, column)) return;
        check();
        functions().store(tile(program, row, column, paths[w]), format, entries.bytes_at(live_.rank(row, column) * tile_bytes),
                          scratches[w].as<void>());
      });
    });
  stored_ = std::move(entries);
  stored_format_ = format;
}

template void KernelMatrix::product(const Columns<const float>&, const double*, const Columns<float>&, const Execution&) const;
template void KernelMatrix::product_within(const Columns<const float>&, const double*, const Columns<float>&, const Execution&) const;
template void KernelMatrix::product(const Columns<const double>&, const double*, const Columns<double>&, const Execution&) const;
template void KernelMatrix::product_within(const Columns<const double>&, const double*, const Columns<double>&, const Execution&) const;
template void KernelMatrix::block(float*, const Execution&) const;
template void KernelMatrix::block(double*, const Execution&) const;

}  // namespace halfgp
