// Hostile bytes as a chat template: parsing and rendering end in a text or in a Status, within the limits.
#include <cstddef>
#include <cstdint>

#include "llm/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto parsed = dovetail::ChatTemplate::Parse({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!parsed.ok()) return 0;
  constexpr std::string_view kVariables =
      R"({"messages": [{"role": "user", "content": "a  B\n"}, {"role": "assistant", "content": "\u00e9"}],)"
      R"( "tools": [{"name": "f", "args": {"x": 1, "y": [1.5, null, true]}}], "eos_token": "</s>", "add_generation_prompt": true})";
  (void)parsed->RenderJson(kVariables, {.steps = 20'000, .bytes = 4 << 20});
  return 0;
}
