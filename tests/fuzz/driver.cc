// A small mutation fuzzer for GCC, which has no libFuzzer. It is linked with each *_fuzz.cc:
//
//   x_fuzz [--seconds N] [--seed S] [--runs N] FILE...
//
// runs LLVMFuzzerTestOneInput on each FILE as it is, then on random mutations of them for N seconds (default 0) or N runs. The
// sequence of inputs depends on the seed (default 1) and the files alone; what a target's FuzzSeeds gives counts as files. An input
// that crashes, trips a sanitizer or takes more than 25 seconds is left in x_fuzz.crash in the current folder; running x_fuzz on
// that file repeats it.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "mutator.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// A target may define this: inputs to start from besides the files.
std::vector<std::vector<uint8_t>> FuzzSeeds() __attribute__((weak));
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

// A file must not decide how much is allocated: one allocation of more than a gigabyte is a finding.
extern "C" const char* __asan_default_options() { return "max_allocation_size_mb=1024:detect_leaks=1:abort_on_error=0"; }

namespace {

constexpr int kSecondsPerInput = 25;

using dovetail::fuzz::Bytes;

// What the handlers below need, since they run after memory may be damaged.
const uint8_t* current_data = nullptr;
size_t current_size = 0;
char crash_path[512] = "fuzz.crash";

void SaveCurrentInput() {
  const int fd = open(crash_path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd < 0) return;
  for (size_t done = 0; done < current_size;) {
    const ssize_t n = write(fd, current_data + done, current_size - done);
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  close(fd);
  dprintf(STDERR_FILENO, "\nfuzz: the input is in %s\n", crash_path);
}

void OnSignal(int number) {
  if (number == SIGALRM) dprintf(STDERR_FILENO, "\nfuzz: an input took more than %d seconds\n", kSecondsPerInput);
  SaveCurrentInput();
  signal(number, SIG_DFL);
  if (number == SIGALRM) _exit(1);
  raise(number);
}

void RunOne(const Bytes& input) {
  // A copy of exactly this size, so that a read past the end is one past an allocation.
  uint8_t* copy = new uint8_t[input.size()];
  if (!input.empty()) std::memcpy(copy, input.data(), input.size());
  current_data = copy;
  current_size = input.size();
  alarm(kSecondsPerInput);
  LLVMFuzzerTestOneInput(copy, input.size());
  alarm(0);
  current_size = 0;
  delete[] copy;
}

bool ParseNumber(const char* text, uint64_t* number) {
  const char* end = text + std::strlen(text);
  return text != end && std::from_chars(text, end, *number).ptr == end;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string program = std::string(argv[0]).substr(std::string(argv[0]).rfind('/') + 1);
  uint64_t seconds = 0, seed = 1, max_runs = ~uint64_t{0};
  std::vector<const char*> files;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    uint64_t* number = flag == "--seconds" ? &seconds : flag == "--seed" ? &seed : flag == "--runs" ? &max_runs : nullptr;
    if (number == nullptr && !flag.starts_with("--")) {
      files.push_back(argv[i]);
    } else if (number == nullptr || i + 1 == argc || !ParseNumber(argv[++i], number)) {
      std::fprintf(stderr, "usage: %s [--seconds N] [--seed S] [--runs N] FILE...\n", program.c_str());
      return 2;
    }
  }
  if (max_runs != ~uint64_t{0} && seconds == 0) seconds = 365 * 24 * 3600;

  std::snprintf(crash_path, sizeof crash_path, "%s.crash", program.c_str());
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(SaveCurrentInput);
  signal(SIGABRT, OnSignal);
  signal(SIGALRM, OnSignal);
  if (__sanitizer_set_death_callback == nullptr) {
    for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) signal(number, OnSignal);
  }

  std::vector<Bytes> corpus;
  if (FuzzSeeds != nullptr) corpus = FuzzSeeds();
  for (const Bytes& seed_input : corpus) RunOne(seed_input);
  for (const char* file : files) {
    std::ifstream in(file, std::ios::binary);
    if (!in) {
      std::fprintf(stderr, "%s: cannot read %s\n", program.c_str(), file);
      return 1;
    }
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    RunOne(corpus.back());
  }
  dovetail::fuzz::Mutator mutator(seed, corpus);
  uint64_t runs = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (runs < max_runs && std::chrono::steady_clock::now() < deadline) {
    RunOne(mutator.Next());
    ++runs;
  }
  std::printf("%s: %zu seeds and %llu mutations, seed %llu, no finding\n", program.c_str(), corpus.size(),
              static_cast<unsigned long long>(runs), static_cast<unsigned long long>(seed));
  return 0;
}
