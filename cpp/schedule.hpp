// Who computes which tile when. Results never depend on the number of threads: tiles may be computed in any order, but
// their contributions to a block are added in an order that the grid alone decides.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>

#include "block_pairs.hpp"

namespace halfgp {

struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("interrupted") {}
};

struct Execution {
  int threads = 1;
  std::function<bool()> interrupted;  // asked by the calling thread every so often; true stops all workers
};

// Calls task(index, worker, check) for every index below `count`. A task of more than some milliseconds calls check()
// now and then, which throws if all are to stop.
using Check = std::function<void()>;
void for_each_task(std::int64_t count, const Execution& execution,
                   const std::function<void(std::int64_t, int, const Check&)>& task);

// Calls compute(row, column, worker) and then commit(row, column, worker) for every one of `pairs`. Pairs are handed out in
// their order, and commits to a block happen in it.
void for_each_pair(const BlockPairs& pairs, const Execution& execution,
                   const std::function<void(std::int64_t, std::int64_t, int)>& compute,
                   const std::function<void(std::int64_t, std::int64_t, int)>& commit);

}  // namespace halfgp
