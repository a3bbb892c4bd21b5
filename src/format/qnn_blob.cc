#include "format/qnn_blob.h"

#include <cstring>

#include "format/qnn_spec_generated.h"

namespace dovetail {
namespace {

constexpr uint32_t kMagic = 0x5678ABCD;
constexpr int32_t kHtpBackend = 2;
constexpr int64_t kMostInSpec = 1 << 20;  // of a number in it

template <class T>
T Load(std::span<const std::byte> in, size_t at) {
  T value;
  std::memcpy(&value, in.data() + at, sizeof value);
  return value;
}

// FNV-1a.
uint64_t Hash(std::span<const std::byte> bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (std::byte b : bytes) hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3;
  return hash;
}

}  // namespace

std::vector<std::byte> WriteQnnBlob(std::span<const std::byte> binary) {
  std::vector<std::byte> blob(kQnnHeaderSize);
  blob.reserve(kQnnHeaderSize + binary.size());
  const uint64_t signature = Hash(binary), size = binary.size();
  std::memcpy(blob.data(), &kMagic, sizeof kMagic);
  std::memcpy(blob.data() + 4, &signature, sizeof signature);
  std::memcpy(blob.data() + 12, &size, sizeof size);
  blob.insert(blob.end(), binary.begin(), binary.end());
  return blob;
}

Result<QnnBlob> ReadQnnBlob(std::span<const std::byte> bytes, const std::string& name) {
  if (bytes.size() < kQnnHeaderSize) return Corrupt(name, ": ", bytes.size(), " bytes are no QNN blob, whose header alone takes ", kQnnHeaderSize);
  if (const uint32_t magic = Load<uint32_t>(bytes, 0); magic != kMagic)
    return Corrupt(name, ": no QNN context binary: its blob starts with ", magic, ", not with ", kMagic);
  QnnBlob blob;
  blob.signature = Load<int64_t>(bytes, 4);
  const uint64_t size = Load<uint64_t>(bytes, 12), rest = bytes.size() - kQnnHeaderSize;
  if (size == 0) return Corrupt(name, ": the QNN context binary is empty");
  if (size > rest) return Corrupt(name, ": the QNN context binary has ", size, " bytes, but the blob has only ", rest, " for it");
  blob.binary = bytes.subspan(kQnnHeaderSize, size);
  return blob;
}

std::vector<std::byte> QnnCompileSpec(const QnnSpec& spec) {
  flatbuffers::FlatBufferBuilder b;
  const auto empty = b.CreateString("");
  const auto packages = qnn_spec::CreateOpPackages(b, b.CreateVector(std::vector<flatbuffers::Offset<qnn_spec::OpPackage>>()));
  const auto soc = qnn_spec::CreateSocInfo(b, static_cast<int32_t>(spec.soc_model), qnn_spec::CreateHtpInfo(b, static_cast<int32_t>(spec.arch), spec.vtcm_mb));
  qnn_spec::HtpOptionsBuilder htp(b);
  htp.add_precision(spec.fp16 ? 1 : 0);
  htp.add_use_conv_hmx(true);
  htp.add_use_fold_relu(true);
  htp.add_use_weight_sharing(spec.shared_weights);
  const auto backend = qnn_spec::CreateBackendOptions(b, kHtpBackend, htp.Finish());
  qnn_spec::OptionsBuilder options(b);
  options.add_soc_info(soc);
  options.add_backend_options(backend);
  options.add_library_path(empty);
  options.add_saver_output_dir(empty);
  options.add_op_package_options(packages);
  b.Finish(options.Finish());
  const auto* begin = reinterpret_cast<const std::byte*>(b.GetBufferPointer());
  return {begin, begin + b.GetSize()};
}

Result<QnnSpec> ReadQnnCompileSpec(std::span<const std::byte> bytes, const std::string& name) {
  // Compile specs lie in a .pte without alignment.
  std::vector<uint64_t> aligned((bytes.size() + 7) / 8);
  if (!bytes.empty()) std::memcpy(aligned.data(), bytes.data(), bytes.size());
  const auto* data = reinterpret_cast<const uint8_t*>(aligned.data());
  flatbuffers::Verifier verifier(data, bytes.size());
  if (bytes.size() < 8 || !qnn_spec::VerifyOptionsBuffer(verifier)) return Corrupt(name, ": the compile spec ", kQnnCompileSpecKey, " is damaged");
  const qnn_spec::Options& options = *qnn_spec::GetOptions(data);
  QnnSpec spec;
  if (const qnn_spec::BackendOptions* backend = options.backend_options()) {
    if (backend->backend_type() != kHtpBackend)
      return Unsupported(name, ": its compile spec is for QNN's backend number ", backend->backend_type(), "; Dovetail runs HTP's (", kHtpBackend, ") only");
    if (const qnn_spec::HtpOptions* htp = backend->htp_options()) {
      spec.fp16 = htp->precision() == 1;
      spec.shared_weights = htp->use_weight_sharing();
    }
  }
  if (options.online_prepare())
    return Unsupported(name, ": it has a graph that is to be prepared on the device (online_prepare); export it again without that option");
  auto number = [&](int64_t value, uint32_t* to) -> Status {
    if (value < 0 || value > kMostInSpec) return Corrupt(name, ": the compile spec ", kQnnCompileSpecKey, " has the number ", value, " for its SoC");
    *to = static_cast<uint32_t>(value);
    return OkStatus();
  };
  if (const qnn_spec::SocInfo* soc = options.soc_info()) {
    DT_RETURN_IF_ERROR(number(soc->soc_model(), &spec.soc_model));
    if (const qnn_spec::HtpInfo* htp = soc->htp_info()) {
      DT_RETURN_IF_ERROR(number(htp->htp_arch(), &spec.arch));
      DT_RETURN_IF_ERROR(number(htp->vtcm_size_in_mb(), &spec.vtcm_mb));
    }
  }
  return spec;
}

}  // namespace dovetail
