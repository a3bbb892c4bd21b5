// Runs a compiled program over the steps of a recording, with nothing but dovetail_runtime: what a device does.
//
//   device_model_test MODEL.pte RECORDING.safetensors
//
// The recording holds tensors in.STEP.LEAF and out.STEP.LEAF; states carry over from step to step. Fails when an output differs from
// the recorded one by more than 1e-4 of its range.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>

#include "backends/xnnpack/delegate/delegate.h"
#include "dovetail/dovetail.h"
#include "format/arrays.h"

namespace dovetail {
namespace {

constexpr double kTolerance = 1e-4;

std::vector<float> ToFloats(const NamedArray& a) {
  std::vector<float> values(a.data.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), a.data.data(), a.data.size());
  return values;
}

// The range of an output's values over all steps.
struct Range {
  float low = INFINITY, high = -INFINITY;
  void Add(const NamedArray& a) {
    for (float v : ToFloats(a)) low = std::min(low, v), high = std::max(high, v);
  }
};

Status Compare(const TensorView& got, const NamedArray& want, const Range& range, double* worst) {
  if (got.dtype != want.dtype || !std::equal(got.shape().begin(), got.shape().end(), want.shape.begin(), want.shape.end()))
    return InvalidArgument(want.name, " has another type: ", got.type().ToString());
  if (want.dtype != DType::kF32) return std::memcmp(got.data, want.data.data(), want.data.size()) == 0 ? OkStatus() : InvalidArgument(want.name, " differs");
  const std::vector<float> values = ToFloats(want);
  const double size = range.high - range.low;
  for (size_t i = 0; i < values.size(); ++i) {
    const double difference = std::abs(got.as<float>()[i] - values[i]);
    if (!(difference <= kTolerance * size))
      return InvalidArgument(want.name, " differs by ", std::to_string(difference), " at ", i, ", of a range of ", std::to_string(size));
    if (size > 0) *worst = std::max(*worst, difference / size);
  }
  return OkStatus();
}

Status Run(const std::string& model, const std::string& recording) {
  static const DelegateEntry delegates[] = {kXnnpackDelegate};
  DT_ASSIGN_OR_RETURN(const auto program, Program::Load(model));
  InstanceOptions options;
  options.delegates = delegates;
  options.threads = 2;
  DT_ASSIGN_OR_RETURN(const auto instance, program->CreateInstance(options));
  DT_ASSIGN_OR_RETURN(Method * method, instance->LoadMethod("forward"));
  DT_ASSIGN_OR_RETURN(std::vector<NamedArray> arrays, LoadArrays(recording));
  std::map<std::string, NamedArray*> by_name;
  for (NamedArray& a : arrays) by_name[a.name] = &a;
  std::map<size_t, Range> ranges;  // by leaf
  for (size_t at = 0; by_name.contains(StrCat("in.", at, ".0")); ++at)
    for (size_t leaf = 0; by_name.contains(StrCat("out.", at, ".", leaf)); ++leaf)
      if (const NamedArray& a = *by_name[StrCat("out.", at, ".", leaf)]; a.dtype == DType::kF32) ranges[leaf].Add(a);
  size_t step = 0, outputs = 0;
  double worst = 0;
  for (; by_name.contains(StrCat("in.", step, ".0")); ++step) {
    std::vector<TensorView> inputs;
    for (size_t leaf = 0; by_name.contains(StrCat("in.", step, ".", leaf)); ++leaf) {
      NamedArray& a = *by_name[StrCat("in.", step, ".", leaf)];
      inputs.emplace_back(a.dtype, a.shape, a.data.data());
    }
    DT_RETURN_IF_ERROR(method->Execute(inputs));
    for (size_t leaf = 0; by_name.contains(StrCat("out.", step, ".", leaf)); ++leaf, ++outputs)
      DT_RETURN_IF_ERROR(Compare(method->outputs()[leaf], *by_name[StrCat("out.", step, ".", leaf)], ranges[leaf], &worst));
  }
  if (outputs == 0) return InvalidArgument("'", recording, "' has no steps");
  std::printf("%s: %zu steps, %zu outputs, worst difference %.2g of the range\n", model.c_str(), step, outputs, worst);
  return OkStatus();
}

}  // namespace
}  // namespace dovetail

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: device_model_test MODEL.pte RECORDING.safetensors\n");
    return 2;
  }
  const dovetail::Status status = dovetail::Run(argv[1], argv[2]);
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
