#include "backends/qnn/api/binary_info.h"

#include <cstdio>
#include <cstring>
#include <tuple>

#include "backends/qnn/api/tensor.h"

namespace dovetail::qnn {
namespace {

constexpr uint32_t kMostGraphs = 1024, kMostTensors = 65536, kMostDims = 8;
constexpr size_t kLongestName = 65536;
constexpr uint64_t kMostElements = uint64_t{1} << 62;

struct SystemContext {
  ~SystemContext() {
    if (handle) system->functions.context_free(handle);
  }
  const abi::SystemInterface* system;
  abi::Handle handle = nullptr;
};

Result<std::string> ReadName(const char* name, std::string_view what) {
  const size_t length = name ? strnlen(name, kLongestName) : 0;
  if (length == 0 || length == kLongestName) return Corrupt("a ", what, " of the context binary has no name, or one that is too long");
  return std::string(name, length);
}

Result<BinaryTensor> ReadTensor(const abi::Tensor& tensor) {
  if (tensor.version != 1 && tensor.version != 2)
    return Unsupported("the context binary describes a tensor by version ", tensor.version, "; versions 1 and 2 are known");
  const abi::TensorV1& t = tensor.v1;
  BinaryTensor out;
  DT_ASSIGN_OR_RETURN(out.name, ReadName(t.name, "tensor"));
  if (t.rank > kMostDims || (t.rank > 0 && !t.dims)) return Corrupt("the tensor '", out.name, "' of the context binary has ", t.rank, " dims");
  out.id = t.id;
  out.dtype = t.data_type;
  if (t.quantize.definition == abi::kQuantizeDefined && t.quantize.encoding == abi::Encoding::kScaleOffset) out.quantization = t.quantize.scale_offset;
  uint64_t elements = 1;
  for (uint32_t i = 0; i < t.rank; ++i) {
    out.dims.push_back(t.dims[i]);
    if (t.dims[i] > 0 && elements > kMostElements / t.dims[i]) return Corrupt("the tensor '", out.name, "' of the context binary is too large");
    elements *= t.dims[i];
  }
  return out;
}

Result<std::vector<BinaryTensor>> ReadTensors(const abi::Tensor* tensors, uint32_t count, const std::string& graph) {
  if (count > kMostTensors || (count > 0 && !tensors)) return Corrupt("the graph '", graph, "' of the context binary has ", count, " inputs or outputs");
  std::vector<BinaryTensor> out;
  for (uint32_t i = 0; i < count; ++i) {
    DT_ASSIGN_OR_RETURN(BinaryTensor tensor, ReadTensor(tensors[i]));
    out.push_back(std::move(tensor));
  }
  return out;
}

// "v2.51.0.260929181845" to 2.51.0.
std::optional<abi::Version> SdkVersion(const std::string& build) {
  abi::Version v;
  if (std::sscanf(build.c_str(), "v%u.%u.%u", &v.major, &v.minor, &v.patch) != 3) return std::nullopt;
  return v;
}

// The patches of interfaces do not count: they change nothing that a caller sees.
bool Newer(const abi::Version& a, const abi::Version& b) { return std::tie(a.major, a.minor) > std::tie(b.major, b.minor); }

std::string DescribeVersions(const std::string& build, const abi::Version& core, const abi::Version& backend) {
  return StrCat(build.empty() ? "an unnamed SDK" : "SDK " + build, " (core ", ToString(core), ", HTP ", ToString(backend), ")");
}

}  // namespace

uint64_t BinaryTensor::numel() const { return Numel(dims); }

const BinaryGraph* BinaryInfo::FindGraph(std::string_view name) const {
  for (const BinaryGraph& graph : graphs)
    if (graph.name == name) return &graph;
  return nullptr;
}

Result<BinaryInfo> ReadBinaryInfo(const Library& library, std::span<const std::byte> binary) {
  DT_ASSIGN_OR_RETURN(const abi::SystemInterface* system, library.System());
  SystemContext context{system};
  DT_RETURN_IF_ERROR(library.Check(system->functions.context_create(&context.handle), "QnnSystemContext_create"));
  const abi::BinaryInfo* info = nullptr;
  DT_RETURN_IF_ERROR(library.Check(system->functions.context_get_metadata(context.handle, binary.data(), binary.size(), &info),
                                   "QnnSystemContext_getMetadata"));
  if (!info) return Corrupt("QNN finds nothing in the context binary");
  if (info->version != abi::kBinaryInfoVersion)
    return Unsupported("'", library.path(), "' describes context binaries by version ", info->version, "; this Dovetail knows version ",
                       abi::kBinaryInfoVersion, " (SDK 2.47 and later)");
  if (info->backend_id != abi::kHtpBackendId)
    return Unsupported("the context binary is for QNN's backend number ", info->backend_id, ", not for HTP's (", abi::kHtpBackendId, ")");
  BinaryInfo out;
  if (info->build_id) out.build.assign(info->build_id, strnlen(info->build_id, 256));
  out.core = info->core;
  out.backend = info->backend;
  out.soc_model = info->soc_model;
  if (info->num_graphs == 0 || info->num_graphs > kMostGraphs || !info->graphs) return Corrupt("the context binary has ", info->num_graphs, " graphs");
  for (uint32_t i = 0; i < info->num_graphs; ++i) {
    const abi::GraphInfo& g = info->graphs[i];
    if (g.version == 0 || g.version > abi::kGraphInfoVersion)
      return Unsupported("'", library.path(), "' describes graphs by version ", g.version, "; versions 1 to ", abi::kGraphInfoVersion, " are known");
    BinaryGraph graph;
    DT_ASSIGN_OR_RETURN(graph.name, ReadName(g.name, "graph"));
    DT_ASSIGN_OR_RETURN(graph.inputs, ReadTensors(g.inputs, g.num_inputs, graph.name));
    DT_ASSIGN_OR_RETURN(graph.outputs, ReadTensors(g.outputs, g.num_outputs, graph.name));
    out.graphs.push_back(std::move(graph));
  }
  return out;
}

Status CheckVersion(const BinaryInfo& info, const Library& library) {
  const auto made_by = SdkVersion(info.build), have = SdkVersion(library.build());
  const bool newer_sdk = made_by && have && Newer(*made_by, *have);
  if (!newer_sdk && !Newer(info.core, library.core_version()) && !Newer(info.backend, library.backend_version())) return OkStatus();
  return Unsupported("the context binary was made by QNN ", DescribeVersions(info.build, info.core, info.backend), ", which is newer than the library '",
                     library.path(), "', ", DescribeVersions(library.build(), library.core_version(), library.backend_version()),
                     "; use a newer library, or compile the program with this one");
}

std::string DataTypeName(abi::DataType type) {
  switch (type) {
    case abi::DataType::kBool8: return "bool";
    case abi::DataType::kUint8:
    case abi::DataType::kUfixed8: return "u8";
    case abi::DataType::kInt8:
    case abi::DataType::kSfixed8: return "i8";
    case abi::DataType::kUint16:
    case abi::DataType::kUfixed16: return "u16";
    case abi::DataType::kInt16:
    case abi::DataType::kSfixed16: return "i16";
    case abi::DataType::kUint32:
    case abi::DataType::kUfixed32: return "u32";
    case abi::DataType::kInt32:
    case abi::DataType::kSfixed32: return "i32";
    case abi::DataType::kInt64: return "i64";
    case abi::DataType::kFloat16: return "f16";
    case abi::DataType::kFloat32: return "f32";
    default: break;
  }
  char text[32];
  std::snprintf(text, sizeof text, "data type 0x%x", static_cast<unsigned>(type));
  return text;
}

}  // namespace dovetail::qnn
