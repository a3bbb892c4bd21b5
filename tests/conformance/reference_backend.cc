#include "conformance/reference_backend.h"

#include <cstring>
#include <deque>

#include "ir/interpreter.h"

namespace dovetail::testing {
namespace {

constexpr std::string_view kId = "ReferenceInterpreter";

struct Lowered {
  const Module* module;
  const Region* region;
};
std::deque<Lowered>& Table() {
  static std::deque<Lowered> table;
  return table;
}
size_t aliased_updates = 0;

Status CheckAll(const Module&, const Graph&, const Node& node) {
  return node.operands.empty() && node.op != OpId::kConst ? Unsupported("it reads no tensor") : OkStatus();
}
Status CheckUpdates(const Module&, const Graph&, const Node& node) {
  return node.op == OpId::kIndexPut || node.op == OpId::kConst ? OkStatus() : Unsupported("it is no index_put");
}
bool Always(const Module&, const Graph&, std::span<const NodeId>) { return true; }
bool AlwaysInPlace(const Module&, const Graph&, const Node&) { return true; }

// The payload is a number in the table.
Result<LoweredRegion> Lower(const Module& module, const Region& region) {
  const uint64_t index = Table().size();
  Table().push_back({&module, &region});
  LoweredRegion lowered;
  lowered.delegate_id = kId;
  lowered.payload.resize(sizeof(index));
  std::memcpy(lowered.payload.data(), &index, sizeof(index));
  return lowered;
}

const Lowered& Find(std::span<const std::byte> payload) {
  uint64_t index = 0;
  std::memcpy(&index, payload.data(), sizeof(index));
  return Table()[index];
}

class ReferenceDelegate final : public Delegate {
 public:
  explicit ReferenceDelegate(Lowered lowered) : lowered_(lowered) {}

  Status Execute(std::span<const TensorView> inputs, std::span<TensorView> outputs) override {
    std::vector<OwnedTensor> values;
    for (const TensorView& t : inputs) {
      OwnedTensor& copy = values.emplace_back(OwnedTensor::Make(t.type()));
      if (t.nbytes() > 0) std::memcpy(copy.view().data, t.data, t.nbytes());
    }
    StateStore none;
    DT_ASSIGN_OR_RETURN(const std::vector<OwnedTensor> results, Interpret(*lowered_.module, *lowered_.region->body, values, none));
    for (size_t i = 0; i < results.size(); ++i) {
      const TensorView from = results[i].view();
      const int alias = lowered_.region->aliases[i];
      if (alias >= 0) {
        if (outputs[i].data != inputs[static_cast<size_t>(alias)].data) return InvalidArgument("result ", i, " is not the memory of operand ", alias);
        ++aliased_updates;
      } else {
        for (const TensorView& t : inputs)
          if (t.data == outputs[i].data && from.nbytes() > 0) return InvalidArgument("result ", i, " is the memory of an operand, but is no alias of it");
      }
      if (from.nbytes() > outputs[i].nbytes()) return OutOfRange("result ", i, " is larger than its memory");
      outputs[i].sizes = from.sizes;
      if (from.nbytes() > 0) std::memcpy(outputs[i].data, from.data, from.nbytes());
    }
    return OkStatus();
  }

 private:
  Lowered lowered_;
};

}  // namespace

const Backend& ReferenceBackend() {
  static const Backend kBackend = {"reference", CheckAll, Always, Lower};
  return kBackend;
}
const Backend& InPlaceReferenceBackend() {
  static const Backend kBackend = {"reference", CheckAll, Always, Lower, AlwaysInPlace};
  return kBackend;
}
const Backend& StateReferenceBackend() {
  static const Backend kBackend = {"reference", CheckUpdates, Always, Lower, AlwaysInPlace};
  return kBackend;
}

const DelegateEntry kReferenceDelegate = {
    kId,
    [](const DelegateInitContext& ctx) -> Result<std::unique_ptr<Delegate>> { return std::unique_ptr<Delegate>(new ReferenceDelegate(Find(ctx.payload))); },
    [](const DelegateInitContext& ctx) -> Result<size_t> { return Find(ctx.payload).region->body->inputs.size(); }};

size_t AliasedUpdates() { return aliased_updates; }

}  // namespace dovetail::testing
