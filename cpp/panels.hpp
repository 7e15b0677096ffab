// Between arrays of vectors, as the caller has laid them out, and the panels of the tiles.
#pragma once

#include <cstdint>

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

// Calls f(point, lane) for the points of a strip, f's panel being panel + strip * kStrip * columns.
template <class Function>
void for_strip(const Points& points, std::int64_t strip, Function f) {
  for (int lane = 0; lane < kStrip; ++lane)
    if (const std::int64_t point = points.point(strip * kStrip + lane); point >= 0) f(point, lane);
}

// Vectors as the tiles want them: columns of a panel of `columns`, from column `at` on, in the points' order.
template <class T, class U>
void pack_panel(const Columns<const U>& vectors, const Points& points, int at, int columns, T* panel) {
  for (std::int64_t strip = 0; strip < points.blocks() * kStrips; ++strip) {
    T* to = panel + (strip * columns + at) * kStrip;
    for_strip(points, strip, [&](std::int64_t point, int lane) {
      for (int c = 0; c < vectors.count; ++c) to[c * kStrip + lane] = static_cast<T>(vectors.at(point, c));
    });
  }
}

}  // namespace halfgp
