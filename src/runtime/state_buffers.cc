#include "runtime/state_buffers.h"

#include <cstring>

namespace dovetail {
namespace {

constexpr uint32_t kMagic = 0x54535444;  // "DTST"
constexpr uint32_t kVersion = 1;

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}
  bool Take(size_t n, std::span<const std::byte>* out) {
    if (n > rest_.size()) return false;
    *out = rest_.first(n);
    rest_ = rest_.subspan(n);
    return true;
  }
  template <class T>
  bool Number(T* out) {
    std::span<const std::byte> b;
    if (!Take(sizeof(T), &b)) return false;
    std::memcpy(out, b.data(), sizeof(T));
    return true;
  }
  bool done() const { return rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
};

void Put(std::vector<std::byte>* to, const void* data, size_t size) {
  const size_t at = to->size();
  to->resize(at + size);
  if (size > 0) std::memcpy(to->data() + at, data, size);
}
template <class T>
void PutNumber(std::vector<std::byte>* to, T v) {
  Put(to, &v, sizeof(v));
}

}  // namespace

Status StateBuffers::Init(const ProgramData& program, size_t* memory_left) {
  program_ = &program;
  buffers_.resize(program.states.size());
  for (size_t s = 0; s < buffers_.size(); ++s) {
    const StateInfo& info = program.states[s];
    if (info.bytes > *memory_left)
      return OutOfRange("'", program.name, "': the states need more memory than the limit allows: '", info.name, "' takes ", info.bytes, " bytes and ",
                        *memory_left, " are left");
    *memory_left -= info.bytes;
    if (!buffers_[s].Allocate(info.bytes)) return OutOfRange("'", program.name, "': no memory for the state '", info.name, "' of ", info.bytes, " bytes");
    const auto& initial = program.initial[s];
    if (!initial.empty()) std::memcpy(buffers_[s].data(), initial.data(), initial.size());
  }
  return OkStatus();
}

Result<size_t> StateBuffers::Find(std::string_view name) const {
  std::string names;
  for (size_t s = 0; s < buffers_.size(); ++s) {
    if (program_->states[s].name == name) return s;
    names += StrCat(names.empty() ? "" : ", ", program_->states[s].name);
  }
  return NotFound("'", program_->name, "' has no state '", name, "'; ", names.empty() ? "it has none" : "its states are " + names);
}

TensorView StateBuffers::View(size_t state) const {
  const StateInfo& info = program_->states[state];
  return TensorView(info.dtype, info.sizes, buffers_[state].data());
}

void StateBuffers::ResetBytes(size_t state, size_t from, size_t to) {
  if (from >= to) return;
  const auto& initial = program_->initial[state];
  if (initial.empty()) std::memset(buffers_[state].data() + from, 0, to - from);
  else std::memcpy(buffers_[state].data() + from, initial.data() + from, to - from);
}
void StateBuffers::Reset(size_t state) { ResetBytes(state, 0, program_->states[state].bytes); }

std::vector<std::byte> StateBuffers::Save() const {
  std::vector<std::byte> out;
  PutNumber(&out, kMagic);
  PutNumber(&out, kVersion);
  PutNumber(&out, static_cast<uint32_t>(buffers_.size()));
  for (size_t s = 0; s < buffers_.size(); ++s) {
    const StateInfo& info = program_->states[s];
    PutNumber(&out, static_cast<uint32_t>(info.name.size()));
    Put(&out, info.name.data(), info.name.size());
    PutNumber(&out, static_cast<uint8_t>(info.dtype));
    PutNumber(&out, static_cast<uint8_t>(info.sizes.size()));
    for (int64_t size : info.sizes) PutNumber(&out, size);
    Put(&out, buffers_[s].data(), info.bytes);
  }
  return out;
}

Status StateBuffers::Load(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  uint32_t magic = 0, version = 0, count = 0;
  if (!in.Number(&magic) || magic != kMagic) return Corrupt("these are not saved states");
  if (!in.Number(&version) || version != kVersion) return Unsupported("saved states of version ", version, "; this runtime reads ", kVersion);
  if (!in.Number(&count) || count != buffers_.size()) return InvalidArgument(count, " states were saved, but '", program_->name, "' has ", buffers_.size());
  std::vector<std::span<const std::byte>> data(buffers_.size());
  for (size_t k = 0; k < count; ++k) {
    uint32_t length = 0;
    uint8_t dtype = 0, rank = 0;
    std::span<const std::byte> name;
    if (!in.Number(&length) || !in.Take(length, &name) || !in.Number(&dtype) || !in.Number(&rank)) return Corrupt("the saved states are cut off");
    std::vector<int64_t> sizes(rank);
    for (int64_t& size : sizes)
      if (!in.Number(&size)) return Corrupt("the saved states are cut off");
    DT_ASSIGN_OR_RETURN(const size_t s, Find({reinterpret_cast<const char*>(name.data()), name.size()}));
    const StateInfo& info = program_->states[s];
    if (static_cast<uint8_t>(info.dtype) != dtype || info.sizes != sizes)
      return InvalidArgument("the saved state '", info.name, "' has another type than the program's");
    if (data[s].data()) return Corrupt("the state '", info.name, "' was saved twice");
    if (!in.Take(info.bytes, &data[s])) return Corrupt("the saved states are cut off");
  }
  if (!in.done()) return Corrupt("there are bytes after the saved states");
  for (size_t s = 0; s < data.size(); ++s)
    if (!data[s].empty()) std::memcpy(buffers_[s].data(), data[s].data(), data[s].size());
  return OkStatus();
}

}  // namespace dovetail
