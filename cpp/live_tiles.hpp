// Which tiles of a kernel matrix have entries that are not zero, and which strips of these.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "block_pairs.hpp"
#include "schedule.hpp"
#include "support.hpp"

namespace halfgp {

// One of `count` shares of the tiles that take about the same time, each tile in one of them.
struct Part {
  std::int64_t index = 0, count = 1;
};

class LiveTiles {
 public:
  // All tiles of a grid.
  LiveTiles(std::int64_t rows, std::int64_t columns, bool symmetric);
  // Those that `support` has entries in, or all where there is none, and of them a part: who computes another one comes to
  // parts that fit. Rows and columns of a symmetric grid are the same points.
  LiveTiles(const Support* support, const Points& rows, const Points& columns, bool symmetric, const Part& part,
            const Execution& execution);

  const BlockPairs& pairs() const { return live_; }
  bool contains(std::int64_t row, std::int64_t column) const { return live_.contains(row, column); }
  bool whole(std::int64_t row, std::int64_t column) const { return cut_.phases() == 0 || !cut_.contains(row, column); }
  std::size_t count() const { return count_; }
  // Of all entries of the matrix, how many are looked at, by all parts together.
  double entries() const { return entries_; }

 private:
  // Calls f(row, column, spans) for every tile of a phase that has entries.
  template <class Function>
  void for_live(const Support* support, const Points& rows, const Points& columns, std::int64_t phase, Function f) const;
  // How much work comes before each phase, and in all, with all of their entries counted.
  std::vector<std::int64_t> survey(const Support* support, const Points& rows, const Points& columns, const Execution& execution);

  BlockPairs live_, cut_;
  std::size_t count_ = 0;
  double entries_ = 0;
};

// By strip of the columns: the strips of rows from the first to the last that it has entries with.
using Spans = std::array<Span, kStrips>;
Spans spans(const Support& support, const Points& rows, const Points& columns, std::int64_t row, std::int64_t column);

}  // namespace halfgp
