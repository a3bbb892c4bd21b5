#include "compile/emit.h"

#include <gtest/gtest.h>

#include "ir/text.h"

namespace dovetail {
namespace {

struct Call {
  std::string op;
  std::vector<int32_t> args;
};

struct Emitted {
  pte::MethodDesc method;
  std::vector<Call> calls;

  const pte::TensorDesc& tensor(int32_t index) const { return std::get<pte::TensorDesc>(method.values[static_cast<size_t>(index)]); }
  uint64_t offset(int32_t index) const { return tensor(index).allocation->offset; }
};

Emitted EmitText(const std::string& text, bool stock = false) {
  Result<Module> module = Parse(text);
  EXPECT_TRUE(module.ok()) << module.status().ToString();
  EmitStats stats;
  EmitOptions options;
  options.stock = stock;
  Result<pte::ProgramDesc> program = Emit(*module, options, stats);
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  Emitted e{std::move(program->methods[0]), {}};
  for (const pte::InstructionDesc& i : e.method.instructions) {
    const auto& call = std::get<pte::KernelCallDesc>(i);
    e.calls.push_back({e.method.operators[static_cast<size_t>(call.op_index)].name, call.args});
  }
  return e;
}

TEST(Emit, ViewsOfPlannedMemoryAreThatMemory) {
  const Emitted e = EmitText(R"(module {
  graph @f(%x: f32[2,8]) {
    %a = sin %x : f32[2,8]
    %v = view %a {size=[16]} : f32[16]
    %w = view %v {size=[4,4]} : f32[4,4]
    %b = cos %x : f32[2,8]
    %c = sin %b : f32[2,8]
    %d = cos %c : f32[2,8]
    %e = sin %w : f32[4,4]
    return %d, %e
  }
}
)");
  ASSERT_EQ(e.calls.size(), 7u);
  EXPECT_EQ(e.calls[1].op, "executorch_prim::et_view");
  EXPECT_EQ(e.calls[2].op, "executorch_prim::et_view");
  const int32_t a = e.calls[0].args.back(), v = e.calls[1].args[2], w = e.calls[2].args[2];
  ASSERT_EQ(e.calls[1].args.size(), 3u);
  EXPECT_EQ(e.calls[1].args[0], a);
  EXPECT_EQ(e.calls[2].args[0], v);
  EXPECT_EQ(e.tensor(w).sizes, (std::vector<int32_t>{4, 4}));
  EXPECT_EQ(e.offset(v), e.offset(a));
  EXPECT_EQ(e.offset(w), e.offset(a));
  // What is made while only a view of it is still to be read takes other memory.
  for (size_t i = 3; i < 6; ++i) EXPECT_NE(e.offset(e.calls[i].args.back()), e.offset(a)) << i;
}

TEST(Emit, ViewsFromAndToArgumentsAndOfStatesAreCopies) {
  const Emitted e = EmitText(R"(module {
  state @s : f32[2,8] = zeros
  graph @f(%x: f32[2,8]) {
    %a = view %x {size=[16]} : f32[16]
    %b = sin %a : f32[16]
    %c = view %b {size=[8,2]} : f32[8,2]
    %r = state.read @s : f32[2,8]
    %d = view %r {size=[16]} : f32[16]
    %e = sin %d : f32[16]
    return %c, %e
  }
}
)");
  std::vector<std::string> names;
  for (const Call& c : e.calls) names.push_back(c.op);
  EXPECT_EQ(names, (std::vector<std::string>{"aten::view_copy", "aten::sin", "aten::view_copy", "aten::view_copy", "aten::sin"}));
}

TEST(Emit, ViewsForTheStockRuntimeAreCopies) {
  const Emitted e = EmitText(R"(module {
  graph @f(%x: f32[2,8]) {
    %a = sin %x : f32[2,8]
    %v = view %a {size=[16]} : f32[16]
    %b = sin %v : f32[16]
    return %b
  }
}
)", true);
  ASSERT_EQ(e.calls.size(), 3u);
  EXPECT_EQ(e.calls[1].op, "aten::view_copy");
}

}  // namespace
}  // namespace dovetail
