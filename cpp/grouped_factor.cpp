#include "grouped_factor.hpp"

#include <algorithm>
#include <cmath>

#include "memory.hpp"

namespace halfgp {
namespace {

constexpr std::int64_t kPoints = 4096;  // of a task that adds up what groups found
constexpr int kGroups = 16;             // of a task
constexpr int kAtOnce = 4;              // columns of v, of which groups hold what they found until it is added up
constexpr std::size_t kScratch = std::size_t{256} << 20;  // bytes that threads may take to build, or a share of what is built

// out (rows, count) += entries (columns of them, rows each) times rows of v.
template <class Entry>
inline void add_products(const Entry* entries, const std::int32_t* columns, std::int64_t size, std::int64_t rows, const double* v,
                         int count, double* out) {
  for (std::int64_t j = 0; j < size; ++j, entries += rows) {
    const double* x = v + static_cast<std::int64_t>(columns[j]) * count;
    if (count == 1) {
      const double y = *x;
      for (std::int64_t i = 0; i < rows; ++i) out[i] += static_cast<double>(entries[i]) * y;
    } else {
      for (std::int64_t i = 0; i < rows; ++i)
        for (int c = 0; c < count; ++c) out[i * count + c] += static_cast<double>(entries[i]) * x[c];
    }
  }
}

// The inner products of a column of entries with v (rows, count), whose rows are `stride` apart.
template <class Entry>
inline void column_products(const Entry* entries, std::int64_t rows, const double* v, int count, int stride, double* out) {
  if (stride == 1) {  // four sums at once hide the latency of each
    double sums[4] = {0, 0, 0, 0};
    std::int64_t i = 0;
    for (; i + 4 <= rows; i += 4)
      for (int k = 0; k < 4; ++k) sums[k] += static_cast<double>(entries[i + k]) * v[i + k];
    for (; i < rows; ++i) sums[0] += static_cast<double>(entries[i]) * v[i];
    *out = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    return;
  }
  std::fill(out, out + count, 0.0);
  for (std::int64_t i = 0; i < rows; ++i)
    for (int c = 0; c < count; ++c) out[c] += static_cast<double>(entries[i]) * v[i * stride + c];
}

}  // namespace

template <class Entry>
GroupedFactor<Entry>::GroupedFactor(const Target& target, const KernelProgram& described, const GroupedRows& of, const Execution& execution)
    : points_(of.points), starts_(of.starts, of.starts + of.groups + 1), column_starts_(1), entry_starts_(1) {
  const Program program = described.view();
  std::vector<double> factors;
  for (const LeafPacking& packing : described.packing) factors.push_back(packing.factor);
  auto group = [&](std::int64_t g, bool with_members) {
    const std::int64_t first = of.member_starts[g];
    return RowGroup{&program,
                 described.scale,
                 of.features.data(),
                 factors.data(),
                 of.diagonal,
                 of.explained,
                 of.landmarks,
                 static_cast<std::int32_t>(with_members ? of.member_starts[g + 1] - first : 0),
                 static_cast<std::int32_t>(rows(g)),
                 of.members + first,
                 of.starts[g]};
  };
  std::size_t scratch = 0, largest = 0;
  for (std::int64_t g = 0; g < of.groups; ++g) {
    const RowGroup one = group(g, true);
    const std::int64_t size = one.member_count + rows(g);
    scratch = std::max(scratch, target.group_bytes(one));
    largest = std::max(largest, static_cast<std::size_t>(size * rows(g)));
    column_starts_.push_back(column_starts_.back() + size);
    entry_starts_.push_back(entry_starts_.back() + size * rows(g));
  }
  columns_.resize(static_cast<std::size_t>(column_starts_.back()));
  entries_.resize(static_cast<std::size_t>(entry_starts_.back()));
  std::vector<double> logs(static_cast<std::size_t>(of.groups));
  std::vector<std::int64_t> indefinite(static_cast<std::size_t>(of.groups));
  std::vector<Memory> memory, found;
  // Each thread has room for the largest group: of large ones no more than a share of the factor itself.
  const std::size_t each = scratch + largest * sizeof(double), most = std::max(kScratch, entries_.size() * sizeof(Entry) / 4);
  Execution workers = execution;
  workers.threads = static_cast<int>(std::clamp<std::int64_t>(
      std::min(of.groups, static_cast<std::int64_t>(most / std::max<std::size_t>(each, 1))), 1, execution.threads));
  for (int worker = 0; worker < workers.threads; ++worker) {
    memory.emplace_back(scratch);
    found.emplace_back(largest * sizeof(double));
  }
  for_each_task(of.groups, workers, [&](std::int64_t g, int worker, const Check& check) {
    check();
    const auto at = static_cast<std::size_t>(worker), own = static_cast<std::size_t>(g);
    double* to = found[at].as<double>();
    const std::int64_t size = column_starts_[own + 1] - column_starts_[own], count = rows(g), given = size - count;
    std::int32_t* columns = columns_.data() + column_starts_[own];
    for (std::int64_t j = 0; j < size; ++j)
      columns[j] = static_cast<std::int32_t>(j < given ? of.members[of.member_starts[g] + j] : of.starts[g] + (j - given));
    if (!target.factor_group(group(g, true), memory[at].as<void>(), to)) {
      std::fill(to, to + size * count, 0.0);
      double* square = to + given * count;
      if (!target.factor_group(group(g, false), memory[at].as<void>(), square)) {
        std::fill(square, square + count * count, 0.0);
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t point = of.starts[g] + i;
          double left = of.diagonal[point];
          for (int k = 0; k < of.landmarks; ++k) left -= of.explained[point * of.landmarks + k] * of.explained[point * of.landmarks + k];
          indefinite[own] += !(left > 0);
          square[i * count + i] = 1.0 / std::sqrt(left);
        }
      }
    }
    Entry* entries = entries_.data() + entry_starts_[own];
    for (std::int64_t i = 0; i < size * count; ++i) entries[i] = static_cast<Entry>(to[i]);
    for (std::int64_t i = 0; i < count; ++i) logs[own] += std::log(static_cast<double>(entries[(given + i) * count + i]));
  });
  for (const double part : logs) log_pivots_ += part;
  for (const std::int64_t part : indefinite) indefinite_ += part;
  // Where a point is met, in the order of the groups: so transposed products are added up in that order.
  met_starts_.assign(static_cast<std::size_t>(points_) + 1, 0);
  for (const std::int32_t column : columns_) ++met_starts_[static_cast<std::size_t>(column) + 1];
  for (std::size_t i = 0; i < static_cast<std::size_t>(points_); ++i) met_starts_[i + 1] += met_starts_[i];
  met_.resize(columns_.size());
  std::vector<std::int64_t> next(met_starts_.begin(), met_starts_.end() - 1);
  for (std::size_t i = 0; i < columns_.size(); ++i)
    met_[static_cast<std::size_t>(next[static_cast<std::size_t>(columns_[i])]++)] = static_cast<std::int64_t>(i);
}

