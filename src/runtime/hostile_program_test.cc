// Programs that follow the format and still would read or write memory they must not, or never end.
#include <gtest/gtest.h>

#include "dovetail/program.h"
#include "format/format_samples.h"

namespace dovetail {
namespace {

// "" or why the method cannot be loaded or run on zeros.
std::string ErrorOf(pte::MethodDesc method, InstanceOptions options = {}, std::vector<Payload> constants = {}) {
  pte::ProgramDesc desc;
  desc.constants = std::move(constants);
  desc.methods.push_back(std::move(method));
  auto bytes = pte::SerializePte(desc);
  if (!bytes.ok()) return "not written: " + bytes.status().ToString();
  auto program = Program::FromBytes(*bytes, "test.pte");
  if (!program.ok()) return "not read: " + program.status().ToString();
  options.threads = 1;
  auto instance = (*program)->CreateInstance(options);
  if (!instance.ok()) return instance.status().ToString();
  auto loaded = (*instance)->LoadMethod("forward");
  if (!loaded.ok()) return loaded.status().ToString();
  std::vector<std::vector<std::byte>> data;
  std::vector<TensorView> inputs;
  for (const TensorInfo& info : (*program)->methods()[0].inputs) {
    TensorView t(info.type.dtype, info.max_sizes, nullptr);
    data.emplace_back(t.nbytes() + 16);
    t.data = data.back().data();
    inputs.push_back(t);
  }
  const Status s = (*loaded)->Execute(inputs);
  return s.ok() ? "" : s.ToString();
}
#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

const pte::OperatorDesc kAdd = {"aten::add", "out"}, kView = {"executorch_prim::et_view", "default"};

pte::TensorDesc Unplanned(std::vector<int32_t> sizes, DType dtype = DType::kF32) { return {.dtype = dtype, .sizes = std::move(sizes)}; }

TEST(HostileProgram, ALoopEndsAtTheLimitOfInstructions) {
  pte::MethodDesc m;
  m.values = {false};
  m.instructions = {pte::JumpFalseDesc{0, 0}};
  EXPECT_HAS(ErrorOf(m, {.instruction_limit = 1000}), "instruction 0: jump in method 'forward'");
  m.instructions = {pte::FreeCallDesc{1}, pte::FreeCallDesc{1}};
  m.values.push_back(Unplanned({1}));
  EXPECT_EQ(ErrorOf(m, {.instruction_limit = 2}), "");
  EXPECT_HAS(ErrorOf(m, {.instruction_limit = 1}), "a call runs at most 1 instructions, the limit of this instance");
}

TEST(HostileProgram, AnOutputSharesNoMemoryWithAnOperand) {
  pte::MethodDesc m;
  m.operators = {kAdd};
  m.non_const_buffer_sizes = {0, 64};
  m.instructions = {pte::KernelCallDesc{0, {0, 0, 1, 2, 2}}};
  m.values = {samples::Planned({8}, 0), int64_t{1}, samples::Planned({8}, 16)};
  EXPECT_HAS(ErrorOf(m), "instruction 0: aten::add.out in method 'forward'");
  EXPECT_HAS(ErrorOf(m), "writes value 2 (f32[8]), which shares memory with value 0 (f32[8]) of the same call");
  m.values[2] = samples::Planned({8}, 32);
  EXPECT_EQ(ErrorOf(m), "");
  m.values[2] = samples::Planned({8}, 0);
  EXPECT_HAS(ErrorOf(m), "shares memory");
  m.instructions = {pte::KernelCallDesc{0, {0, 0, 1, 0, 0}}};
  EXPECT_HAS(ErrorOf(m), "shares memory");
}

TEST(HostileProgram, AnIndexIsNotOverwrittenByWhatItPlaces) {
  pte::MethodDesc m;
  m.operators = {{"aten::index_put_", ""}};
  m.non_const_buffer_sizes = {0, 192};
  m.instructions = {pte::KernelCallDesc{0, {0, 2, 3, 4, 0}}};
  m.values = {samples::Planned({8}, 0, DType::kI64), samples::Planned({8}, 0, DType::kI64), pte::OptionalTensorListDesc{{1}},
              samples::Planned({8}, 64, DType::kI64), false};
  EXPECT_HAS(ErrorOf(m), "shares memory");
  m.values[1] = samples::Planned({8}, 128, DType::kI64);
  EXPECT_EQ(ErrorOf(m), "");
}

TEST(HostileProgram, PaddingAndWindowsStayInside) {
  pte::MethodDesc m;
  m.operators = {{"aten::constant_pad_nd", "out"}};
  m.instructions = {pte::KernelCallDesc{0, {0, 1, 4, 5, 5}}};
  m.values = {Unplanned({3}), pte::IntListDesc{{2, 3}}, INT64_MIN, INT64_MAX, int64_t{0}, Unplanned({2})};
  EXPECT_HAS(ErrorOf(m), "constant_pad_nd: an amount of -9223372036854775808");
  m.operators = {{"aten::max_pool2d_with_indices", "out"}};
  m.values = {Unplanned({1, 1, 1}), pte::IntListDesc{{2, 2}}, int64_t{2}, int64_t{100}, int64_t{50}, Unplanned({1, 1, 1}), Unplanned({1, 1, 1}, DType::kI64),
              pte::IntListDesc{{3, 3}}, pte::IntListDesc{{4, 4}}, false, int64_t{1}, pte::IntListDesc{{10, 10}}};
  m.instructions = {pte::KernelCallDesc{0, {0, 1, 11, 8, 7, 9, 5, 6, 5, 6}}};
  EXPECT_HAS(ErrorOf(m), "a dilated window meets no element");
}

TEST(HostileProgram, AnInputIsNoConstant) {
  pte::MethodDesc m;
  pte::TensorDesc constant = Unplanned({2});
  constant.data_buffer_idx = 1;
  m.values = {constant, pte::IntListDesc{{2}}, int64_t{2}, Unplanned({2})};
  m.inputs = {0};
  EXPECT_HAS(ErrorOf(m, {}, {samples::Bytes<float>({1, 2})}), "writes the constant value 0");
  m.inputs = {3};
  m.operators = {kView};
  m.instructions = {pte::KernelCallDesc{0, {0, 1, 3}}};
  EXPECT_HAS(ErrorOf(m, {}, {samples::Bytes<float>({1, 2})}), "writes a constant through value 3");
}

TEST(HostileProgram, AViewIsOfOneMemoryThatIsLargeEnough) {
  pte::MethodDesc m;
  m.operators = {kView, kAdd};
  m.values = {Unplanned({2}), Unplanned({64}), Unplanned({2}), pte::IntListDesc{{4}}, int64_t{-1}, int64_t{1}, Unplanned({64})};
  m.inputs = {0, 1};
  m.instructions = {pte::KernelCallDesc{0, {0, 3, 2}}, pte::KernelCallDesc{0, {1, 3, 2}}};
  EXPECT_HAS(ErrorOf(m), "makes value 2 (f32[2]) a view of value 1 (f32[64]), but it is another view already");
  m.instructions = {pte::KernelCallDesc{0, {2, 3, 6}}, pte::KernelCallDesc{0, {0, 3, 2}}};
  EXPECT_HAS(ErrorOf(m), "or has views itself");
  m.instructions = {pte::KernelCallDesc{1, {6, 6, 5, 1, 1}}, pte::KernelCallDesc{0, {0, 3, 6}}};
  EXPECT_HAS(ErrorOf(m), "has value 6 (f32[64]), a view of the smaller value 0 (f32[2])");
}

TEST(HostileProgram, AViewOfABorrowedInputMayBeReadBeforeItIsMade) {
  pte::MethodDesc m;
  m.operators = {kView, kAdd};
  m.values = {Unplanned({2}), Unplanned({2}), pte::IntListDesc{{3}}, int64_t{-1}, int64_t{1}, Unplanned({2})};
  m.inputs = {0};
  m.outputs = {5};
  m.instructions = {pte::KernelCallDesc{1, {1, 1, 4, 5, 5}}, pte::KernelCallDesc{0, {0, 2, 1}}};
  EXPECT_EQ(ErrorOf(m, {.borrow_inputs = true}), "");
}

TEST(HostileProgram, AViewOfNothingHasNoFreeSize) {
  pte::MethodDesc m;
  m.operators = {kView};
  m.values = {Unplanned({0}), Unplanned({0, 3}), pte::IntListDesc{{3, 4}}, int64_t{-1}, int64_t{0}};
  std::get<pte::TensorDesc>(m.values[1]).dynamic_bound = true;
  m.inputs = {0};
  m.instructions = {pte::KernelCallDesc{0, {0, 2, 1}}};
  EXPECT_HAS(ErrorOf(m), "the view has any size at dimension 0");
}

TEST(HostileProgram, ScratchCountsTowardsTheMemoryLimit) {
  pte::MethodDesc m;
  m.operators = {{"dovetail::attention", "out"}};
  m.values = {Unplanned({1, 1, 8}), Unplanned({1, 4096, 8}), Unplanned({1, 4096, 8}), pte::NoneDesc{}, false, Unplanned({1, 1, 8})};
  m.inputs = {0, 1, 2};
  m.instructions = {pte::KernelCallDesc{0, {0, 1, 2, 3, 3, 4, 3, 4, 4, 5, 5}}};
  const size_t tensors = (2 * 8 + 2 * 4096 * 8) * sizeof(float);
  EXPECT_EQ(ErrorOf(m), "");
  EXPECT_HAS(ErrorOf(m, {.memory_limit = tensors}), "bytes of scratch");
}

// Attributes that say where rows and heads are, which the shapes don't bear out.
TEST(HostileProgram, AttentionByRowIsOfTheShapesThatItSays) {
  pte::MethodDesc m;
  m.operators = {{"dovetail::attention", "out"}, {"dovetail::quantized_attention", "out"}};
  m.values = {Unplanned({2, 3, 4, 8}), Unplanned({2, 5, 4, 8}), Unplanned({2, 4, 5, 8}), Unplanned({2, 5, 4, 8}, DType::kI8), Unplanned({2, 5, 4, 1}),
              pte::NoneDesc{}, false, true, Unplanned({2, 3, 4, 8}), int64_t{1}, Unplanned({2, 4}), Unplanned({3, 4, 8})};
  m.inputs = {0, 1, 2, 3, 4};
  const auto attention = [&](int query, int key, int value, int by_row, int keys_by_row, int out) {
    m.instructions = {pte::KernelCallDesc{0, {query, key, value, 5, 5, 6, 5, by_row, keys_by_row, out, out}}};
    return ErrorOf(m);
  };
  EXPECT_EQ(attention(0, 1, 1, 7, 7, 8), "");
  EXPECT_EQ(attention(0, 2, 2, 7, 6, 8), "");
  EXPECT_HAS(attention(0, 1, 1, 6, 7, 8), "the heads of the query are not a multiple of those of the key");
  EXPECT_HAS(attention(0, 1, 1, 7, 6, 8), "the heads of the query are not a multiple of those of the key");
  EXPECT_HAS(attention(0, 1, 2, 7, 7, 8), "key and value have different heads or lengths");
  EXPECT_HAS(attention(10, 1, 1, 7, 7, 8), "attention's query");
  EXPECT_HAS(attention(0, 11, 11, 7, 7, 8), "the ranks differ");
  EXPECT_HAS(attention(0, 1, 1, 7, 7, 2), "f32[2,3,4,8]");
  EXPECT_HAS(attention(0, 1, 1, 7, 9, 8), "argument 'keys_by_row' must be a bool");
  EXPECT_HAS(attention(0, 1, 1, 5, 7, 8), "argument 'query_by_row' must be given");
  m.instructions = {pte::KernelCallDesc{0, {0, 1, 1, 5, 5, 6, 5, 8, 8}}};
  EXPECT_HAS(ErrorOf(m), "argument 'query_by_row' must be a number");
  const auto quantized = [&](int by_row, int keys_by_row) {
    m.instructions = {pte::KernelCallDesc{1, {0, 3, 3, 4, 4, 5, 5, 6, 5, by_row, keys_by_row, 8, 8}}};
    return ErrorOf(m);
  };
  EXPECT_EQ(quantized(7, 7), "");
  EXPECT_HAS(quantized(7, 6), "the heads of the query are not a multiple of those of the key");
}

TEST(HostileProgram, NothingIsComputedInNoTimeHoweverManyRows) {
  pte::MethodDesc m;
  m.operators = {{"aten::_softmax", "out"}};
  m.values = {Unplanned({INT32_MAX, 1024, 0}, DType::kF16), int64_t{2}, false, Unplanned({INT32_MAX, 1024, 0}, DType::kF16)};
  m.inputs = {0};
  m.instructions = {pte::KernelCallDesc{0, {0, 1, 2, 3, 3}}};
  EXPECT_EQ(ErrorOf(m), "");
}

}  // namespace
}  // namespace dovetail
