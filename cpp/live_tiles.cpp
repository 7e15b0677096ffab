#include "live_tiles.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

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

// The first of `work` units that falls to this part.
std::int64_t share(std::int64_t work, std::int64_t index, std::int64_t count) {
  return work / count * index + work % count * index / count;
}

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

LiveTiles::LiveTiles(std::int64_t rows, std::int64_t columns, bool symmetric)
    : live_(rows, columns, symmetric), cut_(0, 0, symmetric) {
  for (std::int64_t phase = 0; phase < live_.phases(); ++phase)
    live_.for_phase(phase, [&](std::int64_t row, std::int64_t column) { live_.insert(row, column); });
  count_ = live_.count();
}

template <class Function>
void LiveTiles::for_live(const Support* support, const Points& rows, const Points& columns, std::int64_t phase, Function f) const {
  live_.for_phase(phase, [&](std::int64_t row, std::int64_t column) {
    if (support && support->blocks_apart(row, column)) return;
    Spans found;
    if (support && !support->all_kept(row, column)) found = spans(*support, rows, columns, row, column);
    f(row, column, found);
  });
}

std::vector<std::int64_t> LiveTiles::survey(const Support* support, const Points& rows, const Points& columns,
                                            const Execution& execution) {
  const auto phases = static_cast<std::size_t>(live_.phases());
  std::vector<std::int64_t> before(phases + 1);
  std::vector<double> entries(phases);
  for_each_task(live_.phases(), execution, [&](std::int64_t phase, int, const Check&) {
    for_live(support, rows, columns, phase, [&](std::int64_t row, std::int64_t column, const Spans& found) {
      const double seen = entries_of(found, rows, columns, {row, column});
      before[static_cast<std::size_t>(phase) + 1] += work_of(seen);
      entries[static_cast<std::size_t>(phase)] += times(row, column, live_.symmetric()) * seen;
    });
  });
  std::partial_sum(before.begin(), before.end(), before.begin());
  entries_ = std::accumulate(entries.begin(), entries.end(), 0.0);
  return before;
}

LiveTiles::LiveTiles(const Support* support, const Points& rows, const Points& columns, bool symmetric, const Part& part,
                     const Execution& execution)
    : live_(rows.blocks(), columns.blocks(), symmetric, 0, 0), cut_(0, 0, symmetric) {
  // By work: where the part begins and ends, and, unless it is the whole, where every phase does.
  std::vector<std::int64_t> before;
  std::int64_t from = 0, to = std::numeric_limits<std::int64_t>::max(), first = 0, last = live_.phases();
  if (part.count > 1) {
    before = survey(support, rows, columns, execution);
    from = share(before.back(), part.index, part.count);
    to = share(before.back(), part.index + 1, part.count);
    first = std::upper_bound(before.begin(), before.end() - 1, from) - before.begin() - (before.size() > 1);
    last = std::max<std::int64_t>(first, std::lower_bound(before.begin(), before.end() - 1, to) - before.begin());
  }
  live_ = BlockPairs(rows.blocks(), columns.blocks(), symmetric, first, last);
  cut_ = support ? live_ : cut_;
  std::vector<double> entries(static_cast<std::size_t>(last - first));
  for_each_task(last - first, execution, [&](std::int64_t index, int, const Check&) {
    const std::int64_t phase = first + index;
    std::int64_t done = before.empty() ? 0 : before[static_cast<std::size_t>(phase)];
    for_live(support, rows, columns, phase, [&](std::int64_t row, std::int64_t column, const Spans& found) {
      const double seen = entries_of(found, rows, columns, {row, column});
      const std::int64_t begins = done;
      done += work_of(seen);
      if (begins < from || begins >= to) return;
      live_.insert(row, column);
      if (!is_whole(found, strips_of(rows, row), strips_of(columns, column))) cut_.insert(row, column);
      entries[static_cast<std::size_t>(index)] += times(row, column, symmetric) * seen;
    });
  });
  count_ = live_.count();
  if (before.empty()) entries_ = std::accumulate(entries.begin(), entries.end(), 0.0);
}

}  // namespace halfgp
