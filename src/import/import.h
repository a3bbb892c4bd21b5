// Reads a model that torch.export.save wrote (.pt2) into the IR.
//
// The result is in the Core form: our operators only, functional, every buffer that the model writes a State whose initial contents
// are the exported buffer bit for bit, every other tensor a Constant that refers to the file. What a caller should know:
//   - Inputs are the tensors of the export's signature under its names. Python constants and None among the inputs of the export are
//     part of the program and no inputs of the graph.
//   - Outputs are the tensors among the leaves of the result, named "output_<leaf>"; a symbolic size that the model returns is an
//     i64 tensor of rank 0; constants and None are left out. For every input that the model writes, an output "mutated.<input>" with
//     its new contents follows.
//   - Symbols keep the file's names (s27); their ranges are in Module::symbols.
//   - A complex64 tensor is an f32 tensor with one more dimension of size 2 at the end.
// Everything that cannot be imported is reported in one Status (Status::count), with operator, node and the user's source line.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "ir/graph.h"

namespace dovetail {

// `graph_name` chooses among several models in the file and names the graph; where the file holds one model it may have any name.
Result<Module> ImportPt2(const std::string& path, std::string_view graph_name = "forward");

// The same from memory, which must outlive the module. `file_name` is for messages.
Result<Module> ImportPt2Bytes(std::span<const std::byte> bytes, const std::string& file_name, std::string_view graph_name = "forward");

}  // namespace dovetail
