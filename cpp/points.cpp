#include "points.hpp"

#include <cmath>

namespace halfgp {

Points::Points(std::int64_t count, const std::uint8_t* near, const std::vector<const double*>& features,
               const std::vector<Leaf>& leaves, const std::vector<LeafPacking>& packing, bool single)
    : count_(count), leaf_count_(leaves.size()), packed_(leaves.size()) {
  for (const bool wanted : {true, false}) {
    const std::size_t start = order_.size();
    for (std::int64_t i = 0; i < count; ++i)
      if ((near[i] != 0) == wanted) order_.push_back(i);
    for (std::size_t at = start; at < order_.size(); at += kBlock) {
      near_.push_back(wanted);
      live_.push_back(static_cast<int>(order_.size() - at < kBlock ? order_.size() - at : kBlock));
    }
    order_.resize((order_.size() + kBlock - 1) / kBlock * kBlock, -1);
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
      norm += static_cast<double>(value) * static_cast<double>(value);  // of the rounded value, or the expansion is biased
    }
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
