// The part of Qualcomm AI Engine Direct's C interface that we call, declared from its public API documentation (docs.qualcomm.com, 80-63442-10: "QNN API").
//
// The library is loaded at run time from the user's installation (library.h); nothing of it is linked or shipped. Layouts were checked against the x86-64
// libraries of the SDKs 2.47 and 2.51 (tests/qnn). Functions are listed in the order of the interface's table, up to the last one that we use.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dovetail::qnn::abi {

using ErrorHandle = uint64_t;  // 0: success
using Handle = void*;          // backend, device, context, graph, log handles are opaque pointers

inline constexpr uint32_t kUndefined = 0x7FFFFFFF;  // of every enumeration

struct Version {
  uint32_t major, minor, patch;
};

// Backend ids of Interface::backend_id.
inline constexpr uint32_t kHtpBackendId = 6;

enum class DataType : uint32_t {
  kInt8 = 0x0008,
  kInt16 = 0x0016,
  kInt32 = 0x0032,
  kInt64 = 0x0064,
  kUint8 = 0x0108,
  kUint16 = 0x0116,
  kUint32 = 0x0132,
  kUint64 = 0x0164,
  kFloat16 = 0x0216,
  kFloat32 = 0x0232,
  kSfixed4 = 0x0304,
  kSfixed8 = 0x0308,
  kSfixed16 = 0x0316,
  kSfixed32 = 0x0332,
  kUfixed4 = 0x0404,
  kUfixed8 = 0x0408,
  kUfixed16 = 0x0416,
  kUfixed32 = 0x0432,
  kBool8 = 0x0508,
  kUndefined = abi::kUndefined,
};

enum class TensorKind : uint32_t { kAppWrite = 0, kAppRead = 1, kAppReadWrite = 2, kNative = 3, kStatic = 4, kNull = 5 };

// real = scale * (stored + offset): the offset is minus the zero point.
struct ScaleOffset {
  float scale;
  int32_t offset;
};
enum class Encoding : uint32_t {
  kScaleOffset = 0,
  kAxisScaleOffset = 1,
  kBwScaleOffset = 2,
  kBwAxisScaleOffset = 3,
  kBlock = 4,
  kBlockwiseExpansion = 5,
  kUndefined = abi::kUndefined,
};
inline constexpr uint32_t kQuantizeDefined = 1;

struct AxisScaleOffset {
  int32_t axis;
  uint32_t count;
  ScaleOffset* values;
};
struct BwScaleOffset {
  uint32_t bits;
  float scale;
  int32_t offset;
};
struct BwAxisScaleOffset {
  uint32_t bits;
  int32_t axis;
  uint32_t count;
  float* scales;
  int32_t* offsets;  // null: all 0
};
// A scale for each index of the axis, times a small integer for each block of elements along the other one.
struct BlockwiseExpansion {
  int32_t axis;
  ScaleOffset* values;      // one for each index of the axis
  uint32_t blocks_per_axis;  // for each index of the axis
  uint32_t block_bits;       // of the small integers
  uint32_t storage;          // 0: 8 bits each
  union {
    uint8_t* scales8;
    uint16_t* scales16;
  };
};
struct QuantizeParams {
  uint32_t definition;
  Encoding encoding;
  union {
    ScaleOffset scale_offset;
    AxisScaleOffset axis;
    BwScaleOffset bw;
    BwAxisScaleOffset bw_axis;
    BlockwiseExpansion* blockwise;
    uint64_t words[4];
  };
};

struct ClientBuffer {
  void* data;
  uint32_t size;  // bytes
};
inline constexpr uint32_t kMemRaw = 0;

struct TensorV1 {
  uint32_t id;
  const char* name;
  TensorKind kind;
  uint32_t data_format;  // 0: flat buffer
  DataType data_type;
  QuantizeParams quantize;
  uint32_t rank;
  uint32_t* dims;
  uint32_t mem_type;
  union {
    ClientBuffer buffer;
    void* mem_handle;
  };
};
struct SparseParams {
  uint32_t kind;
  uint32_t specified_elements, sparse_dims;
};
// Version 2 has what version 1 has, at the same offsets, and more.
struct TensorV2 {
  TensorV1 v1;
  uint8_t* dynamic_dims;
  SparseParams sparse;
  uint8_t produced;
};
struct Tensor {
  uint32_t version;  // 1 or 2
  union {
    TensorV1 v1;
    TensorV2 v2;
  };
};

