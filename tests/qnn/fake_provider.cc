#include "qnn/fake_provider.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using namespace dovetail::qnn::abi;

constexpr ErrorHandle kMemAlloc = 1002, kInvalidArgument = 1003, kInvalidBinary = 5001, kNotFound = 6005, kBadNode = 6001;
constexpr uint32_t kMagic = 0x454b4146;  // "FAKE"

FakeQnnControl control;
LogCallback log_callback = nullptr;

void Log(const char* format, ...) {
  if (!log_callback) return;
  __builtin_va_list arguments;
  __builtin_va_start(arguments, format);
  log_callback(format, LogLevel::kError, 0, arguments);
  __builtin_va_end(arguments);
}

// The error that `call` is to fail with; 0: none.
ErrorHandle Fails(const char* call) {
  if (!control.fail_call || std::strcmp(control.fail_call, call) != 0) return 0;
  control.fail_call = nullptr;
  if (control.log) Log("<E> %s\n", control.log);
  return control.fail_error;
}

// Lives as long as a call that no other may overlap.
class Alone {
 public:
  Alone() {
    if (busy_.exchange(true)) ++control.overlapping_calls;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  ~Alone() { busy_ = false; }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

 private:
  static inline std::atomic<bool> busy_ = false;
};

struct Value {
  std::string name;
  TensorV1 t;
  std::vector<uint32_t> dims;
  uint64_t numel() const {
    uint64_t n = 1;
    for (uint32_t d : dims) n *= d;
    return n;
  }
};
struct Graph {
  std::string name;
  std::vector<Value> values;  // by id
  struct Node {
    uint32_t a, b, out;
  };
  std::vector<Node> nodes;
};
struct Context {
  std::vector<std::unique_ptr<Graph>> graphs;
  uint32_t soc = 0;
};
uint32_t device_soc = 0;

// ---- the binary: magic, checksum, versions, soc, graphs
class Writer {
 public:
  void U32(uint32_t v) { bytes.append(reinterpret_cast<const char*>(&v), 4); }
  void Text(const std::string& s) {
    U32(static_cast<uint32_t>(s.size()));
    bytes += s;
  }
  std::string bytes;
};
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  uint32_t U32() {
    uint32_t v = 0;
    if (bytes_.size() - at_ < 4) ok = false;
    else std::memcpy(&v, bytes_.data() + at_, 4), at_ += 4;
    return v;
  }
  std::string Text() {
    const uint32_t n = U32();
    if (!ok || bytes_.size() - at_ < n) return ok = false, std::string();
    at_ += n;
    return std::string(bytes_.substr(at_ - n, n));
  }
  bool ok = true;

 private:
  std::string_view bytes_;
  size_t at_ = 0;
};
uint32_t Checksum(std::string_view bytes) {
  uint32_t sum = 1;
  for (char c : bytes) sum = sum * 31 + static_cast<unsigned char>(c);
  return sum;
}

std::string Serialize(const Context& context) {
  Writer w;
  for (uint32_t v : {control.core.major, control.core.minor, control.core.patch, control.backend.major, control.backend.minor, control.backend.patch}) w.U32(v);
  w.Text(control.build);
  w.U32(context.soc);
  w.U32(static_cast<uint32_t>(context.graphs.size()));
  for (const auto& g : context.graphs) {
    w.Text(g->name);
    w.U32(static_cast<uint32_t>(g->values.size()));
    for (const Value& v : g->values) {
      w.Text(v.name);
      w.U32(static_cast<uint32_t>(v.t.kind));
      w.U32(static_cast<uint32_t>(v.t.data_type));
      uint32_t quantize[4];
      std::memcpy(quantize, &v.t.quantize, sizeof quantize);
      for (uint32_t q : quantize) w.U32(q);
      w.U32(static_cast<uint32_t>(v.dims.size()));
      for (uint32_t d : v.dims) w.U32(d);
    }
    w.U32(static_cast<uint32_t>(g->nodes.size()));
    for (const Graph::Node& n : g->nodes)
      for (uint32_t id : {n.a, n.b, n.out}) w.U32(id);
  }
  Writer head;
  head.U32(kMagic);
  head.U32(Checksum(w.bytes));
  return head.bytes + w.bytes;
}

