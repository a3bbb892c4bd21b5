#include "cli/weights_of.h"

#include <set>

#include "format/scalar_type.h"
#include "format/xnnpack_blob.h"

namespace dovetail::cli {
namespace {

class Counter {
 public:
  explicit Counter(const PteView& program) : program_(program) {}
  std::map<std::string, WeightTotal> Run() {
    for (const pte::ExecutionPlan* plan : *program_.program().execution_plan()) {
      for (const pte::EValue* value : *plan->values())
        if (const pte::Tensor* t = value->val_as_Tensor(); t && IsConstant(*t))
          Add(std::string(Name(FromScalarType(t->scalar_type()))), program_.ConstantData(*t).data(), TensorBytes(*t));
      if (!plan->delegates()) continue;
      for (const pte::BackendDelegate* d : *plan->delegates())
        if (d->id()->string_view() == kXnnpackDelegateId) AddBlob(program_.DelegateData(*d));
    }
    return std::move(totals_);
  }

 private:
  void Add(const std::string& type, const void* data, uint64_t bytes) {
    if (data && !seen_.insert(data).second) return;
    ++totals_[type].count;
    totals_[type].bytes += bytes;
  }
  static std::string TypeName(xn::XNNDatatype type) {
    const std::string name = xn::EnumNameXNNDatatype(type), prefix = "xnn_datatype_";
    const std::string rest = name.starts_with(prefix) ? name.substr(prefix.size()) : name;
    return rest == "fp32" ? "f32" : rest == "fp16" ? "f16" : rest;
  }
  void AddBlob(std::span<const std::byte> bytes) {
    const auto blob = ReadXnnpackBlob(bytes, "delegate");
    if (!blob.ok()) return;
    for (const xn::XValue* value : *blob->graph->xvalues()) {
      const xn::XNNTensorValue* t = value->xvalue_union_as_XNNTensorValue();
      if (const auto* quantized = value->xvalue_union_as_XNNQuantizedTensorValue()) t = quantized->tensor_value();
      if (!t || t->constant_buffer_idx() == 0) continue;
      const auto size = XnnConstantBytes(*t);
      const xn::ConstantDataOffset* at = blob->graph->constant_data() ? blob->graph->constant_data()->Get(t->constant_buffer_idx()) : nullptr;
      if (!size.ok() || !at) continue;
      const std::byte* data = at->offset() == kXnnNoOffset ? nullptr : blob->constants.data() + at->offset();
      if (!data && at->named_key())
        if (const auto named = program_.FindNamedData(at->named_key()->string_view())) data = named->data();
      Add(TypeName(t->datatype()), data, *size);
    }
  }

  const PteView& program_;
  std::set<const void*> seen_;
  std::map<std::string, WeightTotal> totals_;
};

}  // namespace

std::map<std::string, WeightTotal> WeightsOf(const PteView& program) { return Counter(program).Run(); }

}  // namespace dovetail::cli
