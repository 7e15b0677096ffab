// A set of pairs of blocks, and the order in which they are met.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace halfgp {

struct BlockPair {
  std::int64_t row, column;
};

// In phase p row r meets column (p - r) mod max(rows, columns), so that in each phase a block takes part once. Of a
// symmetric grid there are only pairs with row <= column. A bit for each pair: 2,000,000 points take 8 MB. The grid may be
// one within a larger one, that of some blocks with themselves: phases are its own then, and blocks are numbered in the other.
class BlockPairs {
 public:
  // Of all phases, or of those from `first` up to `last`: the set then has no pair of any other.
  BlockPairs(std::int64_t rows, std::int64_t columns, bool symmetric) : BlockPairs(rows, columns, symmetric, 0, count_phases(rows, columns)) {}
  BlockPairs(std::int64_t rows, std::int64_t columns, bool symmetric, std::int64_t first, std::int64_t last)
      : rows_(rows), columns_(columns), symmetric_(symmetric), phases_(count_phases(rows, columns)), first_(first), last_(last),
        words_((rows + 63) / 64), bits_(static_cast<std::size_t>((last - first) * words_)) {}
  // Of the blocks from `origin` up to `end` with themselves.
  static BlockPairs within(std::int64_t origin, std::int64_t end) {
    BlockPairs pairs(end - origin, end - origin, true);
    pairs.origin_ = origin;
    return pairs;
  }

  std::int64_t phases() const { return phases_; }
  std::int64_t first_phase() const { return first_; }
  std::int64_t last_phase() const { return last_; }
  bool symmetric() const { return symmetric_; }
  std::int64_t rows() const { return rows_; }
  // The first block of the grid, and what all of its blocks are below.
  std::int64_t origin() const { return origin_; }
  std::int64_t end() const { return origin_ + phases_; }

  // Calls f(row, column) for all pairs of a phase that the grid has, in the set or not. Phases may be looked at, and
  // changed, by different threads.
  template <class Function>
  void for_phase(std::int64_t phase, Function f) const {
    for (std::int64_t row = 0; row < rows_; ++row)
      if (const std::int64_t column = partner(phase, row); column < columns_ && !(symmetric_ && row > column))
        f(row + origin_, column + origin_);
  }

  void insert(std::int64_t row, std::int64_t column) { bits_[word(row, column)] |= std::uint64_t{1} << bit(row); }
  bool contains(std::int64_t row, std::int64_t column) const { return bits_[word(row, column)] >> bit(row) & 1; }
  // Whether the grid has such a pair, in the set or not.
  bool covers(std::int64_t row, std::int64_t column) const {
    return row >= origin_ && row < origin_ + rows_ && column >= origin_ && column < origin_ + columns_;
  }

  // How many pairs of the set come before this one; to be had after `count`.
  std::size_t rank(std::int64_t row, std::int64_t column) const {
    const std::size_t at = word(row, column);
    const std::uint64_t earlier = bits_[at] & ((std::uint64_t{1} << bit(row)) - 1);
    return before_[at] + static_cast<std::size_t>(__builtin_popcountll(earlier));
  }
  // How many pairs there are.
  std::size_t count() {
    std::size_t total = 0;
    before_.clear();
    before_.reserve(bits_.size());
    for (const std::uint64_t bits : bits_) {
      before_.push_back(total);
      total += static_cast<std::size_t>(__builtin_popcountll(bits));
    }
    return total;
  }

  // Goes through the set: kTogether phases at a time, and of these kTogether rows at a time. The blocks that meet then are
  // some fifty, which a processor's own cache holds, where those of a whole phase are all that there are.
  class Cursor {
   public:
    explicit Cursor(const BlockPairs& pairs) : pairs_(pairs), until_(std::min(pairs.first_ + kTogether, pairs.last_)), phase_(pairs.first_) {
      if (phase_ < until_) left_ = rows_of_phase();
    }
    // Whether there was another one.
    bool next(BlockPair& pair) {
      while (!left_)
        if (!advance()) return false;
      pair.row = rows_ + __builtin_ctzll(left_);
      pair.column = pairs_.partner(phase_, pair.row) + pairs_.origin_;
      pair.row += pairs_.origin_;
      left_ &= left_ - 1;
      return true;
    }

   private:
    // To the next phase, to the next rows, or to the next phases.
    bool advance() {
      if (phase_ >= until_) return false;
      if (++phase_ == until_) {
        rows_ += kTogether;
        if (rows_ >= pairs_.rows_) {
          rows_ = 0, from_ = until_, until_ = std::min(until_ + kTogether, pairs_.last_);
          if (from_ == until_) return false;
        }
        phase_ = from_;
      }
      left_ = rows_of_phase();
      return true;
    }
    std::uint64_t rows_of_phase() const {
      const std::size_t word = static_cast<std::size_t>((phase_ - pairs_.first_) * pairs_.words_ + rows_ / 64);
      return pairs_.bits_[word] >> rows_ % 64 & ((std::uint64_t{1} << kTogether) - 1);
    }

    static constexpr std::int64_t kTogether = 16;
    const BlockPairs& pairs_;
    std::int64_t from_ = pairs_.first_, until_, phase_, rows_ = 0;
    std::uint64_t left_ = 0;
  };

 private:
  static std::int64_t count_phases(std::int64_t rows, std::int64_t columns) { return rows && columns ? std::max(rows, columns) : 0; }
  std::int64_t partner(std::int64_t phase, std::int64_t row) const { return phase >= row ? phase - row : phase - row + phases_; }
  int bit(std::int64_t row) const { return static_cast<int>((row - origin_) % 64); }
  std::size_t word(std::int64_t row, std::int64_t column) const {
    const std::int64_t sum = row + column - 2 * origin_, phase = sum < phases_ ? sum : sum - phases_;
    return static_cast<std::size_t>((phase - first_) * words_ + (row - origin_) / 64);
  }

  std::int64_t rows_, columns_;
  bool symmetric_;
  std::int64_t phases_, first_, last_, words_, origin_ = 0;
  std::vector<std::uint64_t> bits_;    // by phase, words of rows
  std::vector<std::size_t> before_;    // by word
};

}  // namespace halfgp
