// Hostile bytes as tokenizer.json: loading ends in a tokenizer that encodes and decodes, or in a Status.
#include <cstddef>
#include <cstdint>

#include "llm/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto tokenizer = dovetail::Tokenizer::Parse({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!tokenizer.ok()) return 0;
  auto ids = tokenizer.value()->Encode("Hello  w\xC3\xB6rld\n<|im_end|> 123's \xF0\x9F\x98\x80", true);
  if (ids.ok()) (void)tokenizer.value()->Decode(ids.value(), false);
  return 0;
}
