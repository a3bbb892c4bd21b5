// Hostile blobs and compile specs of a QNN delegate: reading fails, or gives a binary inside the bytes and numbers that a chip may have.
#include "base/check.h"
#include "format/qnn_blob.h"

static volatile unsigned touched;  // so that the reads below are made

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dovetail;
  const auto bytes = std::as_bytes(std::span(data, size));
  unsigned sum = 0;
  if (auto blob = ReadQnnBlob(bytes, "fuzz"); blob.ok()) {
    DT_CHECK(!blob->binary.empty() && blob->binary.size() + kQnnHeaderSize <= size);
    for (std::byte b : blob->binary) sum += static_cast<unsigned>(b);
  }
  if (auto spec = ReadQnnCompileSpec(bytes, "fuzz"); spec.ok()) DT_CHECK(spec->soc_model <= 1 << 20 && spec->arch <= 1 << 20 && spec->vtcm_mb <= 1 << 20);
  touched = sum;
  return 0;
}

std::vector<std::vector<uint8_t>> FuzzSeeds() {
  using namespace dovetail;
  const std::vector<std::byte> blob = WriteQnnBlob(std::vector<std::byte>(40, std::byte{3}));
  const std::vector<std::byte> spec = QnnCompileSpec({57, 75, 8, true, true});
  std::vector<std::vector<uint8_t>> seeds;
  for (const std::vector<std::byte>* bytes : {&blob, &spec}) {
    const auto* begin = reinterpret_cast<const uint8_t*>(bytes->data());
    seeds.emplace_back(begin, begin + bytes->size());
  }
  return seeds;
}
