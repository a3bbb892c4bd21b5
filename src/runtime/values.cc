#include "runtime/values.h"

#include <cmath>

#include "format/scalar_type.h"

namespace dovetail {
namespace {

// Dims of size 1 may stand anywhere.
bool IsContiguous(const pte::Tensor& t) {
  const auto sizes = TensorSizes(t);
  int last = -1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int d = t.dim_order()->Get(static_cast<uint32_t>(i));
    if (sizes[static_cast<size_t>(d)] == 1 && t.shape_dynamism() == pte::TensorShapeDynamism::STATIC) continue;
    if (d < last) return false;
    last = d;
  }
  return true;
}

Result<Tensor> LoadTensor(const pte::Tensor& t, size_t value) {
  if (!IsContiguous(t))
    return Unsupported("value ", value, " is a tensor whose memory is not in the order of its dimensions (channels last); Dovetail runs programs "
                       "with contiguous tensors: export without to_channels_last or a memory_format");
  Tensor out;
  out.source = &t;
  out.value = static_cast<uint32_t>(value);
  out.fixed = t.shape_dynamism() == pte::TensorShapeDynamism::STATIC;
  out.growable = t.shape_dynamism() == pte::TensorShapeDynamism::DYNAMIC_UNBOUND;
  out.view.dtype = FromScalarType(t.scalar_type());
  for (int32_t size : TensorSizes(t)) out.bounds[out.view.rank++] = out.growable ? 0 : size;
  out.view.sizes = out.bounds;
  if (!ByteCount(out.view.dtype, out.view.shape(), &out.capacity)) return Corrupt("value ", value, ": the size of the tensor overflows");
  return out;
}

}  // namespace

int64_t Value::AsInt() const {
  if (kind == ValueKind::kInt) return i;
  if (kind == ValueKind::kBool) return b;
  if (kind != ValueKind::kDouble || std::isnan(d)) return 0;
  if (d >= 0x1p63) return INT64_MAX;
  if (d < -0x1p63) return INT64_MIN;
  return static_cast<int64_t>(d);
}
double Value::AsDouble() const { return kind == ValueKind::kDouble ? d : static_cast<double>(AsInt()); }
bool Value::AsBool() const { return kind == ValueKind::kDouble ? d != 0 : AsInt() != 0; }
Attr Value::AsAttr() const {
  switch (kind) {
    case ValueKind::kInt: return Attr(i);
    case ValueKind::kBool: return Attr(b);
    case ValueKind::kDouble: return Attr(d);
    default: return Attr();
  }
}

bool ByteCount(DType dtype, std::span<const int64_t> sizes, size_t* bytes) {
  uint64_t n = ByteSize(dtype);
  bool empty = false;
  for (int64_t size : sizes) {
    if (size < 0) return false;
    if (size == 0) empty = true;
    // Sizes beside a zero must not overflow either: kernels multiply some of them.
    else if (__builtin_mul_overflow(n, static_cast<uint64_t>(size), &n) || n > INT64_MAX / 2) return false;
  }
  *bytes = empty ? 0 : n;
  return true;
}

Result<ValueTable> LoadValues(const pte::ExecutionPlan& plan) {
  ValueTable table;
  const uint32_t count = plan.values()->size();
  table.values.resize(count);
  for (uint32_t k = 0; k < count; ++k) {
    const pte::EValue& source = *plan.values()->Get(k);
    Value& v = table.values[k];
    v.source = &source;
    switch (source.val_type()) {
      case pte::KernelTypes::Int: v.Set(static_cast<int64_t>(source.val_as_Int()->int_val())); break;
      case pte::KernelTypes::Bool: v.Set(static_cast<bool>(source.val_as_Bool()->bool_val())); break;
      case pte::KernelTypes::Double: v.Set(static_cast<double>(source.val_as_Double()->double_val())); break;
      case pte::KernelTypes::String: v.kind = ValueKind::kString; break;
      case pte::KernelTypes::IntList: v.kind = ValueKind::kIntList; break;
      case pte::KernelTypes::DoubleList: v.kind = ValueKind::kDoubleList; break;
      case pte::KernelTypes::BoolList: v.kind = ValueKind::kBoolList; break;
      case pte::KernelTypes::TensorList:
      case pte::KernelTypes::OptionalTensorList: v.kind = ValueKind::kTensorList; break;
      case pte::KernelTypes::Tensor: {
        DT_ASSIGN_OR_RETURN(Tensor t, LoadTensor(*source.val_as_Tensor(), k));
        v.kind = ValueKind::kTensor;
        v.tensor = t.root = static_cast<uint32_t>(table.tensors.size());
        table.tensors.push_back(t);
        break;
      }
      default: break;
    }
  }
  return table;
}

std::string DescribeValue(const ValueTable& table, size_t value) {
  const Value& v = table.values[value];
  std::string s = StrCat("value ", value);
  switch (v.kind) {
    case ValueKind::kTensor: return StrCat(s, " (", table.tensors[v.tensor].view.type().ToString(), ")");
    case ValueKind::kNone: return s + " (None)";
    case ValueKind::kInt: return s + " (int)";
    case ValueKind::kBool: return s + " (bool)";
    case ValueKind::kDouble: return s + " (float)";
    case ValueKind::kString: return s + " (string)";
    case ValueKind::kTensorList: return s + " (list of tensors)";
    default: return s + " (list of numbers)";
  }
}

}  // namespace dovetail
