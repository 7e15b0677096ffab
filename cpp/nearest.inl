// Squared distances between a point and the kStrip points of a strip, by differences, and which of them are below a limit:
// bit i for point i.
inline std::uint64_t near_strip(const double* strip, int features, const double* point, double limit, double* distances) {
  using V = Vec<double>;
  constexpr int vectors = kStrip / V::lanes, width = vectors < 8 ? vectors : 8;
  std::uint64_t near = 0;
  const V most = broadcast(limit);
  for (int first = 0; first < vectors; first += width) {
    V sum[width];
#pragma GCC unroll 8
    for (int i = 0; i < width; ++i) sum[i] = broadcast(0.0);
    for (int f = 0; f < features; ++f) {
      const V x = broadcast(point[f]);
      const double* y = strip + f * kStrip + first * V::lanes;
#pragma GCC unroll 8
      for (int i = 0; i < width; ++i) {
        const V d = x - load(y + i * V::lanes);
        sum[i] = fma(d, d, sum[i]);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < width; ++i) {
      store(distances + (first + i) * V::lanes, sum[i]);
      near |= std::uint64_t{lanes_below(sum[i], most)} << ((first + i) * V::lanes);
    }
  }
  return near;
}
