// Points packed for the tiles: reordered, padded to blocks, and as each leaf wants to see them.
#pragma once

#include <cstdint>
#include <vector>

#include "memory.hpp"
#include "program.hpp"

namespace halfgp {

// How one leaf sees its features: psi = (feature - centre) * factor.
struct LeafPacking {
  std::vector<double> centre;  // by feature
  double factor = 1.0;
  double fixed_step = 0.0;     // of psi, for points near the centre; 0: no fixed point
};

// What one leaf sees of runs of slots, padding left out: corners as the tiles have them, and the largest |psi|^2.
struct Boxes {
  int features = 0;
  std::vector<double> corners;  // by run: lows, then highs
  std::vector<double> norms;    // by run

  Boxes() = default;
  Boxes(std::size_t runs, int features);
  const double* low(std::int64_t run) const { return corners.data() + static_cast<std::size_t>(run) * 2 * features; }
  const double* high(std::int64_t run) const { return low(run) + features; }
  void include(std::size_t run, const double* low, const double* high, double norm);
};

// Points that several processes share out: so many runs of an order (count), each of them held by one.
struct Runs {
  const std::int64_t* order = nullptr;
  std::int64_t count = 1;
};

// Rows `near` the centre come first, in blocks of their own: there the fast path of every leaf is accurate, and a point's
// path depends on that point alone, not on its neighbours in the call. Where points are shared out, so it is in each of
// the runs, one after the other: no block has points of two.
class Points {
 public:
  // features: by leaf, (count, f) row-major; near: (count). If `gathered`, blocks and strips are made of neighbours;
  // otherwise points keep their order.
  Points(std::int64_t count, const std::uint8_t* near, const std::vector<const double*>& features,
         const std::vector<Leaf>& leaves, const std::vector<LeafPacking>& packing, bool single, bool gathered,
         const Runs& runs = {});
  Points(const Points&) = delete;

  std::int64_t count() const { return count_; }
  std::int64_t blocks() const { return static_cast<std::int64_t>(near_.size()); }
  bool gathered() const { return gathered_; }
  int live(std::int64_t block) const { return live_[static_cast<std::size_t>(block)]; }
  bool near(std::int64_t block) const { return near_[static_cast<std::size_t>(block)]; }
  // How many runs there are, where each begins, in blocks, and which one a block is of.
  std::int64_t runs() const { return static_cast<std::int64_t>(run_begins_.size()) - 1; }
  std::int64_t run_begins(std::int64_t run) const { return run_begins_[static_cast<std::size_t>(run)]; }
  std::int64_t run_of(std::int64_t block) const { return run_of_[static_cast<std::size_t>(block)]; }
  // The point in a slot, or -1 in the padding.
  std::int64_t point(std::int64_t slot) const { return order_[static_cast<std::size_t>(slot)]; }
  const Boxes& strip_boxes(std::size_t leaf) const { return packed_[leaf].strips; }
  const Boxes& block_boxes(std::size_t leaf) const { return packed_[leaf].blocks; }
  const LeafBlock* leaf_blocks(std::int64_t block) const { return views_.data() + static_cast<std::size_t>(block) * leaf_count_; }

 private:
  template <class T>
  void pack(int leaf, const double* features, const Leaf& description, const LeafPacking& packing);

  struct Packed {
    Memory features, norms, fixed_features, fixed_norms;
    Boxes strips, blocks;
  };
  std::int64_t count_;
  bool gathered_;
  std::size_t leaf_count_;
  std::vector<std::int64_t> order_, run_begins_, run_of_;
  std::vector<std::uint8_t> near_;
  std::vector<int> live_;
  std::vector<Packed> packed_;
  std::vector<LeafBlock> views_;
};

// The place of (slot, column) in a panel of `columns` columns.
inline std::size_t panel_index(std::int64_t slot, int column, int columns) {
  return static_cast<std::size_t>(slot / kStrip) * kStrip * columns + static_cast<std::size_t>(column) * kStrip +
         static_cast<std::size_t>(slot % kStrip);
}

}  // namespace halfgp
