// Rows given their neighbours: residuals, deviations, rows of the sparse inverse factor, and the gradient of their loss.
#pragma once

#include <cstdint>
#include <vector>

#include "engine.hpp"

namespace halfgp {

// Rows and, for each, the points it is conditioned on. Arrays are row-major and belong to the caller.
struct Neighbourhoods {
  std::vector<const double*> features;  // by leaf: (points, f), scaled
  const double* diagonal;               // (points): variance and noise
  const double* targets;                // (points, target_count)
  const std::int64_t* rows;             // (count)
  const std::int64_t* members;          // (count, neighbours); -1 for none
  std::int64_t count;
  int neighbours, target_count;
  const double* explained = nullptr;    // (points, landmarks), aligned: A is conditioned on what has these products
  int landmarks = 0;                    // a multiple of kLandmarks
};

struct ConditionalResults {
  double* residuals;    // (count, target_count), over their deviations
  double* deviations;   // (count); not a number where a neighbourhood is not positive definite
  double* factor;       // (count, neighbours + 1), or null
  double* by_diagonal;  // (count, neighbours + 1), or null without a gradient
  std::vector<double*> by_features;  // by leaf: (count, neighbours + 1, f), or null
};

// Sums of the gradient are zero unless `results.by_diagonal` asks for it.
GradientSums conditionals(const Target& target, bool single, const KernelProgram& program, const Neighbourhoods& of,
                          const ConditionalResults& results, const Execution& execution);

}  // namespace halfgp
