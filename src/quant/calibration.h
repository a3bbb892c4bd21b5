// Runs a module on recorded calls and watches its values.
//
// The calls are one sequence: they run in order, on a copy of the states that starts from the exported contents and that each call continues. So a
// model with a KV cache is calibrated by prefilling and decoding, and the module's own initial states stay as they are.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/interpreter.h"
#include "quant/observer.h"

namespace dovetail {

// What is under way, how much of it is done, and of how much.
using ProgressFn = std::function<void(std::string_view what, size_t done, size_t total)>;

// By graph of the module: which values, and what was seen of them. f32 values only.
using WatchedValues = std::vector<std::set<ValueId>>;
using ObservedValues = std::vector<std::map<ValueId, Observer>>;

// The .npz, .npy and .safetensors files that `paths` name, in order; those of a folder sorted by name. Fails where there is none.
Result<std::vector<std::string>> ListCalls(std::span<const std::string> paths);

struct CalibrationCall {
  size_t graph = 0;  // index into Module::graphs
  std::vector<OwnedTensor> inputs;
};
// The arrays of a file as the inputs of a method, named as the program's inputs or "input_0", ... . Of several methods it is the one with the most inputs that
// the file names and whose shapes they have (then by "input_0", ...), else the first of the module. Errors name file and input.
Result<CalibrationCall> LoadCall(const Module& module, const std::string& file);

// Called with each value of graph number `graph`, inputs included.
using SeeValueFn = std::function<void(size_t graph, ValueId v, const OwnedTensor& t)>;

// Runs `files` as calls number `first_call` and up, adds what the watched values were to `observed`, and calls `see` with all. Calls of a module without
// states may be cut into shards with an `observed` each, which merge to what one go gives.
Status ObserveCalls(const Module& module, std::span<const std::string> files, size_t first_call, const WatchedValues& watched, StateStore& states,
                    ObservedValues& observed, const ProgressFn& progress = nullptr, const SeeValueFn& see = nullptr);
void MergeObserved(ObservedValues& into, const ObservedValues& from);

}  // namespace dovetail
