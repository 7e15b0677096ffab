#include "points.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "box_tree.hpp"

namespace halfgp {
namespace {

// Where points are, for the sake of their order: psi of all stationary leaves side by side; no copy if that is one leaf.
class Places {
 public:
  Places(std::int64_t count, const std::vector<const double*>& features, const std::vector<Leaf>& leaves,
         const std::vector<LeafPacking>& packing) {
    std::vector<std::size_t> stationary;
    for (std::size_t l = 0; l < leaves.size(); ++l)
      if (leaves[l].profile != Profile::linear) stationary.push_back(l), width_ += leaves[l].features;
    if (stationary.size() == 1) {
      data_ = features[stationary[0]];
      return;
    }
    copy_.reserve(static_cast<std::size_t>(count) * static_cast<std::size_t>(width_));
    for (std::int64_t i = 0; i < count; ++i)
      for (const std::size_t l : stationary)
        for (int k = 0; k < leaves[l].features; ++k) copy_.push_back(features[l][i * leaves[l].features + k] * packing[l].factor);
    data_ = copy_.data();
  }

  std::vector<std::int64_t> gathered(std::vector<std::int64_t> rows) const {
    return BoxTree(data_, width_, std::move(rows), kBlock, kStrip).order();
  }

 private:
  const double* data_;
  int width_ = 0;
  std::vector<double> copy_;
};

// Where a part of so many things begins, as `Part.of` has it in Python.
std::int64_t begins(std::int64_t things, std::int64_t index, std::int64_t count) { return things * index / count; }

}  // namespace

Boxes::Boxes(std::size_t runs, int features) : features(features), corners(runs * 2 * features), norms(runs) {
  const double far = std::numeric_limits<double>::infinity();
  for (std::size_t at = 0; at < corners.size(); at += 2 * features) {
    std::fill_n(corners.begin() + static_cast<std::ptrdiff_t>(at), features, far);
    std::fill_n(corners.begin() + static_cast<std::ptrdiff_t>(at) + features, features, -far);
  }
}

void Boxes::include(std::size_t run, const double* low, const double* high, double norm) {
  double *lows = corners.data() + run * 2 * features, *highs = lows + features;
  for (int k = 0; k < features; ++k) {
    lows[k] = std::min(lows[k], low[k]);
    highs[k] = std::max(highs[k], high[k]);
  }
  norms[run] = std::max(norms[run], norm);
}

Points::Points(std::int64_t count, const std::uint8_t* near, const std::vector<const double*>& features,
               const std::vector<Leaf>& leaves, const std::vector<LeafPacking>& packing, bool single, bool gathered,
               const Runs& runs)
    : count_(count), gathered_(gathered), leaf_count_(leaves.size()), run_begins_{0}, packed_(leaves.size()) {
  const Places places(gathered ? count : 0, features, leaves, packing);
  for (std::int64_t run = 0; run < runs.count; ++run) {
    for (const bool wanted : {true, false}) {
      const std::size_t start = order_.size();
      std::vector<std::int64_t> rows;
      for (std::int64_t i = begins(count, run, runs.count); i < begins(count, run + 1, runs.count); ++i)
        if (const std::int64_t row = runs.order ? runs.order[i] : i; (near[row] != 0) == wanted) rows.push_back(row);
      if (gathered) rows = places.gathered(std::move(rows));
      order_.insert(order_.end(), rows.begin(), rows.end());
      for (std::size_t at = start; at < order_.size(); at += kBlock) {
        near_.push_back(wanted);
        live_.push_back(static_cast<int>(order_.size() - at < kBlock ? order_.size() - at : kBlock));
      }
      order_.resize((order_.size() + kBlock - 1) / kBlock * kBlock, -1);
    }
    run_begins_.push_back(blocks());
    run_of_.resize(near_.size(), run);
  }
  views_.resize(near_.size() * leaf_count_);
  for (std::size_t l = 0; l < leaf_count_; ++l) {
    if (single)
      pack<float>(static_cast<int>(l), features[l], leaves[l], packing[l]);
    else
      pack<double>(static_cast<int>(l), features[l], leaves[l], packing[l]);
  }
}

template <class T>
void Points::pack(int leaf, const double* features, const Leaf& description, const LeafPacking& packing) {
  const int f = description.features, pairs = (f + 1) / 2;
  const std::size_t slots = order_.size();
  const bool fixed = packing.fixed_step > 0;
  Packed& packed = packed_[static_cast<std::size_t>(leaf)];
  packed.features = Memory::zeroed(slots * f * sizeof(T));
  packed.norms = Memory::zeroed(slots * sizeof(T));
  if (fixed) {
    packed.fixed_features = Memory::zeroed(slots * pairs * sizeof(std::int32_t));
    packed.fixed_norms = Memory::zeroed(slots * sizeof(std::int32_t));
  }
  packed.strips = Boxes(slots / kStrip, f);
  packed.blocks = Boxes(slots / kBlock, f);
  std::vector<double> place(static_cast<std::size_t>(f));
  T* psi = packed.features.as<T>();
  for (std::size_t slot = 0; slot < slots; ++slot) {
    const std::int64_t point = order_[slot];
    if (point < 0) continue;
    const bool rounded = fixed && near_[slot / kBlock];
    double norm = 0;
    std::int32_t fixed_norm = 0;
    for (int k = 0; k < f; ++k) {
      double x = (features[point * f + k] - packing.centre[static_cast<std::size_t>(k)]) * packing.factor;
      if (rounded) {  // every path must see the same point, so the others take the rounded one too
        const auto a = static_cast<std::int32_t>(std::lrint(x / packing.fixed_step));
        x = a * packing.fixed_step;
        fixed_norm += a * a;
        std::int32_t& pair = packed.fixed_features.as<std::int32_t>()[panel_index(static_cast<std::int64_t>(slot), k / 2, pairs)];
        const std::uint32_t bits = static_cast<std::uint16_t>(static_cast<std::int16_t>(a));
        pair = static_cast<std::int32_t>(static_cast<std::uint32_t>(pair) | (k % 2 ? bits << 16 : bits));
      }
      const T value = static_cast<T>(x);
      psi[panel_index(static_cast<std::int64_t>(slot), k, f)] = value;
      place[static_cast<std::size_t>(k)] = static_cast<double>(value);
      norm += static_cast<double>(value) * static_cast<double>(value);  // of the rounded value, or the expansion is biased
    }
    packed.strips.include(slot / kStrip, place.data(), place.data(), norm);
    packed.blocks.include(slot / kBlock, place.data(), place.data(), norm);
    packed.norms.as<T>()[slot] = static_cast<T>(-0.5 * norm);
    if (rounded) packed.fixed_norms.as<std::int32_t>()[slot] = fixed_norm;
  }
  for (std::size_t block = 0; block < near_.size(); ++block) {
    LeafBlock& view = views_[block * leaf_count_ + static_cast<std::size_t>(leaf)];
    view.features = psi + block * kBlock * f;
    view.norms = packed.norms.as<T>() + block * kBlock;
    view.fixed_features = fixed ? packed.fixed_features.as<std::int32_t>() + block * kBlock * pairs : nullptr;
    view.fixed_norms = fixed ? packed.fixed_norms.as<std::int32_t>() + block * kBlock : nullptr;
  }
}

}  // namespace halfgp
