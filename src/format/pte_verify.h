// The semantic half of ReadPte's checks, shared with the writer, which applies it to what it is about to write.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "format/program_generated.h"

namespace dovetail {

// `program` has passed the flatbuffers verifier and takes `program_bytes`; `segment_bytes` follow the segment base.
Status VerifyProgram(const pte::Program& program, uint64_t program_bytes, uint64_t segment_bytes, const std::string& name);

}  // namespace dovetail
