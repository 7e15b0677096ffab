// Between arrays of points, row after row, and the panels of the tiles.
#pragma once

#include <cstdint>

#include "points.hpp"

namespace halfgp {

// Calls f(point, lane) for the points of a strip, f's panel being panel + strip * kStrip * columns.
template <class Function>
void for_strip(const Points& points, std::int64_t strip, Function f) {
  for (int lane = 0; lane < kStrip; ++lane)
    if (const std::int64_t point = points.point(strip * kStrip + lane); point >= 0) f(point, lane);
}

// Vectors as the tiles want them: `count` columns of a panel of `columns`, from column `at` on, in the points' order.
template <class T, class U>
void pack_panel(const U* vectors, int count, const Points& points, int at, int columns, T* panel) {
  for (std::int64_t strip = 0; strip < points.blocks() * kStrips; ++strip) {
    T* to = panel + (strip * columns + at) * kStrip;
    for_strip(points, strip, [&](std::int64_t point, int lane) {
      for (int c = 0; c < count; ++c) to[c * kStrip + lane] = static_cast<T>(vectors[point * count + c]);
    });
  }
}

}  // namespace halfgp
