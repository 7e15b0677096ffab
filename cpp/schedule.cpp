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

// A queue for every block: who has entered it before leaves before.
class Queues {
 public:
  explicit Queues(std::int64_t blocks) : entered_(static_cast<std::size_t>(blocks)), left_(static_cast<std::size_t>(blocks)) {}

  std::int64_t enter(std::int64_t block) { return entered_[static_cast<std::size_t>(block)]++; }
  template <class Patience>
  void wait(std::int64_t block, std::int64_t ticket, Patience patience) const {
    while (left_[static_cast<std::size_t>(block)].load(std::memory_order_acquire) != ticket) {
      patience();
      std::this_thread::yield();
    }
  }
  void leave(std::int64_t block) { left_[static_cast<std::size_t>(block)].fetch_add(1, std::memory_order_release); }

 private:
  std::vector<std::int64_t> entered_;
  std::vector<std::atomic<std::int64_t>> left_;
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

void for_each_pair(const BlockPairs& pairs, const Execution& execution,
                   const std::function<void(std::int64_t, std::int64_t, int)>& compute,
                   const std::function<void(std::int64_t, std::int64_t, int)>& commit) {
  Queues rows(pairs.end()), others(pairs.symmetric() ? 0 : pairs.end());
  Queues& columns = pairs.symmetric() ? rows : others;  // of a symmetric grid the same blocks
  BlockPairs::Cursor cursor(pairs);
  std::mutex mutex;
  Workers workers(execution);

  workers.run([&](int worker) {
    // Tickets are given in the order of the pairs, so whatever a worker waits for is already being computed.
    for (BlockPair at{};;) {
      std::int64_t row_ticket, column_ticket = 0;
      bool two;  // blocks
      {
        const std::lock_guard<std::mutex> lock(mutex);
        if (!cursor.next(at)) return;
        row_ticket = rows.enter(at.row);
        two = !pairs.symmetric() || at.row != at.column;
        if (two) column_ticket = columns.enter(at.column);
      }
      workers.check(worker);
      compute(at.row, at.column, worker);
      auto patience = [&] { workers.check(worker); };
      rows.wait(at.row, row_ticket, patience);
      if (two) columns.wait(at.column, column_ticket, patience);
      commit(at.row, at.column, worker);
      rows.leave(at.row);
      if (two) columns.leave(at.column);
    }
  });
}

}  // namespace halfgp
