#include "format/pte_hashes.h"

#include <xxhash.h>

namespace dovetail {

struct HashingSink::State {
  XXH3_state_t xxh;
};

uint64_t HashPart(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

HashingSink::HashingSink(ByteSink& out) : out_(out), state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh); }
HashingSink::~HashingSink() = default;

Status HashingSink::Write(const void* data, size_t size) {
  XXH3_64bits_update(&state_->xxh, data, size);
  return out_.Write(data, size);
}

uint64_t HashingSink::Take() {
  const uint64_t hash = XXH3_64bits_digest(&state_->xxh);
  XXH3_64bits_reset(&state_->xxh);
  return hash;
}

}  // namespace dovetail
