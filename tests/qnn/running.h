// Programs with a QNN delegate, running, for the tests of the delegate.
#pragma once

#include <gtest/gtest.h>

#include "backends/qnn/delegate/delegate.h"
#include "dovetail/program.h"
#include "format/qnn_blob.h"
#include "qnn/sample_program.h"

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

namespace dovetail::testing {

using Bytes = std::vector<std::byte>;
using Row = std::vector<uint16_t>;

inline const DelegateEntry kDelegates[] = {kQnnDelegate};

inline Bytes BlobOf(const Bytes& binary) { return WriteQnnBlob(binary); }
inline Bytes SpecOf(const std::string& soc, bool shared_weights = false) {
  const qnn::Soc& s = **qnn::FindSoc(soc);
  return QnnCompileSpec({s.model, s.arch, s.vtcm_mb, false, shared_weights});
}

struct Running {
  std::unique_ptr<Program> program;
  std::unique_ptr<Instance> instance;

  Running(const pte::ProgramDesc& desc, const QnnOptions& options) {
    auto bytes = pte::SerializePte(desc);
    EXPECT_TRUE(bytes.ok()) << bytes.status().ToString();
    auto made = Program::FromBytes(*bytes, "sample.pte", options);
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    program = std::move(*made);
    auto running = program->CreateInstance({.threads = 1, .delegates = kDelegates});
    EXPECT_TRUE(running.ok()) << running.status().ToString();
    instance = std::move(*running);
  }
  std::string LoadError(const char* method = "forward") {
    auto loaded = instance->LoadMethod(method);
    EXPECT_FALSE(loaded.ok());
    return loaded.status().ToString();
  }
  Method* Load(const char* method) {
    auto loaded = instance->LoadMethod(method);
    EXPECT_TRUE(loaded.ok()) << loaded.status().ToString();
    return loaded.ok() ? *loaded : nullptr;
  }
  Status Run(Method* method, Row x) {
    const TensorView in(DType::kU16, std::vector<int64_t>{4}, x.data());
    return method->Execute({&in, 1});
  }
  // The total after adding x.
  Row Call(Method* method, Row x) {
    const Status s = Run(method, std::move(x));
    EXPECT_TRUE(s.ok()) << s.ToString();
    const auto* out = method->outputs()[0].as<uint16_t>();
    return Row(out, out + 4);
  }
};

inline const qnn::Library* Opened(const std::string& path) {
  auto library = qnn::Library::Open(path);
  EXPECT_TRUE(library.ok()) << library.status().ToString();
  return library.ok() ? *library : nullptr;
}

}  // namespace dovetail::testing
