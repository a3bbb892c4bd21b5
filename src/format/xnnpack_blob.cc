#include "format/xnnpack_blob.h"

#include <cstring>
#include <utility>

#include "format/xnnpack_verify.h"

namespace dovetail {
namespace {

// "XH00" stands where a bare flatbuffer has its identifier, so a reader tells the two apart by bytes 4 to 8. Then u16
// header length, u32 offset and u32 size of the graph, u32 offset and u64 size of the constant data.
constexpr size_t kHeaderSize = 30, kGraphAt = 32;

template <class T>
void Store(std::vector<std::byte>& out, size_t at, T value) {
  std::memcpy(out.data() + at, &value, sizeof value);
}
template <class T>
T Load(std::span<const std::byte> in, size_t at) {
  T value;
  std::memcpy(&value, in.data() + at, sizeof value);
  return value;
}
uint64_t Align(uint64_t n) { return (n + kXnnConstantAlignment - 1) / kXnnConstantAlignment * kXnnConstantAlignment; }

}  // namespace

uint64_t XnnConstants::Add(Payload payload) {
  const uint64_t offset = Align(size_);
  size_ = offset + payload.size;
  items_.push_back({offset, std::move(payload)});
  return offset;
}

Payload WriteXnnpackBlob(std::span<const uint8_t> graph, XnnConstants constants) {
  const uint64_t constants_at = kGraphAt + Align(graph.size());
  std::vector<std::byte> head(kGraphAt);
  std::memcpy(head.data() + 4, "XH00", 4);
  Store<uint16_t>(head, 8, kHeaderSize);
  Store<uint32_t>(head, 10, kGraphAt);
  Store<uint32_t>(head, 14, static_cast<uint32_t>(graph.size()));
  Store<uint32_t>(head, 18, static_cast<uint32_t>(constants_at));
  Store<uint64_t>(head, 22, constants.size_);
  const std::byte* graph_bytes = reinterpret_cast<const std::byte*>(graph.data());
  head.insert(head.end(), graph_bytes, graph_bytes + graph.size());
  head.resize(constants_at);
  Payload blob;
  blob.size = constants_at + constants.size_;
  blob.write = [head = std::make_shared<std::vector<std::byte>>(std::move(head)), items = std::move(constants.items_)](ByteSink& sink) -> Status {
    DT_RETURN_IF_ERROR(sink.Write(head->data(), head->size()));
    uint64_t at = 0;
    for (const XnnConstants::Item& item : items) {
      DT_RETURN_IF_ERROR(WriteZeros(sink, item.offset - at));
      if (item.payload.write) DT_RETURN_IF_ERROR(item.payload.write(sink));
      at = item.offset + item.payload.size;
    }
    return OkStatus();
  };
  return blob;
}

Result<XnnpackBlob> ReadXnnpackBlob(std::span<const std::byte> bytes, const std::string& name) {
  if (reinterpret_cast<uintptr_t>(bytes.data()) % 8 != 0) return InvalidArgument(name, ": the blob must start at a multiple of 8");
  if (bytes.size() < 8) return Corrupt(name, ": ", bytes.size(), " bytes are no XNNPACK blob");
  XnnpackBlob blob;
  std::span<const std::byte> graph = bytes;  // without a header the flatbuffer is all there is
  if (std::memcmp(bytes.data() + 4, "XH00", 4) == 0) {
    if (bytes.size() < kHeaderSize) return Corrupt(name, ": the XNNPACK header is cut off");
    if (Load<uint16_t>(bytes, 8) < kHeaderSize) return Corrupt(name, ": the XNNPACK header's length is ", Load<uint16_t>(bytes, 8));
    const uint64_t graph_at = Load<uint32_t>(bytes, 10), graph_size = Load<uint32_t>(bytes, 14);
    const uint64_t constants_at = Load<uint32_t>(bytes, 18), constants_size = Load<uint64_t>(bytes, 22);
    if (graph_at > bytes.size() || graph_size > bytes.size() - graph_at)
      return Corrupt(name, ": the graph (", graph_size, " bytes at ", graph_at, ") passes the end of the blob (", bytes.size(), " bytes)");
    if (constants_at > bytes.size() || constants_size > bytes.size() - constants_at)
      return Corrupt(name, ": the constant data (", constants_size, " bytes at ", constants_at, ") pass the end of the blob (", bytes.size(), " bytes)");
    if (graph_at % 8 != 0) return Corrupt(name, ": the graph is at ", graph_at, ", not a multiple of 8");
    graph = bytes.subspan(graph_at, graph_size);
    blob.constants = bytes.subspan(constants_at, constants_size);
  }
  if (graph.size() < 8 || std::memcmp(graph.data() + 4, xn::XNNGraphIdentifier(), 4) != 0) {
    const std::string found = graph.size() < 8 ? "" : std::string(reinterpret_cast<const char*>(graph.data()) + 4, 4);
    if (found == "XN00") return Unsupported(name, ": the XNNPACK graph is of the old format XN00; export it again with ExecuTorch 1.0 or newer");
    return Corrupt(name, ": no XNNPACK graph (identifier ", xn::XNNGraphIdentifier(), ") in the blob");
  }
  if (graph.size() >= FLATBUFFERS_MAX_BUFFER_SIZE) return Unsupported(name, ": the XNNPACK graph is over 2 GiB");
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(graph.data()), graph.size(), 64,
                                 static_cast<flatbuffers::uoffset_t>(graph.size() / 4 + 16));
  if (!xn::VerifyXNNGraphBuffer(verifier)) return Corrupt(name, ": the XNNPACK graph is damaged (flatbuffers verification failed)");
  blob.graph = xn::GetXNNGraph(graph.data());
  DT_RETURN_IF_ERROR(VerifyXnnGraph(*blob.graph, graph.size(), blob.constants, name));
  return blob;
}

Result<uint64_t> XnnConstantBytes(const xn::XNNTensorValue& value) {
  uint64_t bytes = 1;
  bool packed_pairs = false;
  switch (value.datatype()) {
    case xn::XNNDatatype::xnn_datatype_fp32:
    case xn::XNNDatatype::xnn_datatype_qint32:
    case xn::XNNDatatype::xnn_datatype_qcint32:
    case xn::XNNDatatype::xnn_datatype_int32: bytes = 4; break;
    case xn::XNNDatatype::xnn_datatype_fp16:
    case xn::XNNDatatype::xnn_datatype_bf16: bytes = 2; break;
    case xn::XNNDatatype::xnn_datatype_qint8:
    case xn::XNNDatatype::xnn_datatype_quint8:
    case xn::XNNDatatype::xnn_datatype_qcint8: break;
    case xn::XNNDatatype::xnn_datatype_qcint4:
    case xn::XNNDatatype::xnn_datatype_qbint4: packed_pairs = true; break;
    default: return Corrupt("a constant cannot have datatype ", static_cast<int>(value.datatype()));
  }
  const uint32_t rank = value.dims() ? value.dims()->size() : 0;
  for (uint32_t i = 0; i < rank; ++i) {
    uint64_t size = value.dims()->Get(i);
    if (packed_pairs && i + 1 == rank) size = (size + 1) / 2;  // each row starts at a byte
    if (size > 1 && bytes > (uint64_t{1} << 62) / size) return Corrupt("the product of dims overflows");
    bytes *= size;
  }
  return bytes;
}

}  // namespace dovetail
