#include "backends/xnnpack/delegate/packed_weights.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "backends/xnnpack/delegate/allocator.h"
#include "backends/xnnpack/delegate/weights_cache.h"

namespace dovetail {
namespace {

namespace fs = std::filesystem;

constexpr Hash128 kKey = {1, 2}, kOther = {3, 4};

class PackedWeightsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / ("packed_weights_" + std::to_string(::getpid()) + "_" +
                                                ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    options_.cache_folder = (folder_ / "cache").string();
    WriteProgram("one");
  }
  void TearDown() override { fs::remove_all(folder_); }

  void WriteProgram(const std::string& text) {
    std::ofstream(folder_ / "model.pte") << text;
    // A file this young has no cache: it could change without its time changing.
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
  }

  struct Loaded {
    std::unique_ptr<MappedFile> file;
    ProgramSource source;
    std::unique_ptr<PackedWeights> weights;
    PackedWeights* operator->() { return weights.get(); }
  };
  Loaded Load(WeightsMode mode = WeightsMode::kShared) {
    Loaded l;
    l.file = std::move(MappedFile::Open((folder_ / "model.pte").string())).value();
    options_.mode = mode;
    l.source = {l.file->bytes(), l.file.get(), options_, {}};
    source_ = std::make_unique<ProgramSource>(l.source);
    sources_.push_back(std::move(source_));
    l.weights = std::make_unique<PackedWeights>(sources_.back().get());
    return l;
  }

  // As the delegate does it. Returns where the weights are.
  static const std::byte* Pack(Loaded& l, const Hash128& key, size_t size, int seed) {
    if (const std::byte* found = l->Find(key)) return found;
    std::byte* p = l->Reserve(size);
    for (size_t i = 0; i < size; ++i) p[i] = static_cast<std::byte>(i * 7 + i / 251 + static_cast<size_t>(seed));
    l->Keep(size, &key);
    return p;
  }
  static bool Holds(const std::byte* p, size_t size, int seed) {
    for (size_t i = 0; i < size; ++i)
      if (p[i] != static_cast<std::byte>(i * 7 + i / 251 + static_cast<size_t>(seed))) return false;
    return true;
  }

  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    if (fs::exists(options_.cache_folder))
      for (const auto& e : fs::directory_iterator(options_.cache_folder)) files.push_back(e.path());
    return files;
  }
  void Edit(const fs::path& file, uint64_t at, char c) {
    std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(static_cast<std::streamoff>(at));
    f.put(c);
  }
  // Packs both weights, in a file then.
  void Fill() {
    Loaded l = Load();
    Pack(l, kKey, kSize, 1);
    Pack(l, kOther, 100, 2);
    l->Settle();
    ASSERT_EQ(Files().size(), 1u);
  }
  // How many of the two a new load has to pack.
  uint64_t Packed(WeightsMode mode = WeightsMode::kShared) {
    Loaded l = Load(mode);
    EXPECT_TRUE(Holds(Pack(l, kKey, kSize, 1), kSize, 1));
    EXPECT_TRUE(Holds(Pack(l, kOther, 100, 2), 100, 2));
    l->Settle();
    return l->statistics().packed;
  }

  static constexpr size_t kSize = (size_t{5} << 20) + 77;
  fs::path folder_;
  WeightsOptions options_;
  std::unique_ptr<ProgramSource> source_;
  std::vector<std::unique_ptr<ProgramSource>> sources_;
};

TEST_F(PackedWeightsTest, ASecondLoadPacksNothing) {
  Loaded first = Load();
  const std::byte* p = Pack(first, kKey, kSize, 1);
  Pack(first, kOther, 100, 2);
  EXPECT_EQ(first->statistics().mapped_bytes, 0u);
  first->Settle();
  EXPECT_TRUE(Holds(p, kSize, 1)) << "the file takes the place of the memory";
  EXPECT_GE(first->statistics().mapped_bytes, kSize);
  EXPECT_EQ(first->Find(kKey), p);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
  EXPECT_EQ(Packed(), 0u);
}

