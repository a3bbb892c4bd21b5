#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "base/mapped_file.h"
#include "format/format_samples.h"
#include "format/pte_reader.h"

namespace dovetail {
namespace {

using pte::ProgramDesc;

// A copy at an aligned address, as a mapping would be.
class Aligned {
 public:
  explicit Aligned(const std::vector<std::byte>& bytes) : store_(bytes.size() / 16 + 1), size_(bytes.size()) {
    if (size_ > 0) std::memcpy(store_.data(), bytes.data(), size_);
  }
  std::span<std::byte> span() { return {reinterpret_cast<std::byte*>(store_.data()), size_}; }

 private:
  struct alignas(16) Block { char bytes[16]; };
  std::vector<Block> store_;
  size_t size_;
};

std::vector<std::byte> Serialize(const ProgramDesc& p) {
  auto bytes = pte::SerializePte(p);
  EXPECT_TRUE(bytes.ok()) << bytes.status().ToString();
  return bytes.ok() ? std::move(*bytes) : std::vector<std::byte>{};
}

std::vector<float> Floats(std::span<const std::byte> bytes) {
  std::vector<float> v(bytes.size() / 4);
  std::memcpy(v.data(), bytes.data(), v.size() * 4);
  return v;
}

// The files that tests/test_pte_executorch.py runs in ExecuTorch; it sets the folder.
TEST(PteSamples, Write) {
  const std::string folder = ::testing::TempDir();
  const std::pair<const char*, ProgramDesc> samples[] = {{"add", samples::Add()},
                                                         {"state", samples::State()},
                                                         {"fc_named", samples::FullyConnected(true)},
                                                         {"fc_blob", samples::FullyConnected(false)},
                                                         {"fc_tied", samples::FullyConnected(true, true)}};
  for (const auto& [name, desc] : samples) {
    const std::string path = StrCat(folder, "/dovetail_sample_", name, ".pte");
    auto size = pte::WritePte(desc, path);
    ASSERT_TRUE(size.ok()) << size.status().ToString();
    auto file = MappedFile::Open(path);
    ASSERT_TRUE(file.ok());
    EXPECT_EQ((*file)->bytes().size(), *size);
    auto view = ReadPte((*file)->bytes(), path);
    EXPECT_TRUE(view.ok()) << view.status().ToString();
  }
}

TEST(Pte, RoundTripsDataAndIsDeterministic) {
  const ProgramDesc desc = samples::State();
  Aligned bytes(Serialize(desc));
  EXPECT_EQ(Serialize(desc), std::vector<std::byte>(bytes.span().begin(), bytes.span().end()));
  auto view = ReadPte(bytes.span(), "state.pte");
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  const pte::ExecutionPlan* plan = view->FindMethod("forward");
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(view->FindMethod("backward"), nullptr);
  const pte::Tensor& constant = *plan->values()->Get(1)->val_as_Tensor();
  const pte::Tensor& state = *plan->values()->Get(2)->val_as_Tensor();
  EXPECT_EQ(Floats(view->ConstantData(constant)), (std::vector<float>{2, 3}));
  EXPECT_TRUE(view->InitialData(constant).empty());
  EXPECT_EQ(Floats(view->InitialData(state)), (std::vector<float>{10, 20}));
  EXPECT_TRUE(view->ConstantData(state).empty());
  EXPECT_EQ(state.extra_tensor_info()->fully_qualified_name()->string_view(), "s");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view->ConstantData(constant).data()) % 16, 0u);
}

TEST(Pte, SegmentsAreAlignedAndNamedDataIsFound) {
  ProgramDesc desc = samples::FullyConnected(true);
  desc.named_data.push_back({.keys = {"b", "a"}, .payload = samples::Bytes<char>({'h', 'i'}), .alignment = 4096});
  Aligned bytes(Serialize(desc));
  auto view = ReadPte(bytes.span(), "fc.pte");
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  for (const pte::DataSegment* s : *view->program().segments()) EXPECT_EQ(s->offset() % 128, 0u);
  ASSERT_TRUE(view->FindNamedData("a") && view->FindNamedData("b"));
  EXPECT_EQ(view->FindNamedData("a")->data(), view->FindNamedData("b")->data());
  EXPECT_EQ(view->FindNamedData("a")->size(), 2u);
  EXPECT_FALSE(view->FindNamedData("c"));
  const auto blob = view->DelegateData(*view->FindMethod("forward")->delegates()->Get(0));
  auto read = ReadXnnpackBlob(blob, "delegate 0");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->graph->xnodes()->size(), 1u);
  EXPECT_EQ(Floats(read->constants.first(8)), (std::vector<float>{10, 20}));
}

