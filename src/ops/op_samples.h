// For tests (of any module): samples of operators recorded from PyTorch (tests/ops/record.py), and running one through inference and a kernel.
//
// tests/ops/samples_*.txt has one item per line:
//   op add                 begins a sample
//   i f32[2,3] 0000803f…   an operand: type, shape, its bytes as hexadecimal digits ("-" when there are none); "i none" is absent
//   a alpha 2              an argument in the notation of Attr::ToString; the ones not given have the schema's default
//   o f32[2,3] …           a result
//   t 1e-5                 relative tolerance, instead of the one of the result's type
//   x out of range         instead of results: the error code's name that inference or the kernel must report
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ops/dispatch.h"
#include "ops/op_def.h"

namespace dovetail {

struct SampleTensor {
  DType dtype = DType::kNone;
  std::vector<int64_t> sizes;
  std::vector<std::byte> bytes;

  TensorView view() const { return dtype == DType::kNone ? TensorView() : TensorView(dtype, sizes, const_cast<std::byte*>(bytes.data())); }
};

struct OpSample {
  std::string where;  // "samples_elementwise.txt:12"
  OpId op = OpId::kCount;
  std::vector<SampleTensor> inputs, outputs;
  std::vector<Attr> attrs;  // in schema order, defaults filled in
  double tolerance = -1;    // -1: by type
  std::string error;        // the expected code's name, or empty
};

// Every sample of every tests/ops/samples_*.txt, read once. A malformed file aborts the test program.
inline const std::vector<OpSample>& OpSamples();
inline std::vector<const OpSample*> SamplesOf(OpId op);

// What is wrong about the outcome of `kernel` (with `scratch`, if it needs any) on the sample, or "" when all is as recorded. Inference
// is checked first; `pool` may be null. Movement compares bit by bit, the rest by tolerance; integers and bool are exact.
inline std::string RunOpSample(const OpSample& sample, KernelFn kernel, ScratchFn scratch = nullptr, struct pthreadpool* pool = nullptr);

namespace internal {

[[noreturn]] inline void Malformed(const std::string& where, const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", where.c_str(), what.c_str());
  std::abort();
}

inline SampleTensor ParseTensor(const std::string& text, const std::string& where) {
  SampleTensor t;
  if (text == "none") return t;
  const size_t open = text.find('['), close = text.find(']');
  if (open == std::string::npos || close == std::string::npos || close + 2 > text.size()) Malformed(where, "not a tensor");
  t.dtype = DTypeFromName(text.substr(0, open));
  for (size_t at = open + 1; at < close;) {
    char* end;
    t.sizes.push_back(std::strtoll(text.c_str() + at, &end, 10));
    at = static_cast<size_t>(end - text.c_str()) + 1;
  }
  std::string hex = text.substr(close + 2);
  if (hex == "-") hex.clear();
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    t.bytes.push_back(static_cast<std::byte>(std::strtoul(hex.substr(i, 2).c_str(), nullptr, 16)));
  if (t.dtype == DType::kNone || t.bytes.size() != t.view().nbytes()) Malformed(where, "the tensor's data does not fit its shape");
  return t;
}

inline Attr ParseAttr(const std::string& text, ArgKind kind, const std::string& where) {
  if (text == "none") return Attr();
  if (text == "true" || text == "false") return Attr(text == "true");
  if (text[0] == '"') return Attr(text.substr(1, text.size() - 2));
  if (kind == ArgKind::kDType) return Attr(DTypeFromName(text));
  if (text[0] == '[') {
    std::vector<Dim> dims;
    std::vector<double> numbers;
    for (size_t at = 1; at + 1 < text.size();) {
      char* end;
      numbers.push_back(std::strtod(text.c_str() + at, &end));
      dims.push_back(Dim(static_cast<int64_t>(std::strtoll(text.c_str() + at, nullptr, 10))));
      at = static_cast<size_t>(end - text.c_str()) + 1;
    }
    return kind == ArgKind::kFloatList ? Attr(std::move(numbers)) : Attr(std::move(dims));
  }
  const bool integer = text.find_first_not_of("-0123456789") == std::string::npos;
  char* end;
  const Attr value = integer ? Attr(static_cast<int64_t>(std::strtoll(text.c_str(), &end, 10))) : Attr(std::strtod(text.c_str(), &end));
  if (*end != '\0') Malformed(where, "not an argument's value: " + text);
  if (kind == ArgKind::kFloat) return Attr(value.Number());
  if (kind == ArgKind::kIntList) return Attr(std::vector<Dim>{value.SymInt()});
  return value;
}

inline void ReadSamples(const std::filesystem::path& path, std::vector<OpSample>& samples) {
  std::ifstream file(path);
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    const std::string where = path.filename().string() + ":" + std::to_string(++number);
    if (line.size() < 3 || line[1] != ' ') {
      if (line.substr(0, 3) != "op ") Malformed(where, "unknown line");
      OpSample s;
      s.where = where;
      s.op = FindOp(line.substr(3));
      if (s.op == OpId::kCount) Malformed(where, "no operator " + line.substr(3));
      for (const SchemaArg& arg : GetSchema(s.op).args)
        if (!IsTensorKind(arg.kind)) s.attrs.push_back(arg.default_value);
      samples.push_back(std::move(s));
      continue;
    }
    if (samples.empty()) Malformed(where, "no operator yet");
    OpSample& s = samples.back();
    const std::string rest = line.substr(2);
    switch (line[0]) {
      case 'i': s.inputs.push_back(ParseTensor(rest, where)); break;
      case 'o': s.outputs.push_back(ParseTensor(rest, where)); break;
      case 't': s.tolerance = std::atof(rest.c_str()); break;
      case 'x': s.error = rest; break;
      case 'a': {
        const size_t space = rest.find(' ');
        const SchemaArg* arg = GetSchema(s.op).Find(rest.substr(0, space));
        if (!arg || IsTensorKind(arg->kind)) Malformed(where, "no argument " + rest.substr(0, space));
        s.attrs[static_cast<size_t>(arg->index)] = ParseAttr(rest.substr(space + 1), arg->kind, where);
        break;
      }
      default: Malformed(where, "unknown line");
    }
  }
}

inline double DefaultTolerance(DType t) {
  switch (t) {
    case DType::kF16: return 1e-3;
    case DType::kBF16: return 8e-3;
    case DType::kF64: return 1e-12;
    default: return 1e-6;
  }
}

// "" or where they differ. Relative to the element, and with a thousandth of that to the tensor's largest, for results near zero.
inline std::string Compare(const TensorView& got, const TensorView& want, double tolerance) {
  if (!IsFloat(want.dtype)) return std::memcmp(got.data, want.data, want.nbytes()) == 0 ? "" : "integers differ";
  const Reader<double> g(got), w(want);
  double largest = 0;
  for (int64_t i = 0; i < want.numel(); ++i)
    if (std::isfinite(w[i])) largest = std::max(largest, std::abs(w[i]));
  for (int64_t i = 0; i < want.numel(); ++i) {
    const bool same = std::isfinite(w[i]) ? std::abs(g[i] - w[i]) <= tolerance * (std::abs(w[i]) + 1e-3 * largest)
                      : std::isnan(w[i])  ? std::isnan(g[i])
                                          : g[i] == w[i];
    if (!same) return StrCat("element ", i, " is ", FormatDouble(g[i]), ", not ", FormatDouble(w[i]));
  }
  return "";
}

inline std::string Outcome(const OpSample& sample, const Status& status, std::string_view what) {
  if (CodeName(status.code()) == sample.error) return "";
  return StrCat(what, ": ", status.ToString());
}

}  // namespace internal