template <class Entry>
std::int64_t GroupedFactor<Entry>::rows(std::int64_t group) const {
  return starts_[static_cast<std::size_t>(group) + 1] - starts_[static_cast<std::size_t>(group)];
}

template <class Entry>
std::int64_t GroupedFactor<Entry>::members(std::int64_t group) const {
  return column_starts_[static_cast<std::size_t>(group) + 1] - column_starts_[static_cast<std::size_t>(group)] - rows(group);
}

template <class Entry>
const std::int32_t* GroupedFactor<Entry>::columns(std::int64_t group) const {
  return columns_.data() + column_starts_[static_cast<std::size_t>(group)];
}

template <class Entry>
const Entry* GroupedFactor<Entry>::entries(std::int64_t group) const {
  return entries_.data() + entry_starts_[static_cast<std::size_t>(group)];
}

template <class Entry>
void GroupedFactor<Entry>::multiply(const double* v, int count, double* out, const Execution& execution) const {
  std::fill(out, out + points_ * count, 0.0);
  for_each_task((groups() + kGroups - 1) / kGroups, execution, [&](std::int64_t task, int, const Check& check) {
    check();
    for (std::int64_t g = task * kGroups; g < std::min(groups(), (task + 1) * kGroups); ++g)
      add_products(entries(g), columns(g), members(g) + rows(g), rows(g), v, count, out + starts_[static_cast<std::size_t>(g)] * count);
  });
}