TEST(Pte, SharesTheFirstConstantWithNamedData) {
  Aligned bytes(Serialize(samples::FullyConnected(true, true)));
  auto view = ReadPte(bytes.span(), "tied.pte");
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  const pte::Tensor& table = *view->FindMethod("forward")->values()->Get(2)->val_as_Tensor();
  EXPECT_EQ(view->FindNamedData("w")->data(), view->ConstantData(table).data());
}

TEST(Pte, StreamsPayloadsOneAtATimeAndChecksTheirSize) {
  ProgramDesc desc = samples::Add();
  int live = 0, most = 0;
  for (int i = 0; i < 3; ++i)
    desc.constants.push_back({1 << 16, [&](ByteSink& sink) {
                                most = std::max(most, ++live);
                                std::vector<std::byte> piece(1 << 15);
                                DT_RETURN_IF_ERROR(sink.Write(piece.data(), piece.size()));
                                DT_RETURN_IF_ERROR(sink.Write(piece.data(), piece.size()));
                                --live;
                                return OkStatus();
                              }});
  EXPECT_GT(Serialize(desc).size(), 3u << 16);
  EXPECT_EQ(most, 1);
  const std::string path = ::testing::TempDir() + "/dovetail_short.pte";
  for (uint64_t wrong : {uint64_t{10}, uint64_t{30}}) {
    desc.constants.assign(1, samples::Bytes<char>(std::vector<char>(20)));
    desc.constants[0].size = wrong;
    auto size = pte::WritePte(desc, path);
    ASSERT_FALSE(size.ok());
    EXPECT_NE(size.status().ToString().find(wrong == 10 ? "more bytes than it promised" : "10 bytes fewer"), std::string::npos) << size.status().ToString();
    EXPECT_FALSE(std::ifstream(path).good());
  }
}

struct Refusal {
  const char* message;
  std::function<void(ProgramDesc&)> spoil;
};

pte::TensorDesc& TensorOf(ProgramDesc& p, size_t value) { return std::get<pte::TensorDesc>(p.methods[0].values[value]); }

