// Hostile blobs of an XNNPACK delegate: ReadXnnpackBlob either fails or gives a graph whose values and constants are there.
#include "base/check.h"
#include "format/format_samples.h"

static volatile unsigned touched;  // so that the reads below are made

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dovetail;
  auto blob = ReadXnnpackBlob(std::as_bytes(std::span(data, size)), "fuzz");
  if (!blob.ok()) return 0;
  const xn::XNNGraph& graph = *blob->graph;
  unsigned sum = 0;
  uint64_t left = 64 * uint64_t{size} + 4096;  // values may share one constant
  for (const xn::XValue* v : *graph.xvalues()) {
    const xn::XNNTensorValue* t = v->xvalue_union_as_XNNTensorValue();
    if (const auto* q = v->xvalue_union_as_XNNQuantizedTensorValue()) t = q->tensor_value();
    DT_CHECK(t);
    if (t->dims())
      for (uint32_t d : *t->dims()) sum += d;
    if (t->constant_buffer_idx() == 0) continue;
    auto bytes = XnnConstantBytes(*t);
    DT_CHECK(bytes.ok() && graph.constant_data());
    const xn::ConstantDataOffset& at = *graph.constant_data()->Get(t->constant_buffer_idx());
    if (at.offset() == kXnnNoOffset || *bytes > left) continue;
    left -= *bytes;
    for (std::byte b : blob->constants.subspan(at.offset(), *bytes)) sum += static_cast<unsigned>(b);
  }
  for (const xn::XNode* node : *graph.xnodes()) DT_CHECK(node->xnode_union());
  touched = sum;
  return 0;
}

std::vector<std::vector<uint8_t>> FuzzSeeds() {
  using namespace dovetail;
  struct Sink final : ByteSink {
    Status Write(const void* data, size_t size) override {
      bytes.insert(bytes.end(), static_cast<const uint8_t*>(data), static_cast<const uint8_t*>(data) + size);
      return OkStatus();
    }
    std::vector<uint8_t> bytes;
  };
  std::vector<std::vector<uint8_t>> seeds;
  for (bool named : {false, true}) {
    XnnConstants constants;
    const std::vector<uint8_t> graph = samples::FullyConnectedGraph(&constants, named);
    if (named) seeds.push_back(graph);
    Sink sink;
    DT_CHECK(WriteXnnpackBlob(graph, std::move(constants)).write(sink).ok());
    seeds.push_back(std::move(sink.bytes));
  }
  return seeds;
}