template <class Entry>
void GroupedFactor<Entry>::multiply_transposed(const double* v, int count, double* out, const Execution& execution) const {
  Memory found(columns_.size() * static_cast<std::size_t>(std::min(count, kAtOnce)) * sizeof(double));
  for (int first = 0; first < count; first += kAtOnce)
    add_transposed(v + first, std::min(kAtOnce, count - first), count, found.as<double>(), out + first, execution);
}

template <class Entry>
void GroupedFactor<Entry>::add_transposed(const double* v, int count, int stride, double* parts, double* out,
                                          const Execution& execution) const {
  for_each_task((groups() + kGroups - 1) / kGroups, execution, [&](std::int64_t task, int, const Check& check) {
    check();
    for (std::int64_t g = task * kGroups; g < std::min(groups(), (task + 1) * kGroups); ++g) {
      const Entry* column = entries(g);
      double* to = parts + column_starts_[static_cast<std::size_t>(g)] * count;
      for (std::int64_t j = 0; j < members(g) + rows(g); ++j, column += rows(g), to += count)
        column_products(column, rows(g), v + starts_[static_cast<std::size_t>(g)] * stride, count, stride, to);
    }
  });
  for_each_task((points_ + kPoints - 1) / kPoints, execution, [&](std::int64_t task, int, const Check& check) {
    check();
    for (std::int64_t point = task * kPoints; point < std::min(points_, (task + 1) * kPoints); ++point) {
      double* to = out + point * stride;
      std::fill(to, to + count, 0.0);
      for (std::int64_t i = met_starts_[static_cast<std::size_t>(point)]; i < met_starts_[static_cast<std::size_t>(point) + 1]; ++i)
        for (int c = 0; c < count; ++c) to[c] += parts[met_[static_cast<std::size_t>(i)] * count + c];
    }
  });
}

template <class Entry>
void GroupedFactor<Entry>::solve(double* v, int count) const {
  std::vector<double> sums;
  for (std::int64_t g = 0; g < groups(); ++g) {
    const std::int64_t size = rows(g), given = members(g);
    double* own = v + starts_[static_cast<std::size_t>(g)] * count;
    sums.assign(static_cast<std::size_t>(size * count), 0.0);
    add_products(entries(g), columns(g), given, size, v, count, sums.data());
    for (std::int64_t i = 0; i < size * count; ++i) own[i] -= sums[static_cast<std::size_t>(i)];
    const Entry* column = entries(g) + given * size;
    for (std::int64_t j = 0; j < size; ++j, column += size)
      for (int c = 0; c < count; ++c) {
        const double solved = own[j * count + c] /= static_cast<double>(column[j]);
        for (std::int64_t i = j + 1; i < size; ++i) own[i * count + c] -= static_cast<double>(column[i]) * solved;
      }
  }
}

template <class Entry>
void GroupedFactor<Entry>::solve_transposed(double* v, int count) const {
  std::vector<double> sums(static_cast<std::size_t>(count));
  for (std::int64_t g = groups() - 1; g >= 0; --g) {
    const std::int64_t size = rows(g), given = members(g);
    double* own = v + starts_[static_cast<std::size_t>(g)] * count;
    for (std::int64_t j = size - 1; j >= 0; --j) {
      const Entry* column = entries(g) + (given + j) * size;
      column_products(column + j + 1, size - j - 1, own + (j + 1) * count, count, count, sums.data());
      for (int c = 0; c < count; ++c)
        own[j * count + c] = (own[j * count + c] - sums[static_cast<std::size_t>(c)]) / static_cast<double>(column[j]);
    }
    for (std::int64_t j = 0; j < given; ++j) {
      column_products(entries(g) + j * size, size, own, count, count, sums.data());
      for (int c = 0; c < count; ++c) v[static_cast<std::int64_t>(columns(g)[j]) * count + c] -= sums[static_cast<std::size_t>(c)];
    }
  }
}

template class GroupedFactor<float>;
template class GroupedFactor<double>;

}  // namespace halfgp
