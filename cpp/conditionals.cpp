#include "conditionals.hpp"

#include <algorithm>

namespace halfgp {
namespace {

// Rows of a task: sums are added task by task, in order, so that they do not depend on the number of threads.
constexpr std::int64_t kRows = 64;

// From (size, all features) a row to the tables of the leaves.
void scatter(const double* from, const KernelProgram& program, std::int64_t first, std::int64_t rows, std::int64_t size,
             const std::vector<double*>& tables) {
  for (std::int64_t member = 0; member < rows * size; ++member)
    for (std::size_t l = 0; l < tables.size(); ++l) {
      const int f = program.leaves[l].features;
      if (tables[l])
        for (int k = 0; k < f; ++k) tables[l][(first * size + member) * f + k] = from[k] * program.packing[l].factor * program.scale;
      from += f;
    }
}

}  // namespace

GradientSums conditionals(const Target& target, bool single, const KernelProgram& given, const Neighbourhoods& of,
                          const ConditionalResults& results, const Execution& execution) {
  const TileFunctions& functions = single ? target.single : target.double_;
  KernelProgram described = given;
  const std::size_t leaves = described.leaves.size(), constants = described.constants.size();
  std::size_t features = 0;
  bool wanted = false;
  std::vector<double> factors;
  for (std::size_t l = 0; l < leaves; ++l) {
    described.leaves[l].wants_features = results.by_features[l] != nullptr;
    wanted = wanted || results.by_features[l];
    features += static_cast<std::size_t>(described.leaves[l].features);
    factors.push_back(described.packing[l].factor);
  }
  const Program program = described.view();
  const std::size_t size = static_cast<std::size_t>(of.neighbours) + 1, scalars = 1 + constants + leaves + features;
  const std::int64_t tasks = (of.count + kRows - 1) / kRows;
  std::vector<double> sums(results.by_diagonal ? static_cast<std::size_t>(tasks) * scalars : 0);
  auto batch = [&](std::int64_t first, std::int64_t count, double* task_sums, double* by_features) {
    return Conditional{&program,
                       described.scale,
                       of.features.data(),
                       factors.data(),
                       of.diagonal,
                       of.targets,
                       of.rows + first,
                       of.members + first * of.neighbours,
                       of.explained,
                       of.landmarks,
                       static_cast<std::int32_t>(count),
                       of.neighbours,
                       of.target_count,
                       static_cast<std::int32_t>(constants),
                       results.by_diagonal != nullptr,
                       results.residuals + first * of.target_count,
                       results.deviations + first,
                       results.factor ? results.factor + first * static_cast<std::int64_t>(size) : nullptr,
                       results.by_diagonal ? results.by_diagonal + first * static_cast<std::int64_t>(size) : nullptr,
                       by_features,
                       task_sums};
  };
  const int lanes = functions.lanes;
  std::vector<Memory> scratch, tables;
  for (int worker = 0; worker < execution.threads; ++worker) {
    scratch.emplace_back(functions.conditional_bytes(batch(0, 0, nullptr, nullptr)));
    tables.emplace_back(wanted ? static_cast<std::size_t>(lanes) * size * features * sizeof(double) : 0);
  }
  for_each_task(tasks, execution, [&](std::int64_t task, int worker, const Check& check) {
    double* task_sums = sums.empty() ? nullptr : sums.data() + static_cast<std::size_t>(task) * scalars;
    double* table = wanted ? tables[static_cast<std::size_t>(worker)].as<double>() : nullptr;
    const std::int64_t end = std::min(of.count, (task + 1) * kRows);
    for (std::int64_t first = task * kRows; first < end; first += lanes) {
      check();
      const std::int64_t count = std::min<std::int64_t>(lanes, end - first);
      functions.conditional(batch(first, count, task_sums, table), scratch[static_cast<std::size_t>(worker)].as<void>());
      if (table) scatter(table, described, first, count, static_cast<std::int64_t>(size), results.by_features);
    }
  });
  GradientSums total;
  std::vector<double> added(scalars);
  for (std::size_t i = 0; i < sums.size(); ++i) added[i % scalars] += sums[i];
  auto at = added.cbegin();
  total.root = *at++;
  auto take = [&](std::size_t count, std::size_t step) {
    std::vector<double> part(at, at + static_cast<std::ptrdiff_t>(count));
    for (double& x : part) x *= described.scale;
    at += static_cast<std::ptrdiff_t>(step);
    return part;
  };
  total.constants = take(constants, constants);
  total.shapes = take(leaves, leaves);
  for (const Leaf& leaf : described.leaves) {
    const auto f = static_cast<std::size_t>(leaf.features);
    total.scales.push_back(take(leaf.shared_scale ? std::min<std::size_t>(1, f) : f, f));
  }
  return total;
}

}  // namespace halfgp