TEST_F(PackedWeightsTest, WithoutAFolderNoFileIsWritten) {
  options_.cache_folder.clear();
  EXPECT_EQ(Packed(), 2u);
  EXPECT_EQ(Packed(), 2u);
}

TEST_F(PackedWeightsTest, AnotherMethodAddsItsWeights) {
  {
    Loaded l = Load();
    Pack(l, kKey, kSize, 1);
    l->Settle();
  }
  Loaded l = Load();
  const std::byte *p = Pack(l, kKey, kSize, 1), *q = Pack(l, kOther, 100, 2);
  EXPECT_EQ(l->statistics().packed, 1u);
  l->Settle();
  EXPECT_TRUE(Holds(p, kSize, 1));
  EXPECT_TRUE(Holds(q, 100, 2));
  EXPECT_EQ(Packed(), 0u);
  EXPECT_EQ(Files().size(), 1u);
}

TEST_F(PackedWeightsTest, AnotherProgramAtTheSamePathIsPackedAnew) {
  Fill();
  WriteProgram("two");  // as long as "one"
  EXPECT_EQ(Packed(), 2u);
  EXPECT_EQ(Packed(), 0u);
  EXPECT_EQ(Files().size(), 1u) << "the old file was replaced";
}

TEST_F(PackedWeightsTest, AProgramThatWasJustWrittenHasNoFile) {
  std::ofstream(folder_ / "model.pte") << "new";
  EXPECT_EQ(Packed(), 2u);
  EXPECT_TRUE(Files().empty());
}

TEST_F(PackedWeightsTest, ADamagedFileIsNotUsed) {
  for (const uint64_t at : {uint64_t{0}, uint64_t{16}, uint64_t{100}, uint64_t{WeightsFile::kHeaderBytes + 1000}}) {
    Fill();
    Edit(Files()[0], at, '\x55');
    EXPECT_EQ(Packed(), 2u) << "byte " << at;
    EXPECT_EQ(Packed(), 0u) << "byte " << at;
    fs::remove(Files()[0]);
  }
  Fill();
  fs::resize_file(Files()[0], fs::file_size(Files()[0]) - 48);
  EXPECT_EQ(Packed(), 2u);
}

// A write that changed nothing (or a machine started anew) costs a reading of the file, and not its use.
TEST_F(PackedWeightsTest, AnUnchangedFileIsTakenAfterItsHashWasChecked) {
  Fill();
  const fs::path file = Files()[0];
  fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(5));
  EXPECT_EQ(Packed(), 0u);
  EXPECT_EQ(Packed(), 0u);
}

TEST_F(PackedWeightsTest, AFileThatOthersMayWriteIsNotUsed) {
  Fill();
  fs::permissions(Files()[0], fs::perms::others_write, fs::perm_options::add);
  EXPECT_EQ(Packed(), 2u);
}

TEST_F(PackedWeightsTest, TheFileOfAnotherProgramIsNotUsed) {
  Fill();
  const fs::path first = Files()[0];
  const fs::path kept = folder_ / "kept";
  fs::rename(first, kept);
  WriteProgram("two");
  fs::rename(kept, first);
  EXPECT_EQ(Packed(), 2u);
}

#ifdef __x86_64__
constexpr int kGetPermitted = 0x1022;  // ARCH_GET_XCOMP_PERM

// From here on the system tells this process nothing of AMX.
bool HideAmx() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),     BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kGetPermitted, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),               BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter = {std::size(program), program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST_F(PackedWeightsTest, AProcessThatMayNotUseAmxHasAnotherFile) {
  ASSERT_TRUE(InitializeXnnpack().ok());
  uint64_t states = 0;
  if (::syscall(SYS_arch_prctl, kGetPermitted, &states) != 0 || !(states >> 18 & 1)) GTEST_SKIP() << "no AMX here, or XNNPACK does not use it";
  EXPECT_EQ(Packed(), 2u);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(!HideAmx() ? 3 : static_cast<int>(Packed()));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 3) GTEST_SKIP() << "no filter of system calls here";
  EXPECT_EQ(WEXITSTATUS(status), 2) << "packed anew";
  EXPECT_EQ(Files().size(), 2u);
  EXPECT_EQ(Packed(), 0u);
}
#endif

