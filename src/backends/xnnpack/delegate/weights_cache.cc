#include "backends/xnnpack/delegate/weights_cache.h"

#include <algorithm>
#include <bit>

namespace dovetail {
namespace {
constexpr size_t kNotFound = SIZE_MAX;
constexpr ptrdiff_t kMaxPadding = 64;  // between constants of a program
WeightsCache* Of(void* context) { return static_cast<WeightsCache*>(context); }
}  // namespace

// What XNNPACK calls an offset is the address itself: blocks never move.
WeightsCache::WeightsCache(const ProgramSource* program) : program_(program), packed_(program) {
  provider_.context = this;
  provider_.look_up = [](void* c, const xnn_weights_cache_look_up_key* key) { return Of(c)->LookUp(key); };
  provider_.reserve_space = [](void* c, size_t n) -> void* { return Of(c)->packed_.Reserve(n); };
  provider_.look_up_or_insert = [](void* c, const xnn_weights_cache_look_up_key* key, void* p, size_t n) { return Of(c)->Insert(key, p, n); };
  provider_.is_finalized = [](void*) { return true; };
  provider_.offset_to_addr = [](void*, size_t offset) { return reinterpret_cast<void*>(offset); };
  provider_.delete_cache = [](void*) { return xnn_status_success; };
}

bool WeightsCache::Admit(const WeightUse& use) { return uses_.try_emplace(use.kernel, use).first->second == use; }

void WeightsCache::MethodLoaded() {
  if (!damaged_) packed_.Settle();
  // Neighbours are let go together: released by itself, each would keep the pages at its ends, and reading the next one's scales maps pages around them.
  std::sort(sources_.begin(), sources_.end(), [](const auto& a, const auto& b) { return a.data() < b.data(); });
  for (size_t i = 0; i < sources_.size() && program_ && program_->file;) {
    const std::byte *begin = sources_[i].data(), *end = begin + sources_[i].size();
    while (++i < sources_.size() && sources_[i].data() <= end + kMaxPadding) end = std::max(end, sources_[i].data() + sources_[i].size());
    program_->file->Release({begin, end});
  }
  sources_.clear();
}

bool WeightsCache::PersistentKey(const Key& key, Hash128* hash) const {
  const auto use = uses_.find(std::get<0>(key));
  if (!program_ || use == uses_.end()) return false;
  const WeightUse& u = use->second;
  std::array<uint64_t, 16 + XNN_MAX_TENSOR_DIMS> words{};
  size_t n = 0;
  for (const void* p : {u.kernel, u.bias, u.scales}) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(p), begin = reinterpret_cast<uintptr_t>(program_->image.data());
    if (p && (at < begin || at >= begin + program_->image.size())) return false;
    words[n++] = p ? at - begin : UINT64_MAX;
  }
  for (uint64_t v : {uint64_t{std::get<2>(key)}, uint64_t{u.node_kind}, uint64_t{u.flags}, uint64_t{u.groups}, uint64_t{u.datatype}, uint64_t{u.rank},
                     uint64_t{std::bit_cast<uint32_t>(u.input_scale)}, uint64_t{std::bit_cast<uint32_t>(u.output_scale)},
                     uint64_t{std::bit_cast<uint32_t>(u.input_zero_point)}})
    words[n++] = v;
  for (size_t d : u.dims) words[n++] = d;
  *hash = HashBytes(words.data(), n * sizeof(words[0]));
  return true;
}

size_t WeightsCache::LookUp(const xnn_weights_cache_look_up_key* key) {
  const Key k{key->kernel, key->bias, key->seed};
  if (auto it = known_.find(k); it != known_.end()) return reinterpret_cast<size_t>(it->second);
  Hash128 hash;
  if (!PersistentKey(k, &hash)) return kNotFound;
  const std::byte* p = packed_.Find(hash);
  if (!p) return kNotFound;
  known_.emplace(k, p);
  return reinterpret_cast<size_t>(p);
}

size_t WeightsCache::Insert(const xnn_weights_cache_look_up_key* key, void* p, size_t size) {
  const Key k{key->kernel, key->bias, key->seed};
  const auto [it, inserted] = known_.try_emplace(k, p);
  if (inserted) {
    Hash128 hash;
    const bool persistent = PersistentKey(k, &hash);
    packed_.Keep(size, persistent ? &hash : nullptr);
  }
  return reinterpret_cast<size_t>(it->second);
}

}  // namespace dovetail
