#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <thread>

#include "base/mapped_file.h"
#include "cli/bandwidth.h"
#include "cli/bench_inputs.h"
#include "cli/bench_profile.h"
#include "cli/cli.h"
#include "cli/load_program.h"
#include "compile/memory_sampler.h"

namespace dovetail::cli {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr int kWarmUp = 3, kLeastIterations = 10, kMostIterations = 1000, kProfiledIterations = 100, kTracedIterations = 10;
constexpr double kSeconds = 2;
constexpr size_t kMostEvents = size_t{1} << 20;

struct BenchFlags {
  std::string model, method, profile;
  std::vector<std::string> calls, sizes;
  unsigned threads = 0;
  int iterations = 0;  // 0: not given
  double seconds = 0;  // 0: not given
  int64_t position = 0;
  WeightsFlags weights;
  QnnFlags qnn;
};

// "s0=1"; false if it is not of that form.
bool ParseSize(const std::string& text, std::string* name, int64_t* value) {
  const size_t at = text.find('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size()) return false;
  *name = text.substr(0, at);
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + at + 1, end, *value);
  return parsed.ec == std::errc() && parsed.ptr == end && *value >= 0;
}

double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Nearest rank; `sorted` is not empty.
double Percentile(const std::vector<double>& sorted, double share) {
  const double rank = std::ceil(share * static_cast<double>(sorted.size()));
  return sorted[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}
double Median(const std::vector<double>& sorted) {
  const size_t n = sorted.size();
  return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}
std::vector<double> Sorted(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values;
}

// One call of an iteration.
struct Call {
  std::string name;
  std::vector<NamedArray> arrays;
  std::vector<TensorView> inputs;  // in `arrays`
  std::vector<double> ms;
};

class Bench {
 public:
  Bench(const BenchFlags& flags, bool json) : flags_(flags), json_(json) {}

  Status Run() {
    if (!flags_.profile.empty()) {
      DT_RETURN_IF_ERROR(CheckTrace());
      DT_ASSIGN_OR_RETURN(trace_, AtomicFile::Create(flags_.profile));
    }
    auto sampler = std::make_unique<MemorySampler>();
    DT_ASSIGN_OR_RETURN(loaded_, LoadProgram(flags_.model, flags_.method, flags_.threads, flags_.weights, flags_.qnn));
    DT_RETURN_IF_ERROR(PrepareCalls());
    DT_ASSIGN_OR_RETURN(const double first, Iterate(*loaded_.instance, loaded_.method));
    for (int i = 1; i < kWarmUp; ++i) DT_RETURN_IF_ERROR(Iterate(*loaded_.instance, loaded_.method).status());
    const uint64_t anonymous = std::max(sampler->peak(), AnonymousBytes());
    sampler.reset();  // it would take time from the threads
    DT_RETURN_IF_ERROR(Measure());
    report_["load_ms"] = loaded_.seconds * 1e3;
    report_["first_call_ms"] = first;
    report_["peak_rss_bytes"] = PeakResidentBytes();
    report_["peak_anonymous_bytes"] = anonymous;
    report_["threads"] = threads();
    if (!sizes_.empty()) report_["sizes"] = sizes_;
    report_["calls"] = Json::array();
    for (const Call& c : calls_) report_["calls"].push_back({{"name", c.name}, {"median_ms", Median(Sorted(c.ms))}});
    if (!json_) PrintReport();
    if (trace_) DT_RETURN_IF_ERROR(Profile());
    if (json_) PrintJson(report_);
    return OkStatus();
  }

 private:
  unsigned threads() const { return flags_.threads ? flags_.threads : std::max(1u, std::thread::hardware_concurrency()); }

  // The trace replaces the file of its name.
  Status CheckTrace() const {
    std::vector<std::string> inputs = flags_.calls;
    inputs.push_back(flags_.model);
    std::error_code missing;
    for (const std::string& input : inputs)
      if (std::filesystem::equivalent(flags_.profile, input, missing))
        return InvalidArgument("'", input, "' would be overwritten by the trace; give another file with --profile");
    return OkStatus();
  }

  Status PrepareCalls() {
    const MethodInfo& info = loaded_.method->info();
    for (const std::string& file : flags_.calls) {
      Call call{file, {}, {}, {}};
      DT_ASSIGN_OR_RETURN(call.arrays, LoadArrays(file));
      calls_.push_back(std::move(call));
    }
    if (calls_.empty()) {
      std::map<std::string, int64_t> given;
      for (const std::string& text : flags_.sizes) {
        std::string name;
        int64_t value = 0;
        ParseSize(text, &name, &value);
        given[name] = value;
      }
      DT_ASSIGN_OR_RETURN(sizes_, ChooseSizes(*loaded_.program, info, given));
      Call call{info.name, {}, {}, {}};
      DT_ASSIGN_OR_RETURN(call.arrays, MakeInputs(*loaded_.program, info, sizes_, flags_.position));
      calls_.push_back(std::move(call));
    }
    for (Call& call : calls_) {
      DT_ASSIGN_OR_RETURN(call.inputs, CallInputs(info, call.arrays, call.name));
    }
    return OkStatus();
  }

  // Which inputs `bench` made and how to have others.
  std::string MadeUp() const {
    if (!flags_.calls.empty()) return {};
    std::string sizes, one;
    for (const auto& [name, value] : sizes_) {
      sizes += StrCat(sizes.empty() ? "" : ", ", name, "=", value);
      one += StrCat("--size ", name, "=1 ");
    }
    if (sizes.empty()) return StrCat(", whose inputs are made up; positions count up from ", flags_.position, " (--position)");
    return StrCat(", whose inputs are made up with ", sizes, "; positions count up from ", flags_.position, ", over all of that size. A decoding step is ", one,
                  "--position N");
  }

  // All calls in order; their milliseconds together. Several start from the initial states. A single one finds the states of the iteration
  // before, as a decoding step does: resetting a cache before each would leave the caches of the processor to it.
  Result<double> Iterate(Instance& instance, Method* method) {
    if (calls_.size() > 1 || counts_steps_) instance.ResetStates();
    double sum = 0;
    for (Call& call : calls_) {
      auto start = Clock::now();
      Status s = method->Execute(call.inputs);
      if (!s.ok() && calls_.size() == 1 && !counts_steps_) {
        // Maybe it counts its steps in a state and has come to the end of its cache.
        counts_steps_ = true;
        instance.ResetStates();
        start = Clock::now();
        s = method->Execute(call.inputs);
      }
      if (!s.ok()) return std::move(s).While(StrCat("running '", flags_.model, "' on '", call.name, "'", MadeUp()));
      call.ms.push_back(Since(start) * 1e3);
      sum += call.ms.back();
    }
    return sum;
  }

  bool Enough(size_t done, double seconds) const {
    const bool limited = flags_.iterations > 0, timed = flags_.seconds > 0;
    if (limited && done >= static_cast<size_t>(flags_.iterations)) return true;
    if (timed && seconds >= flags_.seconds) return true;
    if (limited || timed) return false;
    return done >= kMostIterations || (done >= kLeastIterations && seconds >= kSeconds);
  }

  void DrawProgress(const char* what, size_t done, Clock::time_point start) {
    if (!isatty(STDERR_FILENO) || Since(start) < 1 || Since(drawn_) < 0.2) return;
    drawn_ = Clock::now();
    progress_ = true;
    std::fprintf(stderr, "\r%s: %zu iterations, %.0f s", what, done, Since(start));
  }
  void EndProgress() {
    if (progress_) std::fputs("\r\033[K", stderr);
    progress_ = false;
  }

  Status Measure() {
    for (Call& c : calls_) c.ms.clear();
    std::vector<double> ms;
    const auto start = Clock::now();
    while (ms.empty() || !Enough(ms.size(), Since(start))) {
      DT_ASSIGN_OR_RETURN(const double one, Iterate(*loaded_.instance, loaded_.method));
      ms.push_back(one);
      DrawProgress("measuring", ms.size(), start);
    }
    EndProgress();
    ms = Sorted(std::move(ms));
    report_["min_ms"] = ms.front();
    report_["median_ms"] = Median(ms);
    report_["p95_ms"] = Percentile(ms, 0.95);
    report_["iterations"] = ms.size();
    return OkStatus();
  }

  void PrintReport() const {
    const auto number = [&](const char* key) { return report_[key].get<double>(); };
    std::string inputs;
    if (flags_.calls.empty())
      for (const TensorView& t : calls_[0].inputs)
        if (t.present()) inputs += (inputs.empty() ? "" : ", ") + t.type().ToString();
    std::printf(
        "%s: method %s, %u thread%s, %s\n", flags_.model.c_str(), loaded_.method->info().name.c_str(), threads(), threads() == 1 ? "" : "s",
        flags_.calls.empty() ? inputs.c_str() : StrCat(calls_.size(), calls_.size() == 1 ? " call" : " calls in an iteration").c_str());
    std::printf("  latency  min %.3f ms  median %.3f ms  p95 %.3f ms  (%zu iterations)\n", number("min_ms"), number("median_ms"),
                number("p95_ms"), report_["iterations"].get<size_t>());
    if (calls_.size() > 1)
      for (const Json& c : report_["calls"])
        std::printf("    %s: median %.3f ms\n", c["name"].get<std::string>().c_str(), c["median_ms"].get<double>());
    std::printf("  load     %.1f ms, first %s %.1f ms\n", number("load_ms"), calls_.size() == 1 ? "call" : "iteration",
                number("first_call_ms"));
    std::printf("  memory   peak %.1f MB resident, %.1f MB anonymous\n", number("peak_rss_bytes") * 1e-6,
                number("peak_anonymous_bytes") * 1e-6);
  }

  // On an instance of its own: the figures above are of one that nobody watches.
  Status Profile() {
    const std::string method_name = loaded_.method->info().name;
    loaded_.instance.reset();
    Profiler profiler(size_t{1} << 14);
    InstanceOptions options = OptionsWith(flags_.threads);
    options.profiler = &profiler;
    DT_ASSIGN_OR_RETURN(const std::unique_ptr<Instance> instance, loaded_.program->CreateInstance(options));
    DT_ASSIGN_OR_RETURN(Method* const method, instance->LoadMethod(method_name));
    for (int i = 0; i < kWarmUp; ++i) {
      profiler.Clear();
      DT_RETURN_IF_ERROR(Iterate(*instance, method).status());
    }
    const size_t in_iteration = profiler.events().size() + profiler.dropped();
    ProfiledCalls profiled;
    profiler.Reset(in_iteration);
    profiler.set_describing(true);
    DT_RETURN_IF_ERROR(Iterate(*instance, method).status());
    profiler.set_describing(false);
    profiled.described.assign(profiler.events().begin(), profiler.events().end());
    profiled.details.assign(profiler.details().begin(), profiler.details().end());

    // No more than before, from the initial states: no call fails that did not fail there.
    instance->ResetStates();
    const size_t most = std::min(std::clamp<size_t>(kMostEvents / std::max<size_t>(1, in_iteration), 1, kProfiledIterations),
                                 report_["iterations"].get<size_t>());
    profiler.Reset(in_iteration * most);
    std::vector<double> ms;
    const auto start = Clock::now();
    while (ms.empty() || (ms.size() < most && !Enough(ms.size(), Since(start)))) {
      profiled.begins.push_back(profiler.events().size());
      DT_ASSIGN_OR_RETURN(const double one, Iterate(*instance, method));
      ms.push_back(one);
      DrawProgress("profiling", ms.size(), start);
    }
    EndProgress();
    profiled.events = profiler.events();
    const double limit = MeasureReadBandwidth(threads());
    const ProfileTable table = MakeProfileTable(profiled);
    const std::string trace = TraceJson(profiled, kTracedIterations).dump(-1, ' ', false, Json::error_handler_t::replace);
    DT_RETURN_IF_ERROR(trace_->Write(trace.data(), trace.size()));
    DT_RETURN_IF_ERROR(trace_->Commit());
    report_["profiled_median_ms"] = Median(Sorted(ms));
    report_["profiled_iterations"] = ms.size();
    report_["machine_gb_per_s"] = limit * 1e-9;
    report_["profile"] = ProfileJson(table, limit);
    if (json_) return OkStatus();
    std::printf("\nan iteration, mean of the %zu fastest of %zu (median %.3f ms while profiled); %u thread%s read%s memory at %.1f GB/s\n",
                table.iterations, ms.size(), Median(Sorted(ms)), threads(), threads() == 1 ? "" : "s", threads() == 1 ? "s" : "",
                limit * 1e-9);
    std::fputs(ProfileText(table, limit).c_str(), stdout);
    std::printf("wrote %s: %zu iterations, for chrome://tracing or ui.perfetto.dev\n", flags_.profile.c_str(),
                std::min<size_t>(ms.size(), kTracedIterations));
    return OkStatus();
  }

  const BenchFlags& flags_;
  const bool json_;
  LoadedProgram loaded_;
  std::unique_ptr<AtomicFile> trace_;
  std::vector<Call> calls_;
  std::map<std::string, int64_t> sizes_;
  Json report_;
  bool counts_steps_ = false;  // states are reset before every iteration
  Clock::time_point drawn_;
  bool progress_ = false;
};

}  // namespace

void AddBench(Context& context) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* verb = AddVerb(context, "bench", "measures latency, load time and memory; with --profile, where the time goes",
                           [flags, &context] { return Bench(*flags, context.json).Run(); });
  verb->add_option("MODEL", flags->model, "a .pte file")->required();
  CLI::Option* calls =
      verb->add_option("CALL", flags->calls,
                       ".npz or .safetensors files: the calls of one iteration, in order, several from the initial states; without any, "
                       "inputs are made up: pseudo-random floats and tokens, positions counting up");
  verb->add_option("--method", flags->method, "the method to call");
  verb->add_option("--threads", flags->threads, "threads to use; 0: one per core");
  flags->weights.AddTo(verb);
  flags->qnn.AddTo(verb);
  verb->add_option(
          "--size", flags->sizes,
          StrCat("SYMBOL=N, repeatable: a dynamic size of the made-up inputs (`inspect` lists them); else its upper bound, but at most ",
                 kDefaultSize))
      ->excludes(calls)
      ->expected(1)
      ->take_all()
      ->check([](const std::string& text) {
        std::string name;
        int64_t value = 0;
        return ParseSize(text, &name, &value) ? std::string() : StrCat("'", text, "' is not of the form SYMBOL=N");
      });
  verb->add_option("--position", flags->position,
                   "where integer inputs of rank 0 and 1 start to count: --size s0=1 --position 500 is the decoding step after 500")
      ->excludes(calls)
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--iterations", flags->iterations,
                   StrCat("stop after so many; without it and --seconds: after ", static_cast<int>(kSeconds), " s and ", kLeastIterations,
                          " iterations, or after ", kMostIterations))
      ->check(CLI::Range(1, 1000000));
  verb->add_option("--seconds", flags->seconds, "stop after so many seconds")->check(CLI::Range(0.001, 1e6));
  verb->add_option("--profile", flags->profile,
                   "also write a Chrome trace of every instruction and delegate node, and print where the time goes");
}

}  // namespace dovetail::cli
