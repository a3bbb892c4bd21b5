// A small mutation fuzzer for GCC, which has no libFuzzer. It is linked with each *_fuzz.cc:
//
//   x_fuzz [--seconds N] [--seed S] [--runs N] FILE...
//
// runs LLVMFuzzerTestOneInput on each FILE as it is, then on random mutations of them for N seconds (default 0) or N runs. The
// sequence of inputs depends on the seed (default 1) and the files alone. An input that crashes, trips a sanitizer or takes more
// than 25 seconds is left in x_fuzz.crash in the current folder; running x_fuzz on that file repeats it.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

// A file must not decide how much is allocated: one allocation of more than a gigabyte is a finding.
extern "C" const char* __asan_default_options() { return "max_allocation_size_mb=1024:detect_leaks=1:abort_on_error=0"; }

namespace {

constexpr int kSecondsPerInput = 25;
constexpr size_t kMaxInput = size_t{1} << 20;

using Bytes = std::vector<uint8_t>;

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

class Mutator {
 public:
  Mutator(uint64_t seed, const std::vector<Bytes>& corpus) : random_(seed), corpus_(corpus) {}

  Bytes Next() {
    Bytes input = corpus_.empty() ? Bytes{} : corpus_[Below(corpus_.size())];
    // Mostly few changes: an input with many is refused at its first field.
    const size_t changes = size_t{1} << Below(5);
    for (size_t i = 0; i < changes; ++i) Change(input);
    if (input.size() > kMaxInput && (corpus_.empty() || Below(2) == 0)) input.resize(kMaxInput);
    return input;
  }

 private:
  size_t Below(size_t limit) { return limit == 0 ? 0 : static_cast<size_t>(random_() % limit); }

  void Change(Bytes& input) {
    if (input.empty()) {
      input.resize(1 + Below(64));
      for (uint8_t& b : input) b = static_cast<uint8_t>(random_());
      return;
    }
    const size_t at = Below(input.size());
    const size_t run = std::min(1 + Below(size_t{1} << Below(9)), input.size() - at);
    switch (Below(10)) {
      case 0: input[at] ^= static_cast<uint8_t>(1u << Below(8)); break;
      case 1: input[at] = static_cast<uint8_t>(random_()); break;
      case 2: PutInteger(input, at); break;
      case 3: input.erase(input.begin() + at, input.begin() + at + run); break;
      case 4: {
        const Bytes copy(input.begin() + at, input.begin() + at + run);
        input.insert(input.begin() + Below(input.size() + 1), copy.begin(), copy.end());
        break;
      }
      case 5: input.resize(at); break;
      case 6: Splice(input, at); break;
      case 7: PutDigits(input, at); break;
      case 8: std::fill_n(input.begin() + at, run, Below(2) == 0 ? uint8_t{0} : uint8_t{0xff}); break;
      default: std::copy_n(Bytes(input.begin() + at, input.begin() + at + run).begin(), run, input.begin() + Below(input.size() - run + 1));
    }
  }

  // A little-endian integer at the edge of some range, where a size or an offset may be.
  void PutInteger(Bytes& input, size_t at) {
    static constexpr uint64_t kValues[] = {0, 1, 4, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff,
                                           0xfffffffc, 0x7fffffffffffffff, 0x8000000000000000, 0xffffffffffffffff};
    uint64_t value = kValues[Below(std::size(kValues))];
    if (Below(4) == 0) value = Below(input.size() + 16);
    const size_t width = std::min(size_t{1} << Below(4), input.size() - at);
    std::memcpy(input.data() + at, &value, width);
  }

  // Another number in place of the next decimal one: for text.
  void PutDigits(Bytes& input, size_t at) {
    static constexpr std::string_view kNumbers[] = {"0", "-1", "1", "9223372036854775807", "-9223372036854775808", "4294967296", "1e400", ""};
    const auto is_digit = [](uint8_t c) { return c >= '0' && c <= '9'; };
    const auto begin = std::find_if(input.begin() + at, input.end(), is_digit);
    const auto end = std::find_if_not(begin, input.end(), is_digit);
    const std::string_view number = kNumbers[Below(std::size(kNumbers))];
    const size_t offset = begin - input.begin();
    input.erase(begin, end);
    input.insert(input.begin() + offset, number.begin(), number.end());
  }

  void Splice(Bytes& input, size_t at) {
    if (corpus_.empty()) return;
    const Bytes& other = corpus_[Below(corpus_.size())];
    if (other.empty()) return;
    const size_t from = Below(other.size());
    const size_t count = std::min(1 + Below(size_t{1} << Below(12)), other.size() - from);
    if (Below(2) == 0) {
      input.insert(input.begin() + at, other.begin() + from, other.begin() + from + count);
    } else {
      std::copy_n(other.begin() + from, std::min(count, input.size() - at), input.begin() + at);
    }
  }

  std::mt19937_64 random_;
  const std::vector<Bytes>& corpus_;
};

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
  for (const char* file : files) {
    std::ifstream in(file, std::ios::binary);
    if (!in) {
      std::fprintf(stderr, "%s: cannot read %s\n", program.c_str(), file);
      return 1;
    }
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    RunOne(corpus.back());
  }
  Mutator mutator(seed, corpus);
  uint64_t runs = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (runs < max_runs && std::chrono::steady_clock::now() < deadline) {
    RunOne(mutator.Next());
    ++runs;
  }
  std::printf("%s: %zu files and %llu mutations, seed %llu, no finding\n", program.c_str(), corpus.size(),
              static_cast<unsigned long long>(runs), static_cast<unsigned long long>(seed));
  return 0;
}
