// Hostile programs: loading, making a method ready and running it either work or give a Status. Seeds are one call of every operator on
// its recorded samples, and small programs with states, loops, moves and views.
#include <map>

#include "base/check.h"
#include "dovetail/program.h"
#include "format/format_samples.h"
#include "format/scalar_type.h"
#include "ops/op_samples.h"

namespace dovetail {
namespace {

// So that no kernel of a program takes long: a program may do an amount of work that is cubic in its memory.
constexpr size_t kMemoryLimit = size_t{1} << 18;
constexpr size_t kInstructionLimit = 256;

volatile unsigned sum;  // so that the reads below are made

void Touch(const TensorView& t) {
  unsigned s = 0;
  for (size_t i = 0; i < t.nbytes(); ++i) s += t.as<uint8_t>()[i];
  sum = s;
}

// Small whole numbers, which are indices, sizes and truth values alike.
void Fill(DType dtype, std::span<std::byte> bytes) {
  const size_t item = ByteSize(dtype);
  for (size_t i = 0; i * item < bytes.size(); ++i) {
    const int small = static_cast<int>(i % (dtype == DType::kBool ? 2 : 3));
    std::byte* p = bytes.data() + i * item;
    if (dtype == DType::kF32) {
      const float f = static_cast<float>(small) - 0.5f;
      std::memcpy(p, &f, sizeof f);
    } else {
      *p = static_cast<std::byte>(small);
    }
  }
}

// Runs the method on inputs of its largest sizes, or of the least that its symbols allow.
void Run(const Program& program, Method* method, bool largest, size_t slack) {
  std::vector<std::vector<std::byte>> data;
  std::vector<TensorView> inputs;
  size_t total = 0;
  for (const TensorInfo& info : method->info().inputs) {
    data.emplace_back();
    if (info.type.dtype == DType::kNone) {
      inputs.emplace_back();
      continue;
    }
    std::vector<int64_t> sizes;
    size_t bytes = ByteSize(info.type.dtype);
    for (size_t d = 0; d < info.type.rank(); ++d) {
      const auto least = [&](std::string_view symbol) -> std::optional<int64_t> {
        const auto range = program.symbols().find(symbol);
        return range == program.symbols().end() ? 0 : range->second.min;
      };
      const int64_t max = d < info.max_sizes.size() ? info.max_sizes[d] : 1;
      sizes.push_back(largest || !info.dynamic ? max : info.symbolic ? info.type.shape[d].Evaluate(least).value_or(max) : max / 2);
      if (sizes.back() < 0 || __builtin_mul_overflow(bytes, static_cast<size_t>(sizes.back()), &bytes)) return;
    }
    if (total += bytes; total < bytes || total > kMemoryLimit) return;
    data.back().resize(bytes + slack);
    Fill(info.type.dtype, std::span(data.back()).first(bytes));
    inputs.emplace_back(info.type.dtype, sizes, data.back().data());
  }
  const Status status = method->Execute(inputs);
  DT_CHECK(status.code() != Code::kInternal);
  if (!status.ok()) return;
  DT_CHECK(method->outputs().size() == method->info().outputs.size());
  for (const TensorView& output : method->outputs()) Touch(output);
}

void RunAll(const Program& program, bool borrow) {
  InstanceOptions options;
  options.threads = 1;
  options.memory_limit = kMemoryLimit;
  options.instruction_limit = kInstructionLimit;
  options.borrow_inputs = borrow;
  auto instance = program.CreateInstance(options);
  if (!instance.ok()) return;
  size_t methods = 4;
  for (const MethodInfo& info : program.methods()) {
    if (methods-- == 0) break;
    auto method = (*instance)->LoadMethod(info.name);
    if (!method.ok()) {
      DT_CHECK(!method.status().ToString().empty());
      continue;
    }
    for (bool largest : {true, false, true}) Run(program, *method, largest, borrow ? 16 : 0);
  }
  const std::vector<std::byte> saved = (*instance)->SaveStates();
  (*instance)->ResetStates();
  (void)(*instance)->LoadStates(saved);  // names of a hostile file may repeat
}

// ---- seeds ----

class Call {
 public:
  explicit Call(const OpSample& sample) : sample_(sample) {}