struct Parsed {
  Context context;
  Version core, backend;
  std::string build;
};
std::unique_ptr<Parsed> Parse(const void* binary, uint64_t size) {
  const std::string_view bytes(static_cast<const char*>(binary), size);
  Reader head(bytes.substr(0, 8));
  if (head.U32() != kMagic || head.U32() != Checksum(bytes.substr(std::min<size_t>(8, size))) || !head.ok) return nullptr;
  Reader r(bytes.substr(8));
  auto parsed = std::make_unique<Parsed>();
  for (Version* v : {&parsed->core, &parsed->backend}) *v = {r.U32(), r.U32(), r.U32()};
  parsed->build = r.Text();
  parsed->context.soc = r.U32();
  const uint32_t graphs = r.U32();
  for (uint32_t i = 0; i < graphs && r.ok; ++i) {
    auto& g = parsed->context.graphs.emplace_back(std::make_unique<Graph>());
    g->name = r.Text();
    const uint32_t values = r.U32();
    for (uint32_t v = 0; v < values && r.ok; ++v) {
      Value value{r.Text(), {}, {}};
      value.t.id = v;
      value.t.kind = static_cast<TensorKind>(r.U32());
      value.t.data_type = static_cast<DataType>(r.U32());
      uint32_t quantize[4];
      for (uint32_t& q : quantize) q = r.U32();
      std::memcpy(&value.t.quantize, quantize, sizeof quantize);
      const uint32_t rank = r.U32();
      for (uint32_t d = 0; d < rank && r.ok; ++d) value.dims.push_back(r.U32());
      g->values.push_back(std::move(value));
    }
    const uint32_t nodes = r.U32();
    for (uint32_t n = 0; n < nodes && r.ok; ++n) g->nodes.push_back({r.U32(), r.U32(), r.U32()});
  }
  return r.ok ? std::move(parsed) : nullptr;
}

// ---- the interface
template <class T>
ErrorHandle Make(const char* call, Handle* handle, T* made) {
  std::unique_ptr<T> kept(made);
  if (const ErrorHandle e = Fails(call)) return e;
  *handle = kept.release();
  ++control.handles;
  return 0;
}
template <class T>
ErrorHandle Free(Handle handle) {
  const Alone alone;
  delete static_cast<T*>(handle);
  --control.handles;
  return 0;
}

ErrorHandle LogCreate(LogCallback callback, LogLevel, Handle* log) {
  log_callback = callback;
  return Make("QnnLog_create", log, new int(0));
}
ErrorHandle DeviceCreate(Handle, const CustomConfig** configs, Handle* device) {
  device_soc = 0;
  for (; configs && *configs; ++configs) {
    const auto* words = static_cast<const uint32_t*>((*configs)->custom);
    if ((*configs)->option == kCustomOption && words[0] == kHtpDeviceSoc) device_soc = words[control.backend.minor >= 47 ? 2 : 1];
  }
  if (device_soc == 0) return kInvalidArgument;
  return Make("QnnDevice_create", device, new uint32_t(device_soc));
}
ErrorHandle ContextCreate(Handle, Handle device, const CustomConfig**, Handle* context) {
  auto* made = new Context;
  made->soc = *static_cast<uint32_t*>(device);
  return Make("QnnContext_create", context, made);
}
ErrorHandle ContextFromBinary(Handle, Handle, const CustomConfig**, const void* binary, uint64_t size, Handle* context, Handle) {
  if (const ErrorHandle e = Fails("QnnContext_createFromBinary")) return e;
  std::unique_ptr<Parsed> parsed = Parse(binary, size);
  if (!parsed) return kInvalidBinary;
  ++control.contexts_from_binary;
  return Make("QnnContext_createFromBinary", context, new Context(std::move(parsed->context)));
}
ErrorHandle GetBinarySize(Handle context, uint64_t* size) {
  if (const ErrorHandle e = Fails("QnnContext_getBinarySize")) return e;
  *size = Serialize(*static_cast<Context*>(context)).size();
  return 0;
}
ErrorHandle GetBinary(Handle context, void* buffer, uint64_t size, uint64_t* written) {
  if (const ErrorHandle e = Fails("QnnContext_getBinary")) return e;
  const std::string bytes = Serialize(*static_cast<Context*>(context));
  if (bytes.size() > size) return kInvalidArgument;
  std::memcpy(buffer, bytes.data(), bytes.size());
  *written = bytes.size();
  return 0;
}
ErrorHandle GraphCreate(Handle context, const char* name, const CustomConfig**, Handle* graph) {
  if (const ErrorHandle e = Fails("QnnGraph_create")) return e;
  auto& made = static_cast<Context*>(context)->graphs.emplace_back(std::make_unique<Graph>());
  made->name = name;
  *graph = made.get();
  return 0;
}
ErrorHandle GraphRetrieve(Handle context, const char* name, Handle* graph) {
  if (const ErrorHandle e = Fails("QnnGraph_retrieve")) return e;
  for (const auto& g : static_cast<Context*>(context)->graphs)
    if (g->name == name) return *graph = g.get(), 0;
  return kNotFound;
}
ErrorHandle CreateTensor(Handle graph, Tensor* tensor) {
  if (const ErrorHandle e = Fails("QnnTensor_createGraphTensor")) return e;
  auto& values = static_cast<Graph*>(graph)->values;
  tensor->v1.id = static_cast<uint32_t>(values.size());
  values.push_back({tensor->v1.name, tensor->v1, {tensor->v1.dims, tensor->v1.dims + tensor->v1.rank}});
  return 0;
}
bool IsSum(const OpConfig& op) { return op.version == 1 && std::strcmp(op.v1.type, "ElementWiseAdd") == 0 && op.v1.num_inputs == 2 && op.v1.num_outputs == 1; }
ErrorHandle Validate(Handle, OpConfig op) {
  if (const ErrorHandle e = Fails("QnnBackend_validateOpConfig")) return e;
  return IsSum(op) ? 0 : kBadNode;
}
ErrorHandle AddNode(Handle graph, OpConfig op) {
  if (const ErrorHandle e = Fails("QnnGraph_addNode")) return e;
  if (!IsSum(op)) return kBadNode;
  static_cast<Graph*>(graph)->nodes.push_back({op.v1.inputs[0].v1.id, op.v1.inputs[1].v1.id, op.v1.outputs[0].v1.id});
  return 0;
}

