// What the importer says about files that it cannot take: the file, the node, the user's source line and the way out.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/crc32.h"
#include "base/mapped_file.h"
#include "import/import.h"
#include "import/zip.h"

namespace dovetail {
namespace {

using Bytes = std::vector<std::byte>;

::testing::AssertionResult Contains(std::string_view text, std::string_view part) {
  if (text.find(part) != std::string_view::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << part << "' is not in: " << text;
}

constexpr std::string_view kFixtures = "tests/fixtures/import/";

std::string FixturePath(std::string_view name) { return StrCat(kFixtures, name, ".pt2"); }

Bytes ReadFixture(std::string_view name) {
  auto file = MappedFile::Open(FixturePath(name));
  EXPECT_TRUE(file.ok()) << file.status().ToString();
  return file.ok() ? Bytes((*file)->bytes().begin(), (*file)->bytes().end()) : Bytes();
}

// The whole text of the error of importing the file, "" when there is none.
std::string ErrorOf(const std::string& path, size_t* count = nullptr) {
  const auto module = ImportPt2(path);
  if (count) *count = module.status().count();
  return module.ok() ? "" : module.status().ToString();
}
std::string ErrorOfBytes(const Bytes& bytes, std::string_view graph_name = "forward") {
  const auto module = ImportPt2Bytes(bytes, "model.pt2", graph_name);
  return module.ok() ? "" : module.status().ToString();
}
// Through a file of its own, as a user has it.
std::string ErrorOfFile(std::string_view content) {
  const std::string path = StrCat(::testing::TempDir(), "dovetail_import_errors_", ::getpid(), ".pt2");
  std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
  std::string error = ErrorOf(path);
  std::filesystem::remove(path);
  EXPECT_TRUE(Contains(error, StrCat("while importing '", path, "'")));
  return error;
}

// A zip archive of stored members.
class ZipWriter {
 public:
  void Add(std::string_view name, std::string_view content, uint16_t method = 0) {
    const uint32_t size = static_cast<uint32_t>(content.size()), at = static_cast<uint32_t>(bytes_.size());
    const uint32_t crc = Crc32(std::as_bytes(std::span(content)));
    Put<uint32_t>(bytes_, 0x04034b50);
    Header(bytes_, name, crc, size, method);
    Text(bytes_, name);
    Text(bytes_, content);
    Put<uint32_t>(directory_, 0x02014b50);
    Put<uint16_t>(directory_, 20);
    Header(directory_, name, crc, size, method);
    directory_.resize(directory_.size() + 10);  // comment, disk, attributes
    Put<uint32_t>(directory_, at);
    Text(directory_, name);
    ++entries_;
  }
  Bytes Finish() {
    const uint32_t at = static_cast<uint32_t>(bytes_.size()), size = static_cast<uint32_t>(directory_.size());
    bytes_.insert(bytes_.end(), directory_.begin(), directory_.end());
    Put<uint32_t>(bytes_, 0x06054b50);
    Put<uint32_t>(bytes_, 0);
    Put<uint16_t>(bytes_, entries_);
    Put<uint16_t>(bytes_, entries_);
    Put<uint32_t>(bytes_, size);
    Put<uint32_t>(bytes_, at);
    Put<uint16_t>(bytes_, 0);
    return std::move(bytes_);
  }

 private:
  template <class T>
  static void Put(Bytes& to, T v) {
    const auto* p = reinterpret_cast<const std::byte*>(&v);
    to.insert(to.end(), p, p + sizeof v);
  }
  static void Text(Bytes& to, std::string_view text) {
    const auto* p = reinterpret_cast<const std::byte*>(text.data());
    to.insert(to.end(), p, p + text.size());
  }
  static void Header(Bytes& to, std::string_view name, uint32_t crc, uint32_t size, uint16_t method) {
    for (uint16_t v : {uint16_t{20}, uint16_t{0}, method, uint16_t{0}, uint16_t{0}}) Put(to, v);
    for (uint32_t v : {crc, size, size}) Put(to, v);
    Put(to, static_cast<uint16_t>(name.size()));
    Put<uint16_t>(to, 0);
  }

  Bytes bytes_, directory_;
  uint16_t entries_ = 0;
};

// A fixture with its members changed: `change` edits a member's name and content, and drops it by returning false.
using Change = std::function<bool(std::string& name, std::string& content)>;
Bytes Repacked(std::string_view fixture, const Change& change) {
  const Bytes bytes = ReadFixture(fixture);
  const auto zip = pt2::ZipArchive::Open(bytes);
  EXPECT_TRUE(zip.ok()) << zip.status().ToString();
  ZipWriter writer;
  if (!zip.ok()) return writer.Finish();
  for (const pt2::ZipMember& m : (*zip).members()) {
    std::string name(m.name), content(reinterpret_cast<const char*>(m.data.data()), m.data.size());
    if (change(name, content)) writer.Add(name, content);
  }
  return writer.Finish();
}
std::string ErrorOfChanged(std::string_view fixture, std::string_view member, std::string_view from, std::string_view to) {
  return ErrorOfBytes(Repacked(fixture, [&](std::string& name, std::string& content) {
    const size_t at = content.find(from);
    if (!name.ends_with(member)) return true;
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) content.replace(at, from.size(), to);
    return true;
  }));
}

TEST(FileErrors, NotAPt2) {
  EXPECT_TRUE(Contains(ErrorOfFile("def forward(x): return x\n"),
                       "not a .pt2 file: it is no zip archive; torch.export.save(program, \"model.pt2\") writes one"));
  EXPECT_TRUE(Contains(ErrorOfFile(""), "not a .pt2 file: it is empty; copy or export it again"));
  EXPECT_TRUE(Contains(ErrorOf("no/such/model.pt2"), "cannot open 'no/such/model.pt2': No such file"));
  EXPECT_TRUE(Contains(ErrorOf("tests"), "'tests' is not a regular file"));
}

TEST(FileErrors, ArchiveWithoutAModel) {
  ZipWriter writer;
  writer.Add("readme.txt", "no model here");
  EXPECT_TRUE(Contains(ErrorOfBytes(writer.Finish()), "not a .pt2 file: the archive holds no models/NAME.json; torch.export.save"));
}

TEST(FileErrors, DamagedWeights) {
  Bytes bytes = ReadFixture("state_init");
  const auto zip = pt2::ZipArchive::Open(bytes);
  ASSERT_TRUE(zip.ok());
  size_t weights = 0;
  for (const pt2::ZipMember& m : (*zip).members()) {
    if (m.data.empty() || m.name.find("/data/") == std::string_view::npos || m.name.ends_with(".json")) continue;
    Bytes damaged = bytes;
    damaged[static_cast<size_t>(m.data.data() - bytes.data()) + m.data.size() / 2] ^= std::byte{4};
    EXPECT_TRUE(Contains(ErrorOfBytes(damaged), StrCat("(member '", m.name, "') do not match their checksum: the file is damaged")));
    ++weights;
  }
  EXPECT_GT(weights, 0u);
}

TEST(FileErrors, PickledWeights) {
  ZipWriter checkpoint;
  checkpoint.Add("model/data.pkl", "\x80\x02}q\x00.");
  checkpoint.Add("model/byteorder", "little");
  checkpoint.Add("model/data/0", "0123");
  checkpoint.Add("model/version", "3\n");
  EXPECT_TRUE(Contains(ErrorOfBytes(checkpoint.Finish()),
                       "the file is a pickled checkpoint of torch.save, not a .pt2; export the model with torch.export.export and torch.export.save"));
  ZipWriter older;
  older.Add("serialized_exported_program.json", "{}");
  older.Add("serialized_state_dict.pt", "");
  EXPECT_TRUE(Contains(ErrorOfBytes(older.Finish()), "a .pt2 of an older layout"));
}

TEST(FileErrors, Truncated) {
  const Bytes whole = ReadFixture("state_init");
  ASSERT_EQ(ErrorOfBytes(whole), "");
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string error = ErrorOfBytes(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
    ASSERT_TRUE(Contains(error, "while importing 'model.pt2'")) << size;
    // Of a few bytes, or none, nobody can say that they were a .pt2.
    ASSERT_TRUE(Contains(error, size >= 4 ? "the file is truncated or damaged" : "not a .pt2 file")) << size;
    ASSERT_TRUE(Contains(error, size == 0 || size >= 4 ? "copy or export it again" : "torch.export.save")) << size;
  }
}

TEST(FileErrors, PackedAgain) {
  EXPECT_EQ(ErrorOfBytes(Repacked("state_init", [](std::string&, std::string&) { return true; })), "");
  ZipWriter compressed;
  compressed.Add("archive/models/model.json", "", 8);
  EXPECT_TRUE(Contains(ErrorOfBytes(compressed.Finish()), "member 'archive/models/model.json' of the archive is compressed"));
  ZipWriter twice;
  twice.Add("archive/models/model.json", "{}");
  twice.Add("archive/models/model.json", "{}");
  EXPECT_TRUE(Contains(ErrorOfBytes(twice.Finish()), "the archive has two members named 'archive/models/model.json'"));
}

TEST(FileErrors, DamagedContents) {
  EXPECT_TRUE(Contains(ErrorOfChanged("state_init", "byteorder", "little", "big"), "written on a big-endian machine"));
  EXPECT_TRUE(Contains(ErrorOfChanged("state_init", "models/model.json", "{", "<"), "archive/models/model.json is not valid JSON"));
  EXPECT_TRUE(Contains(ErrorOfChanged("state_init", "models/model.json", "\"nodes\"", "\"knots\""), "the graph has no 'nodes'"));
  EXPECT_TRUE(Contains(ErrorOfChanged("state_init", "models/model.json", "\"major\":8", "\"major\":7"),
                       "save the model again with torch 2.10 or newer"));
  EXPECT_TRUE(Contains(ErrorOfChanged("state_init", "_constants_config.json", "\"use_pickle\": false", "\"use_pickle\": true"),
                       "is stored as a Python pickle"));
  EXPECT_TRUE(Contains(ErrorOf("tests/fixtures/quantized/ao_8da4w_subclass.pt2"), "call torchao.utils.unwrap_tensor_subclass(model) before torch.export.export"));
  const Bytes without_data = Repacked("state_init", [](std::string& name, std::string&) { return name.find("/tensor_") == std::string::npos; });
  EXPECT_TRUE(Contains(ErrorOfBytes(without_data), "the archive has no member 'archive/data/constants/tensor_0'"));
  EXPECT_TRUE(Contains(ErrorOfBytes(Repacked("state_init", [](std::string& name, std::string& content) {
                if (name.find("/tensor_") != std::string::npos) content.resize(content.size() / 2);
                return true;
              })), "constant 'k' of type f32[4,2] reaches past the 16 bytes of its storage"));
}

TEST(FileErrors, SeveralModels) {
  const Bytes bytes = Repacked("state_init", [](std::string& name, std::string&) {
    const size_t at = name.rfind("/model");
    if (at != std::string::npos) name.replace(at, 6, "/decode");
    return true;
  });
  EXPECT_EQ(ErrorOfBytes(bytes), "");  // the only one may have any name
  ZipWriter both;
  both.Add("archive/models/prefill.json", "{}");
  both.Add("archive/models/decode.json", "{}");
  EXPECT_TRUE(Contains(ErrorOfBytes(both.Finish()),
                       "the file holds several models (archive/models/prefill.json, archive/models/decode.json) and none is named 'forward'"));
}

// Whatever one byte of a file is, the importer ends with a module or with a message that names the file.
TEST(FileErrors, AnyByteMayBeWrong) {
  for (const char* name : {"state_init", "refused_size"}) {
    Bytes bytes = ReadFixture(name);
    for (size_t i = 0; i < bytes.size(); ++i) {
      const std::byte kept = bytes[i];
      for (std::byte wrong : {std::byte{0xff}, std::byte{0}, kept ^ std::byte{1}}) {
        bytes[i] = wrong;
        const std::string error = ErrorOfBytes(bytes);
        ASSERT_TRUE(error.empty() || Contains(error, "while importing 'model.pt2'")) << name << " at " << i;
      }
      bytes[i] = kept;
    }
  }
}

// Replaces the target of one node of refused_operators.
std::string ErrorOfTarget(std::string_view target) {
  return ErrorOfChanged("refused_operators", "model.json", "torch.ops.aten.cholesky.default", target);
}

TEST(ModelErrors, AllUnsupportedOperatorsAtOnce) {
  const std::string way_out =
      " is not supported; program.run_decompositions() before saving may replace it, else rewrite this line with operators that `dovetail ops` lists";
  size_t count = 0;
  EXPECT_EQ(ErrorOf(FixturePath("refused_operators"), &count),
            StrCat("operator aten.linalg_svdvals.default", way_out, R"(
  at %linalg_svdvals = aten.linalg_svdvals.default
  from tests/import/cases.py:348, in forward: a = torch.linalg.svdvals(x)
  while importing 'tests/fixtures/import/refused_operators.pt2'
operator aten.fft_rfft.default)", way_out, R"(
  at %fft_rfft = aten.fft_rfft.default
  from tests/import/cases.py:349, in forward: b = torch.fft.rfft(x).abs()
operator aten.linalg_svdvals.default)", way_out, R"(
  at %linalg_svdvals_1 = aten.linalg_svdvals.default
  from tests/import/cases.py:350, in forward: c = torch.linalg.svdvals(x + 1)
operator aten.cholesky.default)", way_out, R"(
  at %cholesky = aten.cholesky.default
  from tests/import/cases.py:351, in forward: return a + c, b, torch.cholesky(x.t() @ x))"));
  EXPECT_EQ(count, 4u);
}

TEST(ModelErrors, OperatorsThatAreNoneOfTorchs) {
  EXPECT_TRUE(Contains(ErrorOfTarget("torch.ops.my_library.solve.default"),
                       "operator my_library.solve.default is not supported; rewrite this line with torch's own operators"));
  EXPECT_TRUE(Contains(ErrorOfTarget("torch.ops.higher_order.cond"), "compute both sides and choose with torch.where"));
  EXPECT_TRUE(Contains(ErrorOfTarget("torch.ops.quantized_decomposed.embedding_4bit.default"),
                       "operator quantized_decomposed.embedding_4bit.default is not supported; of models quantized in PyTorch, those of prepare_pt2e/convert_pt2e"));
  EXPECT_TRUE(Contains(ErrorOfTarget("torch.ops.torchao.solve.default"), "else export the model in float and let `dovetail compile --quantize` quantize it"));
}

TEST(ModelErrors, TrainingMode) {
  size_t count = 0;
  EXPECT_EQ(ErrorOf(FixturePath("refused_training"), &count), R"(the model was exported in training mode; call model.eval() before torch.export.export
  at %batch_norm = aten.batch_norm.default
  from tests/import/cases.py:342, in forward: return self.drop(self.bn(x)) (module bn)
  while importing 'tests/fixtures/import/refused_training.pt2'
the model was exported in training mode; call model.eval() before torch.export.export
  at %dropout = aten.dropout.default
  from tests/import/cases.py:342, in forward: return self.drop(self.bn(x)) (module drop))");
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(ErrorOf(FixturePath("refused_instance_norm")), R"(the model was exported in training mode; call model.eval() before torch.export.export
  at %instance_norm = aten.instance_norm.default
  from tests/import/cases.py:456, in forward: return self.norm(x) (module norm)
  while importing 'tests/fixtures/import/refused_instance_norm.pt2')");
}

// Of files that torch would not write.
TEST(ModelErrors, PixelsThatDoNotDivide) {
  EXPECT_TRUE(Contains(ErrorOfChanged("pixel_shuffles", "model.json", R"({"name":"upscale_factor","arg":{"as_int":2})", R"({"name":"upscale_factor","arg":{"as_int":3})"),
                       "pixel_shuffle of 8 channels by 3; they must be a multiple of 9\n  at %pixel_shuffle = aten.pixel_shuffle.default\n  from tests/import/cases.py:"));
  EXPECT_TRUE(Contains(ErrorOfChanged("pixel_shuffles", "model.json", R"({"name":"downscale_factor","arg":{"as_int":2})", R"({"name":"downscale_factor","arg":{"as_int":3})"),
                       "pixel_unshuffle of an image of 6 x 4 by 3; both must be multiples of 3\n  at %pixel_unshuffle = aten.pixel_unshuffle.default"));
  EXPECT_TRUE(Contains(ErrorOfChanged("pixel_shuffles", "model.json", R"({"name":"upscale_factor","arg":{"as_int":2})", R"({"name":"upscale_factor","arg":{"as_int":3037000500})"),
                       "by 3037000500"));
}

TEST(ModelErrors, SizeOfContents) {
  EXPECT_EQ(ErrorOf(FixturePath("refused_size")),
            StrCat("a data-dependent shape that can't be bounded: size u0 is the contents of a tensor (.item()); a tensor element may be a position ",
                   "to slice or select at, but not a size: take the size from the shape of an input instead", R"(
  at %ones = aten.ones.default
  from tests/import/cases.py:360, in forward: return torch.ones(size).sum()
  while importing 'tests/fixtures/import/refused_size.pt2')"));
}

TEST(ModelErrors, WrittenMemoryThatOverlaps) {
  EXPECT_EQ(ErrorOf(FixturePath("refused_overlap")),
            StrCat("'part', which the model writes, shares memory with 'whole' in another shape; register one buffer and take views of it in forward", R"(
  at %copy_ = aten.copy_.default
  from tests/import/cases.py:372, in forward: self.part.copy_(x)
  while importing 'tests/fixtures/import/refused_overlap.pt2')"));
}

}  // namespace
}  // namespace dovetail