  pte::ProgramDesc Program() {
    const Schema& schema = GetSchema(sample_.op);
    std::vector<int32_t> args;
    for (size_t p = 0; p < schema.args.size(); ++p) {
      const SchemaArg& arg = schema.args[p];
      if (arg.name == "out_dtype") continue;
      if (!IsTensorKind(arg.kind)) {
        args.push_back(Attribute(arg, sample_.attrs[static_cast<size_t>(arg.index)]));
        continue;
      }
      const auto range = schema.OperandsOf(p, sample_.inputs.size());
      std::vector<int32_t> items;
      for (size_t i = range.first; i < range.first + range.count; ++i) items.push_back(Operand(sample_.inputs[i], arg));
      if (IsListOfTensors(arg.kind)) items = {arg.kind == ArgKind::kTensorList ? Add(pte::TensorListDesc{items}) : Add(pte::OptionalTensorListDesc{items})};
      args.insert(args.end(), items.begin(), items.end());
    }
    if (schema.args[0].written) {
      method_.outputs = {args[0]};
      args.push_back(args[0]);
    } else {
      for (const SampleTensor& out : sample_.outputs) method_.outputs.push_back(Planned(out));
      args.insert(args.end(), method_.outputs.begin(), method_.outputs.end());
    }
    const std::string_view name = GetOp(sample_.op).out_variant;
    const size_t dot = std::min(name.rfind('.'), name.size());
    method_.operators = {{std::string(name.substr(0, dot)), std::string(name.substr(std::min(dot + 1, name.size())))}};
    method_.instructions = {pte::KernelCallDesc{0, args}};
    method_.non_const_buffer_sizes = {0, static_cast<int64_t>(planned_)};
    program_.methods.push_back(std::move(method_));
    return std::move(program_);
  }

 private:
  int32_t Add(pte::ValueDesc value) {
    method_.values.push_back(std::move(value));
    return static_cast<int32_t>(method_.values.size() - 1);
  }
  static pte::TensorDesc Describe(const SampleTensor& t) {
    pte::TensorDesc desc{.dtype = t.dtype};
    for (int64_t size : t.sizes) desc.sizes.push_back(static_cast<int32_t>(size));
    return desc;
  }
  int32_t Planned(const SampleTensor& t) {
    pte::TensorDesc desc = Describe(t);
    desc.dynamic_bound = !desc.sizes.empty();
    desc.allocation = pte::AllocationDesc{1, planned_};
    planned_ += (t.bytes.size() + 15) / 16 * 16;
    return Add(std::move(desc));
  }
  // Numbers that index memory are constants, so that mutations change them; the rest are inputs.
  int32_t Operand(const SampleTensor& t, const SchemaArg& arg) {
    if (t.dtype == DType::kNone) return arg.kind == ArgKind::kOptionalTensorList ? -1 : Add(pte::NoneDesc{});
    if (!IsFloat(t.dtype) && !arg.written) {
      program_.constants.push_back(Payload::Owned(t.bytes));
      pte::TensorDesc desc = Describe(t);
      desc.data_buffer_idx = static_cast<uint32_t>(program_.constants.size());
      return Add(std::move(desc));
    }
    method_.inputs.push_back(Planned(t));
    return method_.inputs.back();
  }
  int32_t Attribute(const SchemaArg& arg, const Attr& a) {
    if (a.is_none()) return Add(pte::NoneDesc{});
    if (a.is<bool>()) return Add(a.Bool());
    if (a.is<double>()) return Add(a.Number());
    if (const auto* s = a.get<std::string>()) return Add(*s);
    if (const auto* items = a.get<std::vector<double>>()) return Add(pte::DoubleListDesc{*items});
    if (const auto* items = a.get<std::vector<bool>>()) return Add(pte::BoolListDesc{*items});
    if (a.is<DType>()) {
      pte::ScalarType type{};
      DT_CHECK(ToScalarType(a.Type(), &type));
      return Add(static_cast<int64_t>(type));
    }
    if (arg.kind == ArgKind::kFloat) return Add(static_cast<double>(a.Int()));
    if (a.is<Dim>()) return Add(a.Int());
    pte::IntListDesc list;
    for (Dim d : a.Dims()) list.values.push_back(Add(d.value()));
    return Add(std::move(list));
  }