inline const std::vector<OpSample>& OpSamples() {
  static const std::vector<OpSample>* all = [] {
    auto* samples = new std::vector<OpSample>;
    std::set<std::filesystem::path> paths;
    std::error_code ec;
    for (const auto& entry : std::filesystem::directory_iterator("tests/ops", ec))
      if (entry.path().filename().string().starts_with("samples_")) paths.insert(entry.path());
    for (const auto& path : paths) internal::ReadSamples(path, *samples);
    return samples;
  }();
  return *all;
}

inline std::vector<const OpSample*> SamplesOf(OpId op) {
  std::vector<const OpSample*> found;
  for (const OpSample& s : OpSamples())
    if (s.op == op) found.push_back(&s);
  return found;
}

inline std::string RunOpSample(const OpSample& sample, KernelFn kernel, ScratchFn scratch, struct pthreadpool* pool) {
  const OpDef& op = GetOp(sample.op);
  const Schema& schema = GetSchema(sample.op);
  // The operands are copied: an operator may write one, and reading past an end shows in a sanitizer.
  std::vector<SampleTensor> copies = sample.inputs, outputs;
  std::vector<TensorType> operands, results(schema.results.size());
  std::vector<TensorView> inputs, views;
  for (const SampleTensor& t : copies) {
    inputs.push_back(t.view());
    operands.push_back(inputs.back().present() ? inputs.back().type() : TensorType());
  }
  InferContext infer{operands, sample.attrs, results, {}};
  // The shapes of some operators follow from an operand's contents.
  infer.constants = inputs;
  if (Status s = op.infer(infer); !s.ok()) return internal::Outcome(sample, s, "inference");
  const bool in_place = !schema.args.empty() && schema.args[0].written;
  for (const TensorType& type : results) {
    if (!type.shape.is_constant()) return "inference gave a symbolic shape";
    SampleTensor out;
    out.dtype = type.dtype;
    for (Dim d : type.shape) out.sizes.push_back(d.value());
    out.bytes.resize(out.view().nbytes(), std::byte{0xa5});
    outputs.push_back(std::move(out));
  }
  for (const SampleTensor& t : outputs) views.push_back(t.view());
  if (in_place) views[0] = inputs[0];
  KernelContext ctx{inputs, sample.attrs, views, pool, {}};
  std::vector<std::byte> memory(scratch ? scratch(ctx) + 64 : 0);
  if (scratch) {
    void* aligned = memory.data();
    size_t space = memory.size();
    std::align(64, space - 64, aligned, space);
    ctx.scratch = {static_cast<std::byte*>(aligned), memory.size() - 64};
  }
  if (Status s = kernel(ctx); !s.ok()) return internal::Outcome(sample, s, "kernel");
  if (!sample.error.empty()) return "no error, but " + sample.error + " was expected";
  if (views.size() != sample.outputs.size()) return "another number of results";
  for (size_t i = 0; i < views.size(); ++i) {
    const TensorView want = sample.outputs[i].view();
    if (!(views[i].type() == want.type())) return StrCat("result ", i, " is ", views[i].type().ToString(), ", not ", want.type().ToString());
    if (want.numel() == 0) continue;
    if (op.traits & (kDataMovement | kMetadataOnly)) {
      if (std::memcmp(views[i].data, want.data, want.nbytes()) != 0) return StrCat("result ", i, ": bytes differ");
      continue;
    }
    const double tolerance = sample.tolerance >= 0 ? sample.tolerance : internal::DefaultTolerance(want.dtype);
    if (std::string difference = internal::Compare(views[i], want, tolerance); !difference.empty()) return StrCat("result ", i, ": ", difference);
  }
  return "";
}

}  // namespace dovetail
