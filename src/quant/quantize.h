// Quantization of a module by the name of a scheme. Runs on the core form, before partitioning.
//
// What changes: linears, convolutions and embeddings with constant weights become their quantized_ operators; with activations of kind
// kDynamic their inputs pass one quantize_dynamic per value, however many of them share it; with kStatic the values between them become integers too
// (static_int8.h), with kFixed all values, states among them (fixed_point.h), both with parameters from calibration calls (calibration.h). What cannot be quantized stays float, and the
// report says why. States are no constants; with int8_states those that can be are stored as i8 rows with their scales
// in a state of their own beside them (state_storage.h).
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"
#include "quant/calibration.h"
#include "quant/scheme.h"

namespace dovetail {

struct QuantizeOptions {
  const Scheme* scheme = nullptr;         // null: weights and activations stay float
  bool int8_states = false;
  std::vector<std::string> keep_float;    // globs over paths of modules, folded batch norms among them, and names of states: "layers.*.mlp.*"
  std::vector<std::string> calibration;   // .npz or .safetensors files, one call each, or folders of them; in order
  ProgressFn progress;                    // may be null
};

// What became of one layer (a linear, convolution, embedding, recurrent layer or matrix product with a constant).
struct LayerReport {
  std::string path;     // module path, a convolution's own if a batch norm was folded into it; the weight's name when there is none
  std::string op;       // "linear"
  std::string became;   // "i8 dynamic per_row x i8 per_channel"; empty: left in float
  std::string reason;   // why it was left in float
  std::string source;   // the user's line
};

struct QuantizeReport {
  std::vector<LayerReport> layers;        // in order of execution, each module path once per node
  std::vector<std::string> int8_states;   // each now i8, with its scales in a state NAME.scale
  std::vector<std::string> warnings;      // "state 'x' stays float: ..."
};

// Whether `path` matches the glob: * stands for any characters, ? for one, everything else for itself.
bool MatchesGlob(std::string_view glob, std::string_view path);
// Whether the user asked to leave the layer or state of this path in float.
bool KeptFloat(const QuantizeOptions& options, std::string_view path);

// Fails on weights that are not finite, on unreadable calibration data, and on a scheme that needs calibration and has none.
Status Quantize(Module& module, const QuantizeOptions& options, QuantizeReport& report);

}  // namespace dovetail