TEST(Pte, WriterRefusesWhatTheReaderWould) {
  const Refusal refusals[] = {
      {"instructions[0]: args[1] is 9, but there are 7 values", [](auto& p) { std::get<0>(p.methods[0].instructions[0]).args[1] = 9; }},
      {"instructions[1]: op_index is 3, but there are 3 operators", [](auto& p) { std::get<0>(p.methods[0].instructions[1]).op_index = 3; }},
      {"delegate_index is 0, but there are 0 delegates", [](auto& p) { p.methods[0].instructions[0] = pte::DelegateCallDesc{0, {}}; }},
      {"values[3]: 8 bytes at offset 60 pass the end of planned memory 1 (64 bytes)", [](auto& p) { TensorOf(p, 3).allocation->offset = 60; }},
      {"values[3]: memory offset 2 is not a multiple", [](auto& p) { TensorOf(p, 3).allocation->offset = 2; }},
      {"memory_id is 2, but non_const_buffer_sizes has 2 entries", [](auto& p) { TensorOf(p, 3).allocation->memory_id = 2; }},
      {"values[3]: sizes[0] is -2", [](auto& p) { TensorOf(p, 3).sizes[0] = -2; }},
      {"the product of sizes overflows", [](auto& p) { TensorOf(p, 0) = {.dtype = DType::kF32, .sizes = {0, 1 << 30, 1 << 30, 1 << 30}}; }},
      {"has 9 dimensions (at most 8)", [](auto& p) { TensorOf(p, 0) = {.dtype = DType::kF32, .sizes = std::vector<int32_t>(9, 1)}; }},
      {"dim_order is not a permutation", [](auto& p) { TensorOf(p, 0) = {.dtype = DType::kF32, .sizes = {2, 2}, .dim_order = {1, 1}}; }},
      {"dim_order has 1 entries for 2 dimensions", [](auto& p) { TensorOf(p, 0) = {.dtype = DType::kF32, .sizes = {2, 2}, .dim_order = {0}}; }},
      {"values[1]: needs 12 bytes at offset 64 of segment 0, which has 72", [](auto& p) { TensorOf(p, 1).sizes[0] = 3; }},
      {"data_buffer_idx 7 has no payload", [](auto& p) { TensorOf(p, 1).data_buffer_idx = 7; }},
      {"a .pte cannot hold a tensor of type c64", [](auto& p) { TensorOf(p, 1).dtype = DType::kC64; }},
      {"items names value 6, which is not an Int", [](auto& p) { p.methods[0].values.push_back(pte::IntListDesc{{5, 6}}); }},
      {"items names value 5, which is not a Tensor", [](auto& p) { p.methods[0].values.push_back(pte::TensorListDesc{{0, 5}}); }},
      {"neither a Tensor nor None", [](auto& p) { p.methods[0].values.push_back(pte::OptionalTensorListDesc{{-1, 0, 5}}); }},
      {"inputs[0] is -1", [](auto& p) { p.methods[0].inputs[0] = -1; }},
      {"moves between values of different kinds", [](auto& p) { p.methods[0].instructions.push_back(pte::MoveCallDesc{0, 5}); }},
      {"names a value that is not a bool", [](auto& p) { p.methods[0].instructions.push_back(pte::JumpFalseDesc{5, 0}); }},
      {"destination_instruction is 5 of 4", [](auto& p) { p.methods[0].instructions.push_back(pte::JumpFalseDesc{6, 5}); }},
      {"frees a value that is not a Tensor", [](auto& p) { p.methods[0].instructions.emplace_back(pte::FreeCallDesc{5}); }},
      {"two methods are named 'forward'", [](auto& p) { p.methods.push_back(p.methods[0]); }},
      {"the program has no method", [](auto& p) { p.methods.clear(); }},
      {"named_data has the key 'k' twice", [](auto& p) { p.named_data = {{.keys = {"k", "k"}, .payload = {}}}; }},
      {"alignment 3, not a power of two", [](auto& p) { p.named_data = {{.keys = {"k"}, .payload = {}, .alignment = 3}}; }},
      {"blob_index is 0 of 0", [](auto& p) { p.methods[0].delegates = {{.id = "x"}}; }},
      {"non_const_buffer_sizes[1] is -8", [](auto& p) { p.methods[0].non_const_buffer_sizes[1] = -8; }},
  };
  for (const Refusal& r : refusals) {
    ProgramDesc desc = samples::State();
    r.spoil(desc);
    auto bytes = pte::SerializePte(desc);
    ASSERT_FALSE(bytes.ok()) << r.message;
    EXPECT_NE(bytes.status().ToString().find(r.message), std::string::npos) << r.message << " vs " << bytes.status().ToString();
  }
}

std::string ReadError(std::span<const std::byte> bytes) {
  auto view = ReadPte(bytes, "m.pte");
  return view.ok() ? "" : view.status().ToString();
}

TEST(Pte, HashesFindEachFlippedByte) {
  for (ProgramDesc desc : {samples::State(), samples::FullyConnected(true), samples::FullyConnected(false), samples::FullyConnected(true, true)}) {
    desc.hashes = true;
    const std::vector<std::byte> good = Serialize(desc);
    Aligned bytes(good);
    auto whole = ReadPte(bytes.span(), "m.pte");
    ASSERT_TRUE(whole.ok()) << whole.status().ToString();
    EXPECT_TRUE(whole->has_hashes());
    const auto* segments = whole->program().segments();
    for (uint32_t s = 0; s < segments->size(); ++s) {
      EXPECT_TRUE(whole->CheckSegment(s).ok());
      const std::span<const std::byte> segment = whole->Segment(s);
      if (segment.empty()) continue;
      EXPECT_EQ(whole->SegmentOf(segment), s);
      for (size_t at = segment.data() - bytes.span().data(), end = at + segment.size(); at < end; ++at) {
        bytes.span()[at] ^= std::byte{4};
        if (s + 1 == segments->size()) EXPECT_NE(ReadError(bytes.span()).find("dovetail.hashes is damaged"), std::string::npos);
        else EXPECT_NE(whole->CheckSegment(s).ToString().find(StrCat("'m.pte': segment ", s, " (")), std::string::npos);
        bytes.span()[at] ^= std::byte{4};
      }
    }
    for (size_t at = 0; at < static_cast<size_t>(whole->Segment(0).data() - bytes.span().data()); ++at) {
      bytes.span()[at] ^= std::byte{4};
      // Behind the table is padding; in the name of the hashes a flip hides them.
      auto read = ReadPte(bytes.span(), "m.pte");
      EXPECT_TRUE(!read.ok() || !read->has_hashes() || bytes.span()[at] == std::byte{4}) << at;
      bytes.span()[at] ^= std::byte{4};
    }
  }
}