double Get(const Value& v, const void* data, uint64_t i) {
  if (v.t.data_type == DataType::kFloat32) return static_cast<const float*>(data)[i];
  const uint32_t stored = v.t.data_type == DataType::kUfixed16 ? static_cast<const uint16_t*>(data)[i] : static_cast<const uint8_t*>(data)[i];
  return v.t.quantize.scale_offset.scale * (static_cast<double>(stored) + v.t.quantize.scale_offset.offset);
}
void Set(const Value& v, void* data, uint64_t i, double x) {
  if (v.t.data_type == DataType::kFloat32) return void(static_cast<float*>(data)[i] = static_cast<float>(x));
  const double q = std::nearbyint(x / v.t.quantize.scale_offset.scale) - v.t.quantize.scale_offset.offset;
  if (v.t.data_type == DataType::kUfixed16) static_cast<uint16_t*>(data)[i] = static_cast<uint16_t>(std::clamp(q, 0.0, 65535.0));
  else static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(std::clamp(q, 0.0, 255.0));
}

ErrorHandle Execute(Handle handle, const Tensor* inputs, uint32_t num_inputs, Tensor* outputs, uint32_t num_outputs, Handle, Handle) {
  const Alone alone;
  if (const ErrorHandle e = Fails("QnnGraph_execute")) return e;
  const Graph& graph = *static_cast<Graph*>(handle);
  std::map<uint32_t, void*> data;
  auto bind = [&](const Tensor& t) {
    const Value& v = graph.values.at(t.v1.id);
    const uint64_t bytes = v.numel() * (v.t.data_type == DataType::kFloat32 ? 4 : v.t.data_type == DataType::kUfixed16 ? 2 : 1);
    if (t.v1.buffer.size != bytes || !t.v1.buffer.data || v.name != t.v1.name) return false;
    data[t.v1.id] = t.v1.buffer.data;
    return true;
  };
  for (uint32_t i = 0; i < num_inputs; ++i)
    if (!bind(inputs[i])) return kInvalidArgument;
  for (uint32_t i = 0; i < num_outputs; ++i)
    if (!bind(outputs[i])) return kInvalidArgument;
  for (const Graph::Node& n : graph.nodes) {
    const Value &a = graph.values[n.a], &b = graph.values[n.b], &out = graph.values[n.out];
    for (uint64_t i = 0; i < out.numel(); ++i) Set(out, data.at(n.out), i, Get(a, data.at(n.a), i) + Get(b, data.at(n.b), i));
  }
  return 0;
}

ErrorHandle ErrorMessage(ErrorHandle error, const char** message) {
  static const std::map<ErrorHandle, const char*> messages = {{kMemAlloc, "Memory allocation related error"}, {kInvalidBinary, "Invalid binary"},
                                                              {kInvalidArgument, "Invalid argument"}, {kBadNode, "Invalid node"}};
  const auto it = messages.find(error);
  if (it == messages.end()) return kInvalidArgument;
  *message = it->second;
  return 0;
}

