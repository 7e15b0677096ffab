#include "schedule.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "simd_denormals.hpp"

namespace halfgp {
namespace {

// Raised inside a worker that must stop because another one did.
struct Stopped {};

class Workers {
 public:
  explicit Workers(const Execution& execution) : execution_(execution) {}

  // Threads are made for each call: tens of microseconds, against no pool that a fork could break.
  void run(const std::function<void(int)>& body) {
    std::vector<std::thread> others;
    others.reserve(static_cast<std::size_t>(execution_.threads));
    try {
      for (int worker = 1; worker < execution_.threads; ++worker)
        others.emplace_back([this, &body, worker] {
          guarded(body, worker);
          finished_.fetch_add(1, std::memory_order_release);
        });
    } catch (const std::system_error&) {
      // The system gives no more threads: those that there are do all the work.
    }
    guarded(body, 0);
    guarded([&](int) { wait_for(others.size()); }, 0);
    for (std::thread& other : others) other.join();
    if (failure_) std::rethrow_exception(failure_);
  }

  // To be called between tasks and while waiting.
  void check(int worker) {
    if (stop_.load(std::memory_order_relaxed)) throw Stopped();
    if (worker != 0 || !execution_.interrupted) return;
    const auto now = std::chrono::steady_clock::now();
    if (now - asked_ < std::chrono::milliseconds(50)) return;
    asked_ = now;
    if (callers_->suspended(execution_.interrupted)) throw Interrupted();
  }

 private:
  // The calling thread goes on looking for signals while the others finish.
  void wait_for(std::size_t others) {
    while (finished_.load(std::memory_order_acquire) < others) {
      check(0);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  void guarded(const std::function<void(int)>& body, int worker) {
    const FlushDenormals flush;
    if (worker == 0) callers_ = &flush;
    try {
      body(worker);
    } catch (const Stopped&) {
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      stop_ = true;
    }
  }

  const Execution& execution_;
  const FlushDenormals* callers_ = nullptr;  // of worker 0, which is the calling thread
  std::atomic<bool> stop_{false};
  std::atomic<std::size_t> finished_{0};
  std::chrono::steady_clock::time_point asked_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::exception_ptr failure_;
};

}  // namespace

void for_each_task(std::int64_t count, const Execution& execution,
                   const std::function<void(std::int64_t, int, const Check&)>& task) {
  Workers workers(execution);
  std::atomic<std::int64_t> next{0};
  workers.run([&](int worker) {
    const Check check = [&workers, worker] { workers.check(worker); };
    for (std::int64_t index; (index = next.fetch_add(1)) < count;) {
      check();
      task(index, worker, check);
    }
  });
}

void for_each_pair(std::int64_t rows, std::int64_t columns, bool symmetric, const Execution& execution,
                   const std::function<void(std::int64_t, std::int64_t, int)>& compute,
                   const std::function<void(std::int64_t, std::int64_t, int)>& commit) {
  if (rows == 0 || columns == 0) return;
  const std::int64_t phases = std::max(rows, columns);
  // How many phases each block has behind it. Rows and columns of a symmetric grid are the same blocks.
  std::vector<std::atomic<std::int64_t>> row_progress(static_cast<std::size_t>(phases));
  std::vector<std::atomic<std::int64_t>> other_progress(static_cast<std::size_t>(symmetric ? 0 : phases));
  auto& column_progress = symmetric ? row_progress : other_progress;
  std::atomic<std::int64_t> next{0};
  Workers workers(execution);

  workers.run([&](int worker) {
    auto wait_for = [&](std::atomic<std::int64_t>& progress, std::int64_t phase) {
      while (progress.load(std::memory_order_acquire) != phase) {
        workers.check(worker);
        std::this_thread::yield();
      }
    };
    // Tasks are handed out in the order of the phases, so whatever a worker waits for is already being computed.
    for (std::int64_t index; (index = next.fetch_add(1)) < phases * phases;) {
      const std::int64_t phase = index / phases, row = index % phases;
      const std::int64_t column = (phase - row + phases) % phases;
      if (symmetric && row > column) continue;
      workers.check(worker);
      const bool live = row < rows && column < columns;
      if (live) compute(row, column, worker);
      wait_for(row_progress[row], phase);
      if (!symmetric || row != column) wait_for(column_progress[column], phase);
      if (live) commit(row, column, worker);
      row_progress[row].store(phase + 1, std::memory_order_release);
      if (!symmetric || row != column) column_progress[column].store(phase + 1, std::memory_order_release);
    }
  });
}

}  // namespace halfgp
