// The blob of an XNNPACK delegate: a 30-byte header "XH00" padded to 32, the XNNGraph flatbuffer (identifier XN01),
// padding to 16, then constant data. The same bytes run in ExecuTorch's XnnpackBackend and in ours.
//
// A weight is either in the blob's constant data or, better, in the program's named data: a weight that several
// delegates use is then stored once. ConstantDataOffset says which (xnnpack.fbs).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/payload.h"
#include "format/xnnpack_generated.h"

namespace dovetail {

inline constexpr uint32_t kXnnInvalidId = 0xffffffffu;
inline constexpr uint64_t kXnnNoOffset = ~uint64_t{0};  // ConstantDataOffset.offset of a constant in named data
inline constexpr size_t kXnnConstantAlignment = 16;
inline constexpr const char* kXnnpackDelegateId = "XnnpackBackend";

// Writing. Add the constants that stay in the blob, use the offsets returned in the graph's ConstantDataOffset table,
// then join both:
//   XnnConstants constants;
//   uint64_t offset = constants.Add(Payload::Borrowed(scales));
//   ... build the graph, finish it with xn::FinishXNNGraphBuffer ...
//   Payload blob = WriteXnnpackBlob({fbb.GetBufferPointer(), fbb.GetSize()}, std::move(constants));
class XnnConstants {
 public:
  uint64_t Add(Payload payload);  // the offset from the start of the constant data, aligned to 16
  uint64_t size() const { return size_; }

 private:
  friend Payload WriteXnnpackBlob(std::span<const uint8_t> graph, XnnConstants constants);
  struct Item {
    uint64_t offset;
    Payload payload;
  };
  std::vector<Item> items_;
  uint64_t size_ = 0;
};

// Copies the graph; the constants' payloads are written when the program is.
Payload WriteXnnpackBlob(std::span<const uint8_t> graph, XnnConstants constants = {});

// Reading. A view into the bytes given, which must outlive it.
struct XnnpackBlob {
  const xn::XNNGraph* graph = nullptr;
  std::span<const std::byte> constants;
};

// Checks everything that a delegate would otherwise check while it runs over the graph: structure; every value and node
// present; ids of values unique and in range; dims, flags, datatypes and quantization parameters of plausible sizes; node
// operands that name existing values; constants inside the blob, and as large as the type of their value needs. Constants
// in named data have their size field checked here; that the key exists is for the delegate, which has the program.
// `name` starts error messages ("delegate 3 of 'model.pte'"). The bytes must start at an address that is a multiple of 8.
Result<XnnpackBlob> ReadXnnpackBlob(std::span<const std::byte> bytes, const std::string& name);

// Bytes that `value` takes as a constant: 4-bit types are packed two to a byte, per-row and unknown types fail.
Result<uint64_t> XnnConstantBytes(const xn::XNNTensorValue& value);

}  // namespace dovetail