  const OpSample& sample_;
  pte::ProgramDesc program_;
  pte::MethodDesc method_;
  uint64_t planned_ = 0;
};

// for (n = 0; n != 3; n += 1) s += x, then a view of s moved to an output that is as large as it is asked to be.
pte::ProgramDesc Loop() {
  pte::ProgramDesc p;
  pte::MethodDesc m;
  pte::TensorDesc state = samples::Planned({2, 3}, 0);
  state.fully_qualified_name = "s";
  pte::TensorDesc moved = samples::Planned({3, 2}, 48);
  moved.dynamic_bound = true;
  m.values = {pte::TensorDesc{.dtype = DType::kF32, .sizes = {2, 3}}, state, samples::Planned({2, 3}, 80), int64_t{1}, int64_t{0}, int64_t{3}, false, false,
              pte::TensorDesc{.dtype = DType::kF32, .sizes = {3, 2}}, pte::IntListDesc{{5, 10}}, int64_t{-1}, moved, int64_t{0}};
  m.inputs = {0};
  m.outputs = {11, 1, 4};
  m.operators = {{"aten::add", "out"},
                 {"aten::copy_", ""},
                 {"executorch_prim::add", "Scalar"},
                 {"executorch_prim::eq", "Scalar"},
                 {"executorch_prim::et_view", "default"}};
  m.instructions = {pte::MoveCallDesc{12, 4},
                    pte::KernelCallDesc{0, {1, 0, 3, 2, 2}},
                    pte::KernelCallDesc{1, {1, 2, 7, 1}},
                    pte::KernelCallDesc{2, {4, 3, 4}},
                    pte::KernelCallDesc{3, {4, 5, 6}},
                    pte::JumpFalseDesc{6, 1},
                    pte::KernelCallDesc{4, {1, 9, 8}},
                    pte::MoveCallDesc{8, 11},
                    pte::FreeCallDesc{2}};
  m.non_const_buffer_sizes = {0, 128};
  p.methods.push_back(std::move(m));
  return p;
}

}  // namespace
}  // namespace dovetail

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dovetail;
  auto program = Program::FromBytes(std::as_bytes(std::span(data, size)), "fuzz");
  if (!program.ok()) return 0;
  for (bool borrow : {false, true}) RunAll(**program, borrow);
  return 0;
}

std::vector<std::vector<uint8_t>> FuzzSeeds() {
  using namespace dovetail;
  std::vector<pte::ProgramDesc> programs;
  for (auto* sample : {samples::Add, samples::State, Loop}) programs.push_back(sample());
  std::map<OpId, int> taken;
  for (const OpSample& sample : OpSamples())
    if (sample.error.empty() && !GetOp(sample.op).out_variant.empty() && taken[sample.op]++ < 3) programs.push_back(Call(sample).Program());
  std::vector<std::vector<uint8_t>> seeds;
  for (const pte::ProgramDesc& p : programs) {
    auto bytes = pte::SerializePte(p);
    DT_CHECK(bytes.ok());
    seeds.emplace_back();
    for (std::byte b : *bytes) seeds.back().push_back(static_cast<uint8_t>(b));
  }
  return seeds;
}
