#include "cli/inspect_qnn.h"

#include <cstdio>
#include <set>

#include "backends/qnn/api/binary_info.h"
#include "format/pte_reader.h"
#include "format/qnn_blob.h"

namespace dovetail::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string Describe(const qnn::BinaryTensor& t) {
  std::string text = t.name + ": " + qnn::DataTypeName(t.dtype) + "[";
  for (size_t i = 0; i < t.dims.size(); ++i) text += StrCat(i ? "," : "", t.dims[i]);
  text += "]";
  if (t.quantization) {
    char numbers[64];
    std::snprintf(numbers, sizeof numbers, " scale %g zero_point %d", static_cast<double>(t.quantization->scale), -t.quantization->offset);
    text += numbers;
  }
  return text;
}

Json Describe(const std::vector<qnn::BinaryTensor>& tensors) {
  Json list = Json::array();
  for (const qnn::BinaryTensor& t : tensors) list.push_back(Describe(t));
  return list;
}

void AddBinary(const Result<qnn::BinaryInfo>& info, Json* entry) {
  Json& j = *entry;
  if (!info.ok()) {
    j["graphs"] = nullptr;
    j["note"] = info.status().ToString();
    return;
  }
  if (info->soc_model) j["soc"] = qnn::DescribeSoc(info->soc_model);
  j["sdk"] = info->build;
  j["core_interface"] = qnn::ToString(info->core);
  j["htp_interface"] = qnn::ToString(info->backend);
  j["graphs"] = Json::array();
  for (const qnn::BinaryGraph& g : info->graphs) j["graphs"].push_back({{"name", g.name}, {"inputs", Describe(g.inputs)}, {"outputs", Describe(g.outputs)}});
}

Result<qnn::BinaryInfo> Read(const Result<const qnn::Library*>& library, std::span<const std::byte> binary) {
  if (!library.ok()) return library.status().Clone();
  return qnn::ReadBinaryInfo(*library.value(), binary);
}

}  // namespace

Result<Json> InspectQnn(const Program& program) {
  Json list = Json::array();
  std::set<const std::byte*> seen;
  std::optional<Result<const qnn::Library*>> library;
  for (const pte::ExecutionPlan* plan : *program.view().program().execution_plan()) {
    if (!plan->delegates()) continue;
    for (const pte::BackendDelegate* d : *plan->delegates()) {
      if (d->id()->string_view() != kQnnDelegateId) continue;
      const std::span<const std::byte> payload = program.view().DelegateData(*d);
      if (!seen.insert(payload.data()).second) continue;
      if (!library) library = qnn::Library::Open(program.source().qnn.library);
      // That the user's own path is wrong is no side note.
      if (!library->ok() && !program.source().qnn.library.empty()) return library->status().Clone();
      DT_ASSIGN_OR_RETURN(const QnnBlob blob, ReadQnnBlob(payload, StrCat("'", program.name(), "'")));
      Json entry = {{"method", plan->name()->str()}, {"soc", "not said"}, {"binary_bytes", blob.binary.size()}};
      if (d->compile_specs())
        for (const pte::CompileSpec* s : *d->compile_specs()) {
          if (s->key()->string_view() != kQnnCompileSpecKey || !s->value()) continue;
          DT_ASSIGN_OR_RETURN(const QnnSpec spec, ReadQnnCompileSpec(std::as_bytes(std::span(s->value()->data(), s->value()->size())), program.name()));
          if (spec.soc_model) entry["soc"] = qnn::DescribeSoc(spec.soc_model);
          entry["precision"] = spec.fp16 ? "fp16" : "quantized";
        }
      AddBinary(Read(*library, blob.binary), &entry);
      list.push_back(std::move(entry));
    }
  }
  return list;
}

}  // namespace dovetail::cli
