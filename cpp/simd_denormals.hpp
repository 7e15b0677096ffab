// Flushes denormal numbers to zero while in scope: with many features most covariances underflow, and arithmetic on
// denormals is many times slower. The thread's mode is restored on leaving.
#pragma once

#include <cstdint>

#if defined(__SSE__) || defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace halfgp {

class FlushDenormals {
 public:
  FlushDenormals() : saved_(mode()) { flush(); }
  ~FlushDenormals() { set_mode(saved_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

  // What `work` returns, called in the mode that was found: it is not ours, a signal's handler for one.
  template <class Work>
  auto suspended(const Work& work) const {
    struct Again {
      const FlushDenormals& owner;
      ~Again() { owner.flush(); }
    } const again{*this};
    set_mode(saved_);
    return work();
  }

 private:
  void flush() const { set_mode(saved_ | kFlush); }

#if defined(__SSE__) || defined(__x86_64__) || defined(_M_X64)
  using Mode = unsigned;
  static constexpr Mode kFlush = 0x8040;  // FTZ and DAZ
  static Mode mode() { return _mm_getcsr(); }
  static void set_mode(Mode mode) { _mm_setcsr(mode); }
#elif defined(__aarch64__)
  using Mode = std::uint64_t;
  static constexpr Mode kFlush = Mode{1} << 24;  // FZ
  static Mode mode() {
    Mode found;
    __asm__ volatile("mrs %0, fpcr" : "=r"(found));
    return found;
  }
  static void set_mode(Mode mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode)); }
#else
  using Mode = unsigned;
  static constexpr Mode kFlush = 0;
  static Mode mode() { return 0; }
  static void set_mode(Mode) {}
#endif

  Mode saved_;
};

}  // namespace halfgp
