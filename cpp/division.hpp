// Who of several looks at which tile.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "block_pairs.hpp"
#include "points.hpp"

namespace halfgp {

// One of `count` shares of the tiles that take about the same time, each tile in one of them.
struct Part {
  std::int64_t index = 0, count = 1;
};

// The first of `work` units that falls to a part.
inline std::int64_t share(std::int64_t work, std::int64_t index, std::int64_t count) {
  return work / count * index + work % count * index / count;
}

// What the tiles of a grid take, as it is found phase by phase: of those with both blocks in one run of points by
// row + column, which no two phases and no two runs share, and of those between two runs by phase.
struct Work {
  explicit Work(std::int64_t phases) : within(static_cast<std::size_t>(2 * phases)), between(static_cast<std::size_t>(phases)) {}

  std::vector<std::int64_t> within, between;
};

// Tiles within a run are for the part that holds it, in the order of row + column, up to a fair share of all work. All
// others are left: phase by phase those between two runs, then those within one that are beyond its part's share. They are
// cut where every part has its own. A tile's place in either order is the work that comes before it, and so parts which
// know nothing of each other agree.
class Division {
 public:
  Division(Work work, const Points& points, const Part& part);

  // Goes through the tiles of a phase in their order, of the grid or of one within it.
  class Walk {
   public:
    // `second`: the larger one of the two sums row + column that the phase has.
    Walk(const Division& division, std::int64_t phase, std::int64_t second) : of_(division), phase_(phase), second_(second) {}

    // Whether the part of its run keeps the next tile, one within a run.
    bool keeps(std::int64_t sum, std::int64_t work) { return of_.begins(sum) + meet(sum, work) < of_.limit(sum); }
    // Whether the next tile is for this part, of those that are left.
    bool takes(bool between, std::int64_t sum, std::int64_t work) {
      const std::int64_t start = of_.left_before_[static_cast<std::size_t>(phase_)];
      if (between) {
        const std::int64_t before = between_;
        between_ += work;
        return of_.is_own(start + before);
      }
      const std::int64_t place = of_.begins(sum) + meet(sum, work), first = std::max(of_.begins(sum), of_.limit(sum));
      if (place < of_.limit(sum)) return false;
      const std::int64_t others = of_.work_.between[static_cast<std::size_t>(phase_)] + (sum < second_ ? 0 : of_.left(phase_));
      return of_.is_own(start + others + place - first);
    }

   private:
    // The work of tiles with that sum that come before the next one.
    std::int64_t meet(std::int64_t sum, std::int64_t work) {
      std::int64_t& met = within_[sum >= second_];
      met += work;
      return met - work;
    }

    const Division& of_;
    std::int64_t phase_, second_, between_ = 0, within_[2] = {0, 0};
  };

  // The phases of the grid that hold what this part takes of what is left.
  std::int64_t first_phase() const;
  std::int64_t last_phase() const;

 private:
  std::int64_t phases() const { return static_cast<std::int64_t>(work_.between.size()); }
  std::int64_t begins(std::int64_t sum) const { return within_before_[static_cast<std::size_t>(sum)]; }
  std::int64_t limit(std::int64_t sum) const { return limits_[static_cast<std::size_t>(sum)]; }
  bool is_own(std::int64_t place) const { return place >= from_ && place < to_; }
  std::int64_t left(std::int64_t sum) const;
  void share_out(const Points& points, const Part& part);

  Work work_;
  std::vector<std::int64_t> within_before_;  // by row + column: the work within runs, up to there
  std::vector<std::int64_t> limits_;         // by row + column: up to where it is kept
  std::vector<std::int64_t> left_before_;    // by phase: the work that is left, up to there
  std::int64_t from_ = 0, to_ = 0;           // this part's, of that
};

}  // namespace halfgp
