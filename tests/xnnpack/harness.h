// A graph in the text form, lowered to XNNPACK, run by the delegate and compared with the interpreter.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "backends/xnnpack/backend.h"
#include "backends/xnnpack/delegate/allocator.h"
#include "backends/xnnpack/delegate/delegate.h"
#include "ir/interpreter.h"
#include "ir/text.h"

namespace dovetail {

Module ParseText(const std::string& text);

// Random contents, normal in f32 and uniform in integers; above zero where asked for.
void Fill(const TensorView& to, uint32_t seed, bool positive);
// Constants declared external get random contents; those called @s... are scales: small and above zero.
void FillConstants(Module& module, bool positive);

struct Case {
  std::string name;
  std::string text;  // constants and a graph @f; symbols s0 is 1..9, s1 is 1..7
  bool positive = false;
  double tolerance = 1e-5;  // of the result's range, in f32
  int steps = 1;            // of results in i8
};

std::string Whole(const std::string& text);

// Empty if `got` is as near to `want` as the case asks for, else where it is not.
std::string DifferenceFrom(const TensorView& want, const TensorView& got, const Case& c);

class Harness {
 public:
  explicit Harness(const Case& c);

  const Module& module() const { return module_; }
  const Graph& graph() const { return *region_.body; }
  Status Check() const;
  Status Load();
  // One more delegate of the same Program and Method.
  Result<std::unique_ptr<Delegate>> Create();
  // Empty, or what differs from the interpreter's results.
  std::string Run(int64_t s0, int64_t s1, uint32_t seed = 77);
  void Unload() { delegate_.reset(); }

  size_t released() const { return released_; }
  const LoweredRegion& lowered() const { return lowered_; }
  // XNNPACK's nodes in order, as the format names them. After Load.
  std::vector<std::string> NodeKinds() const;
  Delegate& delegate() { return *delegate_; }

  std::unique_ptr<DelegateShared> program_shared, method_shared;

 private:
  TensorView Bound(ValueId v) const;

  const Case case_;
  Module module_;
  Region region_;
  LoweredRegion lowered_;
  std::vector<uint64_t> payload_;
  std::map<std::string, std::vector<uint64_t>> named_;
  std::unique_ptr<Delegate> delegate_;
  size_t released_ = 0;
};

// Of all sizes, twice: the second time nothing may be allocated.
void ExpectMatches(const Case& c);
void ExpectRefused(const std::string& text, const std::string& reason);

}  // namespace dovetail
