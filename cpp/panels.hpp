// Between arrays of vectors, as the caller has laid them out, and the panels of the tiles.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "points.hpp"

namespace halfgp {

// `count` vectors of points, row after row, column after column, or a part of such.
template <class U>
struct Columns {
  U* data;
  int count;
  std::int64_t point_stride, column_stride;

  U& at(std::int64_t point, int column) const { return data[point * point_stride + column * column_stride]; }
};

// Some blocks of points, and which row of its vectors each point has: the one of its number, or, where vectors are of these
// points alone, that among them.
class Window {
 public:
  explicit Window(const Points& points) : Window(points, 0, points.blocks()) {}
  Window(const Points& points, std::int64_t first, std::int64_t last) : points_(points), first_(first), last_(last) {}
  // Of vectors that have the points of the window in ascending order.
  static Window alone(const Points& points, std::int64_t first, std::int64_t last) {
    Window window(points, first, last);
    std::vector<std::pair<std::int64_t, std::int64_t>> found;  // points and their slots
    for (std::int64_t slot = first * kBlock; slot < last * kBlock; ++slot)
      if (const std::int64_t point = points.point(slot); point >= 0) found.emplace_back(point, slot - first * kBlock);
    std::sort(found.begin(), found.end());
    window.rows_.assign(static_cast<std::size_t>((last - first) * kBlock), -1);
    for (std::size_t row = 0; row < found.size(); ++row)
      window.rows_[static_cast<std::size_t>(found[row].second)] = static_cast<std::int64_t>(row);
    return window;
  }

  std::int64_t first() const { return first_; }
  std::int64_t blocks() const { return last_ - first_; }
  // By slots of the window; -1 in the padding.
  std::int64_t row(std::int64_t slot) const {
    return rows_.empty() ? points_.point(first_ * kBlock + slot) : rows_[static_cast<std::size_t>(slot)];
  }

 private:
  const Points& points_;
  std::int64_t first_, last_;
  std::vector<std::int64_t> rows_;  // by slot, where they are not the points
};

// Calls f(row, lane) for the points of a strip of the window, whose panel is panel + strip * kStrip * columns.
template <class Function>
void for_strip(const Window& window, std::int64_t strip, Function f) {
  for (int lane = 0; lane < kStrip; ++lane)
    if (const std::int64_t row = window.row(strip * kStrip + lane); row >= 0) f(row, lane);
}

// Vectors as the tiles want them: columns of a panel of `columns`, from column `at` on, in the points' order.
template <class T, class U>
void pack_panel(const Columns<const U>& vectors, const Window& window, int at, int columns, T* panel) {
  for (std::int64_t strip = 0; strip < window.blocks() * kStrips; ++strip) {
    T* to = panel + (strip * columns + at) * kStrip;
    for_strip(window, strip, [&](std::int64_t row, int lane) {
      for (int c = 0; c < vectors.count; ++c) to[c * kStrip + lane] = static_cast<T>(vectors.at(row, c));
    });
  }
}

}  // namespace halfgp
