// Packed weights, shared by the delegates of a Program: a weight that several of them use is packed and held once.
//
// XNNPACK asks for a packed form by the address of its source and a hash of how it is packed. Addresses stand for contents, so a
// cache must not outlive the Program whose bytes they are. In a cache file, where a Program's bytes have no addresses, places in the program do.
#pragma once

#include <xnnpack.h>

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "backends/xnnpack/delegate/packed_weights.h"
#include "runtime/delegate.h"

namespace dovetail {

// How one node uses a source. What decides about the packed form is more than XNNPACK's key says.
struct WeightUse {
  const void *kernel = nullptr, *bias = nullptr, *scales = nullptr;
  uint32_t node_kind = 0, flags = 0, groups = 1, datatype = 0, rank = 0;
  std::array<size_t, XNN_MAX_TENSOR_DIMS> dims{};
  float input_scale = 0, output_scale = 0;
  int32_t input_zero_point = 0;
  bool operator==(const WeightUse&) const = default;
};

// Not thread safe while delegates are created (the loader creates them one at a time); Execute only reads.
class WeightsCache final : public DelegateShared {
 public:
  // `program` may be null and must outlive this.
  explicit WeightsCache(const ProgramSource* program);
  WeightsCache(const WeightsCache&) = delete;
  WeightsCache& operator=(const WeightsCache&) = delete;

  xnn_weights_cache_t provider() { return &provider_; }
  // Whether the same kernel was always used like this, with this bias. If not, the graph at hand must be created without the cache,
  // since two packed forms could be taken for one another. (Graphs made by us never do that.)
  bool Admit(const WeightUse& use);
  // Bytes of the program that are packed now.
  void AddSources(std::span<const std::span<const std::byte>> sources) { sources_.insert(sources_.end(), sources.begin(), sources.end()); }
  void MethodLoaded() override;
  // Something that was packed is damaged: nothing goes to the cache file any more, and no other delegate may use what is here.
  void Refuse() { damaged_ = true; }
  bool damaged() const { return damaged_; }
  PackedWeights& packed() { return packed_; }

 private:
  using Key = std::tuple<const void*, const void*, uint32_t>;
  size_t LookUp(const xnn_weights_cache_look_up_key* key);
  size_t Insert(const xnn_weights_cache_look_up_key* key, void* p, size_t size);
  // False if a part of it lies outside the program.
  bool PersistentKey(const Key& key, Hash128* hash) const;

  const ProgramSource* program_;
  PackedWeights packed_;
  bool damaged_ = false;
  std::map<Key, const void*> known_;
  std::map<const void*, WeightUse> uses_;  // by kernel: of some operators XNNPACK's key leaves the bias out
  std::vector<std::span<const std::byte>> sources_;  // of the method being loaded
  xnn_weights_cache_provider provider_{};
};

}  // namespace dovetail
