// Hostile text forms: parsing either fails with a message or gives a module whose text is a fixed point.
#include "base/check.h"
#include "ir/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto module = dovetail::Parse({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!module.ok()) return 0;
  const std::string once = dovetail::Print(*module);
  auto again = dovetail::Parse(once, "again");
  DT_CHECK(again.ok());
  DT_CHECK(dovetail::Print(*again) == once);
  return 0;
}
