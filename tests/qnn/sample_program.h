// A small program with a QNN delegate: two methods, prefill and decode, each one graph of one context, that do total = total + x on one state.
#pragma once

#include <string>
#include <vector>

#include "backends/qnn/api/library.h"
#include "format/pte_writer.h"

namespace dovetail::testing {

inline constexpr float kSampleScale = 0.01f;
inline constexpr int kSampleZeroPoint = 100;

// The context binary with these graphs, prepared by `library` for `soc`.
Result<std::vector<std::byte>> SampleBinary(const qnn::Library& library, const std::string& soc, const std::vector<std::string>& graphs);

// Each method takes x (u16[4]) and returns the state "total" (u16[4], initially 100, 101, 102, 103).
pte::ProgramDesc SampleProgram(const std::vector<std::byte>& blob, const std::vector<std::byte>& spec, const std::vector<std::string>& methods);

}  // namespace dovetail::testing