struct Scalar {
  DataType data_type;
  union {
    float f32;
    double f64;
    uint64_t u64;
    int64_t i64;
    uint32_t u32;
    int32_t i32;
    uint16_t u16;
    uint8_t u8;
    uint8_t bool8;
    const char* text;
  };
};
struct Param {
  uint32_t kind;  // 0: scalar, 1: tensor
  const char* name;
  union {
    Scalar scalar;
    Tensor tensor;
  };
};
struct OpConfigV1 {
  const char* name;
  const char* package;
  const char* type;
  uint32_t num_params;
  Param* params;
  uint32_t num_inputs;
  Tensor* inputs;
  uint32_t num_outputs;
  Tensor* outputs;
};
struct OpConfig {
  uint32_t version;  // 1
  union {
    OpConfigV1 v1;
  };
};

// A config of device, context or graph: an option, and what the option says. We pass custom ones, whose layout is the backend's.
struct CustomConfig {
  uint32_t option;
  void* custom;
};
inline constexpr uint32_t kCustomOption = 0;

// HTP: options of a device, of a context, of a graph.
inline constexpr uint32_t kHtpContextWeightSharing = 1;  // graphs of the context have equal weights once
inline constexpr uint32_t kHtpDeviceSoc = 0, kHtpDeviceArch = 1;
inline constexpr uint32_t kHtpGraphOptimization = 1, kHtpGraphPrecision = 2;
inline constexpr size_t kHtpContextValueWord = 2;
inline constexpr size_t kHtpGraphValueWord = 2;       // where the value lies in a graph's custom config, in words of 32 bits
inline constexpr uint32_t kHtpPrecisionFloat16 = 0;  // of kHtpGraphPrecision: f32 tensors are computed in f16

enum class LogLevel : uint32_t { kError = 1, kWarn = 2, kInfo = 3, kVerbose = 4, kDebug = 5 };
using LogCallback = void (*)(const char* format, LogLevel level, uint64_t timestamp, __builtin_va_list arguments);

