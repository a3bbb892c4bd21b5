#include "cli/bench_inputs.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "runtime/values.h"

namespace dovetail::cli {
namespace {

// SplitMix64 (Steele, Lea and Flood, 2014).
class Random {
 public:
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double Between(double low, double high) {
    return low + (high - low) * static_cast<double>(Next() >> 11) / static_cast<double>(1ull << 53);
  }

 private:
  uint64_t state_ = 1;
};

void Write(DType dtype, std::byte* at, double value) {
  const auto put = [&](auto v) { std::memcpy(at, &v, sizeof v); };
  switch (dtype) {
    case DType::kF16: return put(FloatToHalf(static_cast<float>(value)));
    case DType::kBF16: return put(FloatToBFloat16(static_cast<float>(value)));
    case DType::kF32: return put(static_cast<float>(value));
    case DType::kF64: return put(value);
    case DType::kI16: return put(static_cast<int16_t>(value));
    case DType::kU16: return put(static_cast<uint16_t>(value));
    case DType::kI32: return put(static_cast<int32_t>(value));
    case DType::kU32: return put(static_cast<uint32_t>(value));
    case DType::kI64: return put(static_cast<int64_t>(value));
    default: return put(static_cast<uint8_t>(value));
  }
}

// Rows of the embedding that reads value `index` of the plan first; 0: none does.
int64_t EmbeddingRows(const pte::ExecutionPlan& plan, int32_t index) {
  for (const pte::Chain* chain : *plan.chains())
    for (const pte::Instruction* instruction : *chain->instructions()) {
      const auto* call = instruction->instr_args_as_KernelCall();
      if (!call) continue;
      const std::string_view name = plan.operators()->Get(static_cast<uint32_t>(call->op_index()))->name()->string_view();
      const uint32_t indices = name == "aten::embedding" ? 1 : name == "dovetail::quantized_embedding" ? 2 : 0;
      if (indices == 0 || call->args()->size() <= indices || call->args()->Get(indices) != index) continue;
      const pte::Tensor* weight = plan.values()->Get(static_cast<uint32_t>(call->args()->Get(0)))->val_as_Tensor();
      if (weight && !TensorSizes(*weight).empty()) return TensorSizes(*weight)[0];
    }
  return 0;
}

std::string Known(const std::set<std::string>& names) {
  std::string list;
  for (const std::string& n : names) list += (list.empty() ? "" : ", ") + n;
  return list.empty() ? "it has none" : "it has " + list;
}

}  // namespace

Result<std::map<std::string, int64_t>> ChooseSizes(const Program& program, const MethodInfo& method,
                                                   const std::map<std::string, int64_t>& given) {
  std::set<std::string> names;
  for (const TensorInfo& input : method.inputs)
    for (Dim d : input.type.shape)
      for (const std::string& s : d.symbols()) names.insert(s);
  std::map<std::string, int64_t> sizes;
  for (const std::string& name : names) {
    const auto known = program.symbols().find(name);
    const DimRange range = known == program.symbols().end() ? DimRange{} : known->second;
    const auto wanted = given.find(name);
    if (wanted != given.end() && (wanted->second < range.min || wanted->second > range.max))
      return OutOfRange("size ", name, " of '", program.name(), "' cannot be ", wanted->second, "; it is ", range.min,
                        range.max == DimRange::kUnbounded ? std::string(" or more") : StrCat(" to ", range.max));
    sizes[name] = wanted != given.end() ? wanted->second : std::max(range.min, std::min(range.max, kDefaultSize));
  }
  for (const auto& [name, value] : given)
    if (!names.contains(name))
      return InvalidArgument("method '", method.name, "' of '", program.name(), "' has no size named '", name, "'; ", Known(names));
  return sizes;
}

Result<std::vector<NamedArray>> MakeInputs(const Program& program, const MethodInfo& method, const std::map<std::string, int64_t>& sizes,
                                           int64_t position) {
  const pte::ExecutionPlan& plan = *program.view().FindMethod(method.name);
  const SymbolValues values = [&](std::string_view name) -> std::optional<int64_t> {
    const auto at = sizes.find(std::string(name));
    return at == sizes.end() ? std::nullopt : std::optional(at->second);
  };
  std::vector<NamedArray> arrays;
  Random random;
  for (size_t i = 0; i < method.inputs.size(); ++i) {
    const TensorInfo& input = method.inputs[i];
    if (input.type.dtype == DType::kNone) continue;
    if (IsComplex(input.type.dtype)) return Unsupported("input '", input.name, "' is complex; give its values in a CALL.npz");
    NamedArray a{input.name, input.type.dtype, {}, {}};
    for (Dim d : input.type.shape) a.shape.push_back(d.Evaluate(values).value_or(0));
    size_t bytes = 0;
    if (!ByteCount(a.dtype, a.shape, &bytes)) return OutOfRange("input '", input.name, "' would be too large: ", input.type.ToString());
    a.data.resize(bytes);
    const size_t element = ByteSize(a.dtype), count = bytes / element;
    const int64_t rows = IsInteger(a.dtype) ? EmbeddingRows(plan, plan.inputs()->Get(static_cast<uint32_t>(i))) : 0;
    for (size_t k = 0; k < count; ++k) {
      double value = 1;
      if (IsFloat(a.dtype)) value = random.Between(-1, 1);
      else if (IsInteger(a.dtype) && a.shape.size() <= 1) value = static_cast<double>(position) + static_cast<double>(k);
      else if (rows > 0) value = static_cast<double>(random.Next() % static_cast<uint64_t>(rows));
      Write(a.dtype, a.data.data() + k * element, value);
    }
    arrays.push_back(std::move(a));
  }
  return arrays;
}

}  // namespace dovetail::cli
