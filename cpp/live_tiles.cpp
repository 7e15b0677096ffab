#include "live_tiles.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace halfgp {
namespace {

constexpr std::int64_t kAddingUp = kBlock * 8;  // entries that take as long as the sums of a tile

int strips_of(const Points& points, std::int64_t block) { return (points.live(block) + kStrip - 1) / kStrip; }

bool is_whole(const Spans& spans, int row_strips, int column_strips) {
  return std::all_of(spans.begin(), spans.begin() + column_strips,
                     [&](const Span& span) { return span.first == 0 && span.last >= row_strips; });
}

double entries_of(const Spans& spans, const Points& rows, const Points& columns, const BlockPair& at) {
  const int row_count = rows.live(at.row), column_count = columns.live(at.column);
  double total = 0;
  for (int s = 0; s < strips_of(columns, at.column); ++s) {
    const Span span = spans[static_cast<std::size_t>(s)];
    const int height = std::min(span.last * kStrip, row_count) - span.first * kStrip;
    total += static_cast<double>(std::max(0, height)) * std::min(kStrip, column_count - s * kStrip);
  }
  return total;
}

// A product looks at a tile once for both blocks, and adds up what it gave.
std::int64_t work_of(double entries) { return static_cast<std::int64_t>(entries) + kAddingUp; }
double times(std::int64_t row, std::int64_t column, bool symmetric) { return symmetric && row != column ? 2.0 : 1.0; }

}  // namespace

Spans spans(const Support& support, const Points& rows, const Points& columns, std::int64_t row, std::int64_t column) {
  Spans found;
  const int row_strips = strips_of(rows, row), column_strips = strips_of(columns, column);
  for (int c = 0; c < column_strips; ++c) {
    auto apart = [&](int r) { return support.strips_apart(row * kStrips + r, column * kStrips + c); };
    int first = 0, last = row_strips;
    while (first < last && apart(first)) ++first;
    while (first < last && apart(last - 1)) --last;
    found[static_cast<std::size_t>(c)] = {first, last};
  }
  return found;
}

namespace {

// What there is to be found out about tiles.
struct Sight {
  const Support* support;
  const Points& rows;
  const Points& columns;

  bool between(const BlockPair& at) const { return rows.runs() == 1 || rows.run_of(at.row) != rows.run_of(at.column); }

  // Calls f(at, whole, entries) for every tile of a phase of a grid that has entries, whole if no strip is left out.
  template <class Function>
  void for_live(const BlockPairs& grid, std::int64_t phase, Function f) const {
    grid.for_phase(phase, [&](std::int64_t row, std::int64_t column) {
      if (support && support->blocks_apart(row, column)) return;
      Spans found;
      if (support && !support->all_kept(row, column)) found = spans(*support, rows, columns, row, column);
      const BlockPair at{row, column};
      f(at, is_whole(found, strips_of(rows, row), strips_of(columns, column)), entries_of(found, rows, columns, at));
    });
  }

  // Puts the tiles into a set for which wanted(phase) says so, a function of each one and of its entries, in their order.
  template <class Wanted>
  void choose(TileSet& set, Wanted wanted, const Execution& execution) const {
    const BlockPairs& grid = set.live;
    for_each_task(grid.last_phase() - grid.first_phase(), execution, [&](std::int64_t index, int, const Check&) {
      auto is_wanted = wanted(grid.first_phase() + index);
      for_live(grid, grid.first_phase() + index, [&](const BlockPair& at, bool whole, double entries) {
        if (!is_wanted(at, entries)) return;
        set.live.insert(at.row, at.column);
        if (!whole) set.cut.insert(at.row, at.column);
      });
    });
    set.count = set.live.count();
  }
};

}  // namespace

LiveTiles::LiveTiles(std::int64_t rows, std::int64_t columns, bool symmetric)
    : own_(BlockPairs(0, 0, symmetric), false), rest_(BlockPairs(rows, columns, symmetric), false) {
  BlockPairs& all = rest_.live;
  for (std::int64_t phase = 0; phase < all.phases(); ++phase)
    all.for_phase(phase, [&](std::int64_t row, std::int64_t column) { all.insert(row, column); });
  rest_.count = all.count();
}

LiveTiles::LiveTiles(const Support* support, const Points& rows, const Points& columns, bool symmetric, const Part& part,
                     const Execution& execution)
    : LiveTiles(0, 0, symmetric) {
  const Sight sight{support, rows, columns};
  const std::int64_t phases = BlockPairs(rows.blocks(), columns.blocks(), symmetric, 0, 0).phases();
  auto window = [&](std::int64_t first, std::int64_t last) {
    return TileSet(BlockPairs(rows.blocks(), columns.blocks(), symmetric, first, last), support != nullptr);
  };
  std::vector<double> seen(static_cast<std::size_t>(phases));
  auto see = [&](const BlockPair& at, std::int64_t phase, double entries) {
    seen[static_cast<std::size_t>(phase)] += times(at.row, at.column, symmetric) * entries;
  };
  if (part.count == 1) {
    rest_ = window(0, phases);
    auto every = [&](std::int64_t phase) {
      return [&see, phase](const BlockPair& at, double entries) { return see(at, phase, entries), true; };
    };
    sight.choose(rest_, every, execution);
    entries_ = std::accumulate(seen.begin(), seen.end(), 0.0);
    return;
  }
  Work work(phases);
  for_each_task(phases, execution, [&](std::int64_t phase, int, const Check&) {
    sight.for_live(window(0, 0).live, phase, [&](const BlockPair& at, bool, double entries) {
      (sight.between(at) ? work.between[static_cast<std::size_t>(phase)] : work.within[static_cast<std::size_t>(at.row + at.column)]) +=
          work_of(entries);
      see(at, phase, entries);
    });
  });
  entries_ = std::accumulate(seen.begin(), seen.end(), 0.0);

  const Division division(std::move(work), rows, part);
  if (rows.runs() > 1 && rows.runs() == part.count) {
    const std::int64_t origin = rows.run_begins(part.index), end = rows.run_begins(part.index + 1);
    own_ = TileSet(BlockPairs::within(origin, end), support != nullptr);
    auto kept = [&](std::int64_t phase) {
      return [walk = Division::Walk(division, phase, origin + phase + end)](const BlockPair& at, double entries) mutable {
        return walk.keeps(at.row + at.column, work_of(entries));
      };
    };
    sight.choose(own_, kept, execution);
  }
  rest_ = window(division.first_phase(), division.last_phase());
  auto taken = [&](std::int64_t phase) {
    return [&sight, walk = Division::Walk(division, phase, phase + phases)](const BlockPair& at, double entries) mutable {
      return walk.takes(sight.between(at), at.row + at.column, work_of(entries));
    };
  };
  sight.choose(rest_, taken, execution);
}

}  // namespace halfgp
