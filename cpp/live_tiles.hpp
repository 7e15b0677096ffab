// Which tiles of a kernel matrix have entries that are not zero, and which strips of these.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "block_pairs.hpp"
#include "division.hpp"
#include "schedule.hpp"
#include "support.hpp"

namespace halfgp {

// Pairs of blocks, and which of them have strips that are left out.
struct TileSet {
  explicit TileSet(const BlockPairs& empty, bool cuts) : live(empty), cut(cuts ? empty : BlockPairs(0, 0, empty.symmetric())) {}
  bool whole(std::int64_t row, std::int64_t column) const { return cut.phases() == 0 || !cut.contains(row, column); }

  BlockPairs live, cut;
  std::size_t count = 0;
};

class LiveTiles {
 public:
  // All tiles of a grid.
  LiveTiles(std::int64_t rows, std::int64_t columns, bool symmetric);
  // Those that `support` has entries in, or all where there is none, and of them a part: who computes another one comes to
  // parts that fit. Rows and columns of a symmetric grid are the same points. Where these are in as many runs as there are
  // parts, a part has first of all tiles within its own run, as far as its share of the work goes.
  LiveTiles(const Support* support, const Points& rows, const Points& columns, bool symmetric, const Part& part,
            const Execution& execution);

  // Tiles within the part's run of points, and the others.
  const BlockPairs& own() const { return own_.live; }
  const BlockPairs& rest() const { return rest_.live; }
  bool contains(std::int64_t row, std::int64_t column) const { return rest_.live.contains(row, column); }  // no part of several
  bool whole(std::int64_t row, std::int64_t column) const { return set_of(row, column).whole(row, column); }
  // How many there are, and how many come before one of them: first those within, then the others.
  std::size_t count() const { return own_.count + rest_.count; }
  std::size_t rank(std::int64_t row, std::int64_t column) const {
    const TileSet& set = set_of(row, column);
    return set.live.rank(row, column) + (&set == &rest_ ? own_.count : 0);
  }
  // Of all entries of the matrix, how many are looked at, by all parts together.
  double entries() const { return entries_; }

 private:
  const TileSet& set_of(std::int64_t row, std::int64_t column) const {
    return own_.live.covers(row, column) && own_.live.contains(row, column) ? own_ : rest_;
  }

  TileSet own_, rest_;
  double entries_ = 0;
};

// By strip of the columns: the strips of rows from the first to the last that it has entries with.
using Spans = std::array<Span, kStrips>;
Spans spans(const Support& support, const Points& rows, const Points& columns, std::int64_t row, std::int64_t column);

}  // namespace halfgp
