// Made-up operands for comparing two kernels, the same on every run.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace dovetail {

class SampleNumbers {
 public:
  explicit SampleNumbers(uint32_t seed = 1) : state_(seed) {}
  // 24 bits.
  uint32_t Next() { return state_ = state_ * 1664525 + 1013904223, state_ >> 8; }
  // From -2.5 to 2.5.
  float Number() { return (static_cast<float>(Next() % 20001) - 10000) / 4000; }
  void Fill(std::span<int8_t> bytes) {
    for (int8_t& x : bytes) x = static_cast<int8_t>(Next());
  }

 private:
  uint32_t state_;
};

inline constexpr size_t kPackedAlignment = 64;

// Where packed weights may begin in `memory`, which has kPackedAlignment bytes more than they take.
template <class T>
T* PackedStart(std::vector<T>& memory) {
  const size_t beyond = reinterpret_cast<uintptr_t>(memory.data()) % kPackedAlignment;
  return memory.data() + (kPackedAlignment - beyond) % kPackedAlignment / sizeof(T);
}

// Packed weights of a product, put there piece by piece.
class PackedSample {
 public:
  template <class T>
  void Put(const T& value) {
    const auto* p = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), p, p + sizeof(value));
  }
  void PutBytes(std::span<const int8_t> bytes) {
    const auto* p = reinterpret_cast<const std::byte*>(bytes.data());
    bytes_.insert(bytes_.end(), p, p + bytes.size());
  }
  void PutNumbers(SampleNumbers& random, size_t count) {
    for (size_t i = 0; i < count; ++i) Put(random.Number());
  }
  // `columns` of `inner` 4-bit weights: sums of weights, for each block its bytes and scales (bfloat16), then biases.
  void PutBlocks(SampleNumbers& random, size_t columns, size_t inner, size_t block) {
    PutNumbers(random, columns);
    for (size_t b = 0; b < inner / block; ++b) {
      for (size_t i = 0; i < block * columns / 2; ++i) Put(static_cast<uint8_t>(random.Next()));
      for (size_t i = 0; i < columns; ++i) Put(static_cast<uint16_t>(std::bit_cast<uint32_t>(random.Number()) >> 16));
    }
    PutNumbers(random, columns);
  }
  // All that was put, at an address where packed weights may begin; valid until more is put.
  const std::byte* Start() {
    aligned_.resize(bytes_.size() + kPackedAlignment);
    std::byte* const start = PackedStart(aligned_);
    std::memcpy(start, bytes_.data(), bytes_.size());
    return start;
  }

 private:
  std::vector<std::byte> bytes_, aligned_;
};

}  // namespace dovetail
