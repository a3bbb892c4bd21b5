// Zeroed memory for tensors: starts at a multiple of 64, and kernels may read up to kReadableSlack bytes past its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>

namespace dovetail {

inline constexpr size_t kMemoryAlignment = 64;
inline constexpr size_t kReadableSlack = 64;

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  AlignedBuffer(AlignedBuffer&& other) noexcept { *this = std::move(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(block_, other.block_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~AlignedBuffer() { std::free(block_); }

  // Drops what was held. False when there is no such memory. Pages of a large block are taken when they are first touched.
  bool Allocate(size_t size) {
    std::free(block_);
    block_ = data_ = nullptr;
    size_ = 0;
    if (size > SIZE_MAX / 2) return false;
    block_ = std::calloc(1, size + kReadableSlack + kMemoryAlignment);
    if (!block_) return false;
    const uintptr_t start = reinterpret_cast<uintptr_t>(block_);
    data_ = reinterpret_cast<void*>((start + kMemoryAlignment - 1) / kMemoryAlignment * kMemoryAlignment);
    size_ = size;
    return true;
  }
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t size() const { return size_; }

 private:
  void* block_ = nullptr;
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace dovetail
