// The XNNPACK backend: regions become blobs that ExecuTorch's XnnpackBackend runs as well as ours (format/xnnpack_blob.h).
//
// Constants of a region are stored in two ways: filters and biases, which XNNPACK packs while loading, are the program's shared data
// when large; all others are read while the graph runs and are part of the payload. The stock runtime lets go of payloads that are
// segments of a file once a delegate is loaded, so a program for it must hold these payloads in its flatbuffer.
#pragma once

#include "backends/backend.h"

namespace dovetail {

const Backend& XnnpackBackend();

}  // namespace dovetail
