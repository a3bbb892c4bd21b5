// The text form of the IR: what `dovetail inspect --graph` prints and golden files hold. Parse(Print(m)) prints the same text.
//
//   module {
//     symbol s0 = 1..63
//     constant @scale : f32[2] = [0.5,1.0]
//     state @k_cache : f32[1,8,16] = zeros
//     graph @forward(%pos: i64[s0], %x: f32[1,s0,16]) {
//       %w = const @lin.weight : f32[16,16]
//       %k = linear %x, %w, _ : f32[1,s0,16]
//       %c = state.read @k_cache : f32[1,8,16]
//       %u = slice_scatter %c, %k {dim=1, start=0} : f32[1,8,16]
//       state.write @k_cache, %u
//       return %k
//     }
//   }
// Attributes equal to the schema's default are left out. Data of constants and states is `external` (not part of the text), `zeros`,
// or the elements. A comment starts with // and ends with the line.
#pragma once

#include <string>
#include <string_view>

#include "ir/graph.h"

namespace dovetail {

std::string Print(const Module& module);
// Errors name the line and column. The module is verified.
Result<Module> Parse(std::string_view text, std::string_view file_name = "text");

}  // namespace dovetail
