#include "format/meta.h"

#include <cstring>
#include <map>

#include "format/meta_generated.h"

namespace dovetail {
namespace {

constexpr uint32_t kVersion = 1;

using Arguments = flatbuffers::Vector<flatbuffers::Offset<meta::Argument>>;

flatbuffers::Offset<Arguments> Write(flatbuffers::FlatBufferBuilder& b, const std::vector<MetaArgument>& arguments) {
  std::vector<flatbuffers::Offset<meta::Argument>> out;
  for (const MetaArgument& a : arguments) {
    std::vector<flatbuffers::Offset<flatbuffers::String>> dims;
    for (Dim d : a.shape.dims()) dims.push_back(b.CreateSharedString(d.ToString()));
    out.push_back(meta::CreateArgument(b, b.CreateString(a.name), b.CreateVector(dims)));
  }
  return b.CreateVector(out);
}

std::string Text(const flatbuffers::String* s) { return s ? s->str() : std::string(); }

Result<std::vector<MetaArgument>> Read(const Arguments* arguments, const std::string& name) {
  std::vector<MetaArgument> out;
  if (!arguments) return out;
  for (const meta::Argument* a : *arguments) {
    MetaArgument argument{Text(a->name()), {}};
    for (uint32_t d = 0; a->shape() && d < a->shape()->size(); ++d) {
      if (d >= kMaxRank) return Corrupt("'", name, "': ", kMetaKey, " has an argument '", argument.name, "' of rank ", a->shape()->size());
      Result<Dim> dim = Dim::Parse(a->shape()->Get(d)->string_view());
      if (!dim.ok()) return Corrupt("'", name, "': ", kMetaKey, " has the dimension '", a->shape()->Get(d)->str(), "', which is no expression");
      argument.shape.push_back(*dim);
    }
    out.push_back(std::move(argument));
  }
  return out;
}

Result<MetaMethod> Read(const meta::Method& m, const std::string& name) {
  MetaMethod out;
  out.name = Text(m.name());
  DT_ASSIGN_OR_RETURN(out.inputs, Read(m.inputs(), name));
  DT_ASSIGN_OR_RETURN(out.outputs, Read(m.outputs(), name));
  if (m.instruction_source()) {
    for (uint32_t s : *m.instruction_source()) out.instruction_sources.push_back(m.sources() && s < m.sources()->size() ? Text(m.sources()->Get(s)) : "");
  }
  return out;
}

}  // namespace

std::vector<std::byte> SerializeMeta(const MetaProgram& program) {
  flatbuffers::FlatBufferBuilder b;
  std::vector<flatbuffers::Offset<meta::Symbol>> symbols;
  for (const auto& [name, range] : program.symbols) symbols.push_back(meta::CreateSymbol(b, b.CreateString(name), range.min, range.max));
  std::vector<flatbuffers::Offset<meta::Method>> methods;
  for (const MetaMethod& m : program.methods) {
    std::map<std::string_view, uint32_t> known;
    std::vector<flatbuffers::Offset<flatbuffers::String>> sources;
    std::vector<uint32_t> of_instruction;
    for (const std::string& source : m.instruction_sources) {
      if (source.empty()) {
        of_instruction.push_back(UINT32_MAX);
        continue;
      }
      auto [it, added] = known.try_emplace(source, static_cast<uint32_t>(sources.size()));
      if (added) sources.push_back(b.CreateString(source));
      of_instruction.push_back(it->second);
    }
    const auto inputs = Write(b, m.inputs), outputs = Write(b, m.outputs);
    methods.push_back(meta::CreateMethod(b, b.CreateString(m.name), inputs, outputs, b.CreateVector(sources), b.CreateVector(of_instruction)));
  }
  flatbuffers::Offset<meta::Quantization> quantization;
  if (const QuantizationInfo& q = program.quantization; !q.scheme.empty() || !q.state.empty())
    quantization = meta::CreateQuantization(b, b.CreateString(q.scheme), b.CreateString(q.state), b.CreateVectorOfStrings(q.keep_float));
  meta::FinishMetaBuffer(b, meta::CreateMeta(b, kVersion, b.CreateVector(symbols), b.CreateVector(methods), quantization));
  const auto* begin = reinterpret_cast<const std::byte*>(b.GetBufferPointer());
  return {begin, begin + b.GetSize()};
}

Result<MetaProgram> ReadMeta(std::span<const std::byte> bytes, const std::string& name) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  flatbuffers::Verifier verifier(data, bytes.size());
  if (bytes.size() < 8 || !meta::MetaBufferHasIdentifier(data) || !meta::VerifyMetaBuffer(verifier)) return Corrupt("'", name, "': ", kMetaKey, " is damaged");
  const meta::Meta& in = *meta::GetMeta(data);
  if (in.version() > kVersion)
    return Unsupported("'", name, "' was made by a later Dovetail: its ", kMetaKey, " has version ", in.version(), ", this runtime reads up to ", kVersion);
  MetaProgram out;
  if (in.symbols())
    for (const meta::Symbol* s : *in.symbols()) out.symbols[Text(s->name())] = {s->min(), s->max()};
  if (in.methods()) {
    for (const meta::Method* m : *in.methods()) {
      DT_ASSIGN_OR_RETURN(MetaMethod method, Read(*m, name));
      out.methods.push_back(std::move(method));
    }
  }
  if (const meta::Quantization* q = in.quantization()) {
    out.quantization = {Text(q->scheme()), Text(q->state()), {}};
    for (uint32_t i = 0; q->keep_float() && i < q->keep_float()->size(); ++i) out.quantization.keep_float.push_back(q->keep_float()->Get(i)->str());
  }
  return out;
}

}  // namespace dovetail
