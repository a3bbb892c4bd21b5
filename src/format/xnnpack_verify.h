// The semantic half of ReadXnnpackBlob's checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "format/xnnpack_generated.h"

namespace dovetail {

// `graph` has passed the flatbuffers verifier and takes `graph_bytes`.
Status VerifyXnnGraph(const xn::XNNGraph& graph, uint64_t graph_bytes, std::span<const std::byte> constants, const std::string& name);

}  // namespace dovetail
