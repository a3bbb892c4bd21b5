// A contiguous tensor in memory that someone else owns: what kernels read and write.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/tensor_type.h"

namespace dovetail {

// Row-major, no strides. dtype kNone and data null stand for an absent optional tensor. Copying one never allocates.
struct TensorView {
  DType dtype = DType::kNone;
  uint8_t rank = 0;
  std::array<int64_t, kMaxRank> sizes{};
  void* data = nullptr;

  TensorView() = default;
  TensorView(DType t, std::span<const int64_t> shape, void* p) : dtype(t), rank(static_cast<uint8_t>(shape.size())), data(p) {
    for (size_t i = 0; i < shape.size(); ++i) sizes[i] = shape[i];
  }
  bool present() const { return dtype != DType::kNone; }
  std::span<const int64_t> shape() const { return {sizes.data(), rank}; }
  int64_t numel() const {
    int64_t n = 1;
    for (size_t i = 0; i < rank; ++i) n *= sizes[i];
    return n;
  }
  size_t nbytes() const { return static_cast<size_t>(numel()) * ByteSize(dtype); }
  // Number of elements after dimension i.
  int64_t stride(size_t i) const {
    int64_t n = 1;
    for (size_t k = i + 1; k < rank; ++k) n *= sizes[k];
    return n;
  }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  TensorType type() const { return TensorType(dtype, Shape(shape())); }
};

}  // namespace dovetail
