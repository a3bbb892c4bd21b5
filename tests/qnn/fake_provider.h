// A QNN library of our own for the tests of error paths: it has both interfaces (libQnnHtp.so's and libQnnSystem.so's), a context binary format of its own,
// and one operator, ElementWiseAdd. What it does wrong is chosen through the struct that its function FakeQnn_control returns.
#pragma once

#include <cstdint>

#include "backends/qnn/api/abi.h"

struct FakeQnnControl {
  // The next call of this name ("QnnGraph_execute") fails with that error, after logging `log`.
  const char* fail_call = nullptr;
  uint64_t fail_error = 0;
  const char* log = nullptr;
  // The interface's, to be set before the library is opened.
  const char* build = "v2.51.0.1";
  dovetail::qnn::abi::Version core = {2, 40, 0}, backend = {5, 51, 0}, system = {1, 15, 0};
  uint32_t backend_id = dovetail::qnn::abi::kHtpBackendId;
  bool no_providers = false;
  // What the System library says of a binary.
  uint32_t info_version = 3, graph_version = 3, tensor_version = 1, binary_backend_id = dovetail::qnn::abi::kHtpBackendId;
  uint32_t num_graphs = 0, num_inputs = 0, rank = 0;  // not 0: in place of the true ones
  bool null_graphs = false, null_inputs = false, null_name = false;
  // Counted.
  uint64_t contexts_from_binary = 0;
  uint64_t overlapping_calls = 0;  // an execution, or the end of a handle, while another one is going on
  int64_t handles = 0;  // made and not freed
};

extern "C" FakeQnnControl* FakeQnn_control();
