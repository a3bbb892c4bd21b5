#include "backends/xnnpack/delegate/weights_cache.h"

#include "backends/xnnpack/delegate/allocator.h"

namespace dovetail {
namespace {
constexpr size_t kNotFound = SIZE_MAX;
WeightsCache* Of(void* context) { return static_cast<WeightsCache*>(context); }
}  // namespace

// What XNNPACK calls an offset is the address itself, so that blocks never move.
WeightsCache::WeightsCache() {
  provider_.context = this;
  provider_.look_up = [](void* c, const xnn_weights_cache_look_up_key* key) { return Of(c)->LookUp(key); };
  provider_.reserve_space = [](void* c, size_t n) { return Of(c)->Reserve(n); };
  provider_.look_up_or_insert = [](void* c, const xnn_weights_cache_look_up_key* key, void* p, size_t) { return Of(c)->Insert(key, p); };
  provider_.is_finalized = [](void*) { return true; };
  provider_.offset_to_addr = [](void*, size_t offset) { return reinterpret_cast<void*>(offset); };
  provider_.delete_cache = [](void*) { return xnn_status_success; };
}

WeightsCache::~WeightsCache() {
  XnnpackFree(reserved_);
  for (const auto& [key, p] : packed_) XnnpackFree(p);
}

bool WeightsCache::Admit(const WeightUse& use) { return uses_.try_emplace({use.kernel, use.bias}, use).first->second == use; }

size_t WeightsCache::LookUp(const xnn_weights_cache_look_up_key* key) const {
  auto it = packed_.find({key->kernel, key->bias, key->seed});
  return it == packed_.end() ? kNotFound : reinterpret_cast<size_t>(it->second);
}

void* WeightsCache::Reserve(size_t size) {
  XnnpackFree(reserved_);  // of an operator that failed between the two calls
  return reserved_ = XnnpackAllocate(size + XNN_EXTRA_BYTES);
}

size_t WeightsCache::Insert(const xnn_weights_cache_look_up_key* key, void* p) {
  const auto [it, inserted] = packed_.try_emplace({key->kernel, key->bias, key->seed}, p);
  if (!inserted) XnnpackFree(p);
  reserved_ = nullptr;
  return reinterpret_cast<size_t>(it->second);
}

}  // namespace dovetail