struct Functions {
  ErrorHandle (*property_has_capability)(uint32_t key);
  ErrorHandle (*backend_create)(Handle log, const CustomConfig** configs, Handle* backend);
  ErrorHandle (*backend_set_config)(Handle backend, const CustomConfig** configs);
  ErrorHandle (*backend_get_api_version)(void* version);
  ErrorHandle (*backend_get_build_id)(const char** id);
  ErrorHandle (*backend_register_op_package)(Handle, const char*, const char*, const char*);
  ErrorHandle (*backend_get_supported_operations)(Handle, uint32_t*, void***);
  ErrorHandle (*backend_validate_op_config)(Handle backend, OpConfig op);
  ErrorHandle (*backend_free)(Handle backend);
  ErrorHandle (*context_create)(Handle backend, Handle device, const CustomConfig** configs, Handle* context);
  ErrorHandle (*context_set_config)(Handle context, const CustomConfig** configs);
  ErrorHandle (*context_get_binary_size)(Handle context, uint64_t* size);
  ErrorHandle (*context_get_binary)(Handle context, void* buffer, uint64_t size, uint64_t* written);
  ErrorHandle (*context_create_from_binary)(Handle backend, Handle device, const CustomConfig** configs, const void* binary, uint64_t size, Handle* context,
                                            Handle profile);
  ErrorHandle (*context_free)(Handle context, Handle profile);
  ErrorHandle (*graph_create)(Handle context, const char* name, const CustomConfig** configs, Handle* graph);
  ErrorHandle (*graph_create_subgraph)(Handle graph, const char* name, Handle* subgraph);
  ErrorHandle (*graph_set_config)(Handle graph, const CustomConfig** configs);
  ErrorHandle (*graph_add_node)(Handle graph, OpConfig op);
  ErrorHandle (*graph_finalize)(Handle graph, Handle profile, Handle signal);
  ErrorHandle (*graph_retrieve)(Handle context, const char* name, Handle* graph);
  ErrorHandle (*graph_execute)(Handle graph, const Tensor* inputs, uint32_t num_inputs, Tensor* outputs, uint32_t num_outputs, Handle profile, Handle signal);
  ErrorHandle (*graph_execute_async)(Handle, const Tensor*, uint32_t, Tensor*, uint32_t, Handle, Handle, void*, void*);
  ErrorHandle (*tensor_create_context_tensor)(Handle context, Tensor* tensor);
  ErrorHandle (*tensor_create_graph_tensor)(Handle graph, Tensor* tensor);
  ErrorHandle (*log_create)(LogCallback callback, LogLevel most, Handle* log);
  ErrorHandle (*log_set_log_level)(Handle log, LogLevel most);
  ErrorHandle (*log_free)(Handle log);
  void* profile[8];  // create, setConfig, getEvents, getSubEvents, getEventData, getExtendedEventData, free; memRegister
  void* mem_deregister;
  ErrorHandle (*device_get_platform_info)(Handle log, const void** info);
  ErrorHandle (*device_free_platform_info)(Handle log, const void* info);
  void* device_get_infrastructure;
  ErrorHandle (*device_create)(Handle log, const CustomConfig** configs, Handle* device);
  void* device_set_config;
  void* device_get_info;
  ErrorHandle (*device_free)(Handle device);
  void* signal[4];  // create, setConfig, trigger, free
  ErrorHandle (*error_get_message)(ErrorHandle error, const char** message);
  ErrorHandle (*error_get_verbose_message)(ErrorHandle error, const char** message);
  ErrorHandle (*error_free_verbose_message)(const char* message);
};

struct Interface {
  uint32_t backend_id;
  const char* provider;
  struct {
    Version core, backend;
  } version;
  Functions functions;
};
using GetProviders = ErrorHandle (*)(const Interface*** providers, uint32_t* count);

// libQnnSystem.so: what is in a context binary, as version 3 of the information has it (SDKs 2.47 to 2.51).
inline constexpr uint32_t kBinaryInfoVersion = 3, kGraphInfoVersion = 3;
struct GraphInfo {
  uint32_t version;  // 1 to 3; each has what the one before has, at the same offsets, and more
  const char* name;
  uint32_t num_inputs;
  Tensor* inputs;
  uint32_t num_outputs;
  Tensor* outputs;
  uint64_t rest[5];
};
struct BinaryInfo {
  uint32_t version;
  uint32_t unused;
  uint32_t backend_id;
  const char* build_id;
  Version core, backend;
  const char* soc_version;
  uint64_t blob[3];  // versions of parts of the binary, its size
  uint32_t num_context_tensors;
  Tensor* context_tensors;
  uint32_t num_graphs;
  GraphInfo* graphs;
  uint64_t other[3];
  uint32_t soc_model;
};
struct SystemFunctions {
  ErrorHandle (*context_create)(Handle* system);
  ErrorHandle (*context_get_binary_info)(Handle system, void* binary, uint64_t size, const void** info, uint64_t* info_size);
  ErrorHandle (*context_get_metadata)(Handle system, const void* binary, uint64_t size, const BinaryInfo** info);
  ErrorHandle (*context_free)(Handle system);
};
struct SystemInterface {
  uint32_t backend_id;
  const char* provider;
  Version version;
  SystemFunctions functions;
};
using SystemGetProviders = ErrorHandle (*)(const SystemInterface*** providers, uint32_t* count);

static_assert(sizeof(GraphInfo) == 88 && offsetof(BinaryInfo, num_context_tensors) == 80 && offsetof(BinaryInfo, graphs) == 104);
static_assert(offsetof(BinaryInfo, soc_model) == 136);
static_assert(sizeof(QuantizeParams) == 40 && sizeof(TensorV1) == 112 && sizeof(Tensor) == 144 && sizeof(Param) == 160 && sizeof(OpConfig) == 80);

}  // namespace dovetail::qnn::abi
