// Aligned memory, zeroed on request, in large pages where the system has them (faults on small ones cost more than the
// arithmetic when entries are stored).
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include "program.hpp"

namespace halfgp {

class Memory {
 public:
  Memory() = default;
  explicit Memory(std::size_t bytes) {
    if (bytes == 0) return;
    constexpr std::size_t large = std::size_t{2} << 20;
    const std::size_t alignment = bytes >= 8 * large ? large : kAlignment;
    const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    data_ = std::aligned_alloc(alignment, rounded);
    if (!data_) throw std::bad_alloc();
#ifdef __linux__
    if (alignment == large) madvise(data_, rounded, MADV_HUGEPAGE);  // a wish, not a need
#endif
    bytes_ = bytes;
  }
  static Memory zeroed(std::size_t bytes) {
    Memory memory(bytes);
    if (bytes) std::memset(memory.data_, 0, bytes);
    return memory;
  }
  Memory(Memory&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Memory() { std::free(data_); }

  template <class T>
  T* as() {
    return static_cast<T*>(data_);
  }
  template <class T>
  const T* as() const {
    return static_cast<const T*>(data_);
  }
  std::byte* bytes_at(std::size_t offset) { return static_cast<std::byte*>(data_) + offset; }
  const std::byte* bytes_at(std::size_t offset) const { return static_cast<const std::byte*>(data_) + offset; }
  std::size_t size() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace halfgp