// ---- the System library
struct Description {
  std::unique_ptr<Parsed> parsed;
  BinaryInfo info;
  std::vector<GraphInfo> graphs;
  std::vector<std::vector<Tensor>> tensors;
};
ErrorHandle GetMetadata(Handle system, const void* binary, uint64_t size, const BinaryInfo** info) {
  if (const ErrorHandle e = Fails("QnnSystemContext_getMetadata")) return e;
  Description& d = *static_cast<Description*>(system);
  d.parsed = Parse(binary, size);
  if (!d.parsed) return kInvalidBinary;
  d.graphs.clear();
  d.tensors.clear();
  auto side = [&](Graph& g, TensorKind kind) {
    auto& list = d.tensors.emplace_back();
    for (Value& v : g.values) {
      if (v.t.kind != kind) continue;
      Tensor& t = list.emplace_back();
      std::memset(&t, 0, sizeof t);
      t.version = control.tensor_version;
      t.v1 = v.t;
      t.v1.name = control.null_name ? nullptr : v.name.c_str();
      t.v1.rank = control.rank ? control.rank : static_cast<uint32_t>(v.dims.size());
      t.v1.dims = v.dims.data();
    }
    return static_cast<uint32_t>(list.size());
  };
  for (auto& g : d.parsed->context.graphs) {
    GraphInfo out = {};
    out.version = control.graph_version;
    out.name = g->name.c_str();
    out.num_inputs = side(*g, TensorKind::kAppWrite);
    out.inputs = control.null_inputs ? nullptr : d.tensors.back().data();
    if (control.num_inputs) out.num_inputs = control.num_inputs;
    out.num_outputs = side(*g, TensorKind::kAppRead);
    out.outputs = d.tensors.back().data();
    d.graphs.push_back(out);
  }
  d.info = {};
  d.info.version = control.info_version;
  d.info.backend_id = control.binary_backend_id;
  d.info.build_id = d.parsed->build.c_str();
  d.info.core = d.parsed->core;
  d.info.backend = d.parsed->backend;
  d.info.num_graphs = control.num_graphs ? control.num_graphs : static_cast<uint32_t>(d.graphs.size());
  d.info.graphs = control.null_graphs ? nullptr : d.graphs.data();
  d.info.soc_model = d.parsed->context.soc;
  *info = &d.info;
  return 0;
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED FakeQnnControl* FakeQnn_control() { return &control; }

EXPORTED ErrorHandle QnnInterface_getProviders(const Interface*** providers, uint32_t* count) {
  static Interface interface = {};
  static const Interface* list[] = {&interface};
  interface.backend_id = control.backend_id;
  interface.provider = "FAKE";
  interface.version.core = control.core;
  interface.version.backend = control.backend;
  Functions& f = interface.functions;
  f.backend_create = [](Handle, const CustomConfig**, Handle* backend) { return Make("QnnBackend_create", backend, new int(0)); };
  f.backend_get_build_id = [](const char** id) -> ErrorHandle { return *id = control.build, Fails("QnnBackend_getBuildId"); };
  f.backend_validate_op_config = Validate;
  f.backend_free = Free<int>;
  f.context_create = ContextCreate;
  f.context_get_binary_size = GetBinarySize;
  f.context_get_binary = GetBinary;
  f.context_create_from_binary = ContextFromBinary;
  f.context_free = [](Handle context, Handle) { return Free<Context>(context); };
  f.graph_create = GraphCreate;
  f.graph_add_node = AddNode;
  f.graph_finalize = [](Handle, Handle, Handle) { return Fails("QnnGraph_finalize"); };
  f.graph_retrieve = GraphRetrieve;
  f.graph_execute = Execute;
  f.tensor_create_graph_tensor = CreateTensor;
  f.log_create = LogCreate;
  f.log_free = Free<int>;
  f.device_create = DeviceCreate;
  f.device_free = Free<uint32_t>;
  f.error_get_message = ErrorMessage;
  *providers = list;
  *count = control.no_providers ? 0 : 1;
  return Fails("QnnInterface_getProviders");
}

EXPORTED ErrorHandle QnnSystemInterface_getProviders(const SystemInterface*** providers, uint32_t* count) {
  static SystemInterface interface = {};
  static const SystemInterface* list[] = {&interface};
  interface.provider = "FAKE_SYSTEM";
  interface.version = control.system;
  interface.functions.context_create = [](Handle* system) { return Make("QnnSystemContext_create", system, new Description); };
  interface.functions.context_get_metadata = GetMetadata;
  interface.functions.context_free = Free<Description>;
  *providers = list;
  *count = 1;
  return 0;
}
