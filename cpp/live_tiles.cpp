#include "live_tiles.hpp"

#include <algorithm>
#include <numeric>

namespace halfgp {
namespace {

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

LiveTiles::LiveTiles(const Support& support, const Points& rows, const Points& columns, bool symmetric, const Execution& execution)
    : live_(rows.blocks(), columns.blocks(), symmetric), cut_(rows.blocks(), columns.blocks(), symmetric) {
  std::vector<double> entries(static_cast<std::size_t>(live_.phases()));
  for_each_task(live_.phases(), execution, [&](std::int64_t phase, int, const Check&) {
    live_.for_phase(phase, [&](std::int64_t row, std::int64_t column) {
      if (support.blocks_apart(row, column)) return;
      Spans found;
      if (!support.all_kept(row, column)) found = spans(support, rows, columns, row, column);
      live_.insert(row, column);
      if (!is_whole(found, strips_of(rows, row), strips_of(columns, column))) cut_.insert(row, column);
      const double both = symmetric && row != column ? 2.0 : 1.0;
      entries[static_cast<std::size_t>(phase)] += both * entries_of(found, rows, columns, {row, column});
    });
  });
  count_ = live_.count();
  entries_ = std::accumulate(entries.begin(), entries.end(), 0.0);
}

}  // namespace halfgp