TEST(Pte, ReaderNamesWhatIsWrongWithAFile) {
  const std::vector<std::byte> good = Serialize(samples::State());
  auto spoiled = [&](auto change) {
    Aligned bytes(good);
    change(bytes.span());
    return ReadError(bytes.span());
  };
  auto put = [](std::span<std::byte> b, size_t at, uint64_t v) { std::memcpy(b.data() + at, &v, 8); };
  EXPECT_EQ(spoiled([](auto) {}), "");
  EXPECT_NE(spoiled([](auto b) { b[4] = std::byte{'Q'}; }).find("'m.pte' is not a .pte program"), std::string::npos);
  EXPECT_NE(spoiled([](auto b) { b[7] = std::byte{'9'}; }).find("format 'ET19'"), std::string::npos);
  EXPECT_NE(spoiled([&](auto b) { put(b, 16, 1 << 30); }).find("it is truncated"), std::string::npos);
  EXPECT_NE(spoiled([&](auto b) { put(b, 24, 1 << 30); }).find("the segment base"), std::string::npos);
  EXPECT_NE(spoiled([&](auto b) { put(b, 32, 1 << 30); }).find("bytes of segments"), std::string::npos);
  EXPECT_NE(spoiled([](auto b) { b[12] = std::byte{1}; }).find("extended header's length is 1"), std::string::npos);
  EXPECT_NE(spoiled([](auto b) { b[8] = std::byte{0}; }).find("truncated or corrupt"), std::string::npos);
  EXPECT_NE(spoiled([](auto b) { b[0] = std::byte{0xf0}; b[1] = std::byte{0xff}; }).find("flatbuffers verification failed"), std::string::npos);
  for (size_t n = 0; n < good.size(); n += 7) {
    Aligned cut(std::vector<std::byte>(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n)));
    EXPECT_NE(ReadError(cut.span()), "") << n;
  }
  alignas(16) std::byte odd[64] = {};
  EXPECT_NE(ReadError({odd + 1, 32}).find("multiple of 16"), std::string::npos);
}

// Every byte changed in turn: the file is refused, or whatever the view gives can be read.
TEST(Pte, SurvivesEveryByteChanged) {
  for (const ProgramDesc& desc : {samples::State(), samples::FullyConnected(false)}) {
    Aligned bytes(Serialize(desc));
    const std::span<std::byte> b = bytes.span();
    uint64_t sum = 0;
    for (size_t i = 0; i < b.size(); ++i)
      for (int delta : {1, 0x80, 0xff}) {
        b[i] ^= static_cast<std::byte>(delta);
        auto view = ReadPte(b, "m.pte");
        if (view.ok())
          for (const pte::ExecutionPlan* plan : *view->program().execution_plan()) {
            for (const pte::EValue* v : *plan->values())
              if (auto* t = v->val_as_Tensor())
                for (std::byte x : view->ConstantData(*t).empty() ? view->InitialData(*t) : view->ConstantData(*t)) sum += static_cast<uint64_t>(x);
            if (plan->delegates())
              for (const pte::BackendDelegate* d : *plan->delegates()) sum += ReadXnnpackBlob(view->DelegateData(*d), "d").ok();
          }
        b[i] ^= static_cast<std::byte>(delta);
      }
    EXPECT_GT(sum, 0u);
  }
}

}  // namespace
}  // namespace dovetail
