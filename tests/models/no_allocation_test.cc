// Execute allocates nothing when the shapes of its inputs were seen before: counted at malloc and at XNNPACK's allocator, while a model
// alternates between a prompt and single steps.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>

#include "backends/xnnpack/delegate/allocator.h"
#include "backends/xnnpack/delegate/delegate.h"
#include "compile/compile.h"
#include "dovetail/program.h"
#include "models/reference.h"
#include "runtime/profiler.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<size_t> allocations{0};
void Count() {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}
}  // namespace

// The C library's functions, found before its own by the linker; operator new calls malloc.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void* malloc(size_t n) {
  Count();
  return __libc_malloc(n);
}
void* calloc(size_t n, size_t size) {
  Count();
  return __libc_calloc(n, size);
}
void* realloc(void* p, size_t n) {
  Count();
  return __libc_realloc(p, n);
}
void* aligned_alloc(size_t alignment, size_t n) {
  Count();
  return __libc_memalign(alignment, n);
}
int posix_memalign(void** p, size_t alignment, size_t n) {
  Count();
  *p = __libc_memalign(alignment, n);
  return *p ? 0 : 12;
}
}

namespace dovetail {
namespace {

struct Loaded {
  std::unique_ptr<Profiler> profiler;  // or null
  std::unique_ptr<Program> program;
  std::unique_ptr<Instance> instance;
  Method* method = nullptr;
};

Result<Loaded> CompileAndLoad(const std::string& name, const CompileOptions& options, unsigned threads, bool profiled) {
  const std::string pte = StrCat(::testing::TempDir(), "no_allocation_", name, ".pte");
  DT_ASSIGN_OR_RETURN(const CompileReport report, CompileFile(StrCat("tests/fixtures/", name, ".pt2"), pte, options));
  static const DelegateEntry delegates[] = {kXnnpackDelegate};
  Loaded loaded;
  DT_ASSIGN_OR_RETURN(loaded.program, Program::Load(pte));
  std::filesystem::remove(pte);
  InstanceOptions instance_options;
  instance_options.delegates = delegates;
  instance_options.threads = threads;
  if (profiled) loaded.profiler = std::make_unique<Profiler>(1 << 14);
  instance_options.profiler = loaded.profiler.get();
  DT_ASSIGN_OR_RETURN(loaded.instance, loaded.program->CreateInstance(instance_options));
  DT_ASSIGN_OR_RETURN(loaded.method, loaded.instance->LoadMethod("forward"));
  return loaded;
}

struct Case {
  const char* fixture;
  bool stock;
  std::vector<std::string> backends;
  unsigned threads;
  bool profiled = false;
};

class NoAllocation : public ::testing::TestWithParam<Case> {};

TEST_P(NoAllocation, WhenShapesWereSeenBefore) {
  const Case& c = GetParam();
  CompileOptions options;
  options.stock_runtime = c.stock;
  options.backends = c.backends;
  auto loaded = CompileAndLoad(c.fixture, options, c.threads, c.profiled);
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  const auto reference = testing::ReadSafetensors(StrCat("tests/fixtures/", c.fixture, ".ref.safetensors"));
  ASSERT_TRUE(reference.ok()) << reference.status().ToString();
  std::vector<std::vector<TensorView>> calls;
  for (size_t step = 0; step < 3; ++step) {
    std::vector<TensorView> inputs;
    for (size_t leaf = 0; reference->contains(StrCat("in.", step, ".", leaf)); ++leaf) inputs.push_back(reference->at(StrCat("in.", step, ".", leaf)).view());
    if (!inputs.empty()) calls.push_back(std::move(inputs));
  }
  ASSERT_FALSE(calls.empty());
  for (int round = 0; round < 2; ++round)
    for (const auto& call : calls) ASSERT_TRUE(loaded->method->Execute(call).ok());
  const uint64_t requests = GetXnnpackMemory().requests;
  allocations = 0;
  counting = true;
  bool ok = true;
  for (int round = 0; round < 3; ++round)
    for (const auto& call : calls) ok = loaded->method->Execute(call).ok() && ok;
  counting = false;
  EXPECT_TRUE(ok);
  EXPECT_EQ(allocations.load(), 0u);
  EXPECT_EQ(GetXnnpackMemory().requests - requests, 0u);
  EXPECT_EQ(c.profiled, loaded->profiler && !loaded->profiler->events().empty());
}

const std::vector<std::string> kBoth = {"xnnpack", "cpu"}, kCpu = {"cpu"};
INSTANTIATE_TEST_SUITE_P(All, NoAllocation,
                         ::testing::Values(Case{"llama_tiny_index_put", false, kBoth, 1}, Case{"llama_tiny_index_put", false, kBoth, 2},
                                           Case{"llama_tiny_index_put", true, kBoth, 2}, Case{"llama_tiny_slice_copy", false, kCpu, 2},
                                           Case{"hf_llama_staticcache", false, kBoth, 2}, Case{"silero_vad_stateful", false, kBoth, 2},
                                           Case{"digits_cnn_trained", false, kBoth, 2}, Case{"llama_tiny_index_put", false, kBoth, 2, true}));

// The hook itself: an allocation is seen.
TEST(NoAllocationHook, CountsAllocations) {
  allocations = 0;
  counting = true;
  void* volatile p = std::malloc(16);
  counting = false;
  std::free(p);
  EXPECT_EQ(allocations.load(), 1u);
}

}  // namespace
}  // namespace dovetail