// Of dynamically quantized linears XNNPACK's key has no bias.
TEST_F(PackedWeightsTest, WeightsOfLinearsWithABiasAreFoundAgain) {
  WriteProgram(std::string(64, 'w'));
  for (const bool again : {false, true}) {
    const Loaded l = Load();
    WeightsCache cache(sources_.back().get());
    const std::byte *const kernel = l.source.image.data(), *const bias = kernel + 32;
    WeightUse use;
    use.kernel = kernel;
    use.bias = bias;
    EXPECT_TRUE(cache.Admit(use));
    const xnn_weights_cache_look_up_key key = {.seed = 1, .kernel = kernel, .bias = nullptr};
    xnn_weights_cache_provider* const p = cache.provider();
    EXPECT_EQ(p->look_up(p->context, &key) != SIZE_MAX, again);
    if (!again) p->look_up_or_insert(p->context, &key, p->reserve_space(p->context, kSize), kSize);
    cache.MethodLoaded();
    // Nor could it tell the same weights with another bias from these.
    use.bias = bias + 8;
    EXPECT_FALSE(cache.Admit(use));
  }
}

TEST_F(PackedWeightsTest, FastModeEndsInPrivateMemory) {
  Fill();
  Loaded l = Load(WeightsMode::kFast);
  const std::byte *p = Pack(l, kKey, kSize, 1), *q = Pack(l, kOther, 100, 2);
  EXPECT_EQ(l->statistics().packed, 0u);
  EXPECT_GE(l->statistics().mapped_bytes, kSize);
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        l->BeforeCall();
        EXPECT_TRUE(Holds(q, 100, 2));
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(l->statistics().mapped_bytes, 0u);
  EXPECT_TRUE(Holds(p, kSize, 1));
  EXPECT_TRUE(Holds(q, 100, 2));
}

TEST_F(PackedWeightsTest, WhatWasNotKeptIsReservedAgain) {
  Loaded l = Load();
  std::byte* p = l->Reserve(1000);
  EXPECT_EQ(l->Reserve(2000), p);
  l->Keep(2000, &kKey);
  EXPECT_GE(l->Reserve(10), p + 2000);
}

TEST_F(PackedWeightsTest, TheFolderStaysWithinItsLimit) {
  options_.cache_limit = 3 * kSize;
  for (const char* name : {"a", "b", "c", "d"}) {
    const fs::path model = folder_ / "model.pte", other = folder_ / name;
    fs::copy_file(model, other);
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
    Loaded l;
    l.file = std::move(MappedFile::Open(other.string())).value();
    sources_.push_back(std::make_unique<ProgramSource>(ProgramSource{l.file->bytes(), l.file.get(), options_, {}}));
    l.weights = std::make_unique<PackedWeights>(sources_.back().get());
    Pack(l, kKey, kSize, 1);
    l->Settle();
    EXPECT_TRUE(Holds(l->Find(kKey), kSize, 1));
  }
  EXPECT_EQ(Files().size(), 2u);
  options_.cache_limit = 1000;
  EXPECT_EQ(Packed(), 2u) << "weights larger than the limit are not kept";
}

TEST_F(PackedWeightsTest, AWriteThatFailsLeavesNothing) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {1 << 20, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_EQ(Packed(), 2u);
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(Files().empty());
  EXPECT_EQ(Packed(), 2u);
  EXPECT_EQ(Packed(), 0u);
}

TEST_F(PackedWeightsTest, WhatAKilledProcessLeftIsRemoved) {
  Fill();
  const fs::path old = fs::path(options_.cache_folder) / "x.weights.1.2.tmp", young = fs::path(options_.cache_folder) / "y.weights.1.2.tmp";
  std::ofstream(old) << "half";
  std::ofstream(young) << "half";
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(1));
  WriteProgram("two");
  EXPECT_EQ(Packed(), 2u);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(young));
}

}  // namespace
}  // namespace dovetail
