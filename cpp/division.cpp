#include "division.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace halfgp {
namespace {

// Sums of all values before each one, and of all.
std::vector<std::int64_t> sums_before(const std::vector<std::int64_t>& values) {
  std::vector<std::int64_t> before(values.size() + 1);
  std::partial_sum(values.begin(), values.end(), before.begin() + 1);
  return before;
}

}  // namespace

Division::Division(Work work, const Points& points, const Part& part)
    : work_(std::move(work)), within_before_(sums_before(work_.within)), limits_(work_.within.size()) {
  share_out(points, part);
  std::vector<std::int64_t> left(work_.between);
  for (std::int64_t phase = 0; phase < phases(); ++phase)
    left[static_cast<std::size_t>(phase)] += this->left(phase) + this->left(phase + phases());
  left_before_ = sums_before(left);
}

void Division::share_out(const Points& points, const Part& part) {
  const std::int64_t total = std::accumulate(work_.between.begin(), work_.between.end(), within_before_.back());
  for (std::int64_t p = 0; p < part.count; ++p) {
    std::int64_t lacks = share(total, p + 1, part.count) - share(total, p, part.count);
    if (points.runs() == part.count) {
      const std::int64_t first = 2 * points.run_begins(p), last = 2 * points.run_begins(p + 1);  // sums of its blocks
      const std::int64_t kept = std::min(begins(last) - begins(first), lacks);
      std::fill(limits_.begin() + first, limits_.begin() + last, begins(first) + kept);
      lacks -= kept;
    }
    if (p < part.index) from_ += lacks;
    if (p == part.index) to_ = from_ + lacks;
  }
}

// The work within runs, of one row + column, that nobody keeps.
std::int64_t Division::left(std::int64_t sum) const {
  return begins(sum + 1) - std::clamp(limit(sum), begins(sum), begins(sum + 1));
}

std::int64_t Division::first_phase() const {
  return std::upper_bound(left_before_.begin(), left_before_.end() - 1, from_) - left_before_.begin() - (left_before_.size() > 1);
}

std::int64_t Division::last_phase() const {
  return std::max<std::int64_t>(first_phase(), std::lower_bound(left_before_.begin(), left_before_.end() - 1, to_) - left_before_.begin());
}

}  // namespace halfgp
