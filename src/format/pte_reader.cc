#include "format/pte_reader.h"

#include <algorithm>
#include <cstring>

#include "format/pte_hashes.h"
#include "format/pte_verify.h"
#include "format/scalar_type.h"

namespace dovetail {
namespace {

// Behind the root offset and file identifier: magic, u32 length, u64 program size, u64 segment base and, from length 32
// on, u64 size of all segments.
constexpr size_t kHeaderAt = 8, kMinHeader = 24, kFullHeader = 32;

template <class T>
T Load(std::span<const std::byte> file, size_t at) {
  T value;
  std::memcpy(&value, file.data() + at, sizeof value);
  return flatbuffers::EndianScalar(value);
}

struct Extent {
  uint64_t program = 0;
  std::span<const std::byte> segments;
};

Result<Extent> ReadHeader(std::span<const std::byte> file, const std::string& name) {
  Extent extent{file.size(), {}};
  const bool present = file.size() >= kHeaderAt + kMinHeader && std::memcmp(file.data() + kHeaderAt, "eh00", 4) == 0;
  if (!present) return extent;  // an old file without segments
  const uint32_t length = Load<uint32_t>(file, kHeaderAt + 4);
  if (length < kMinHeader) return Corrupt("'", name, "': the extended header's length is ", length, ", less than ", kMinHeader);
  extent.program = Load<uint64_t>(file, kHeaderAt + 8);
  const uint64_t base = Load<uint64_t>(file, kHeaderAt + 16);
  if (extent.program < kHeaderAt + length || extent.program > file.size())
    return Corrupt("'", name, "': the extended header says ", extent.program, " bytes of program, but the file has ", file.size(),
                   ": it is truncated or damaged; copy or compile it again");
  if (base == 0) return extent;
  if (base < extent.program || base > file.size())
    return Corrupt("'", name, "': the segment base ", base, " is not between the program (", extent.program, " bytes) and the end of the file (",
                   file.size(), " bytes)");
  if (base % 16 != 0) return Corrupt("'", name, "': the segment base ", base, " is not a multiple of 16");
  uint64_t size = file.size() - base;
  if (length >= kFullHeader && file.size() >= kHeaderAt + kFullHeader) {
    const uint64_t declared = Load<uint64_t>(file, kHeaderAt + 24);
    if (declared > size)
      return Corrupt("'", name, "': the extended header says ", declared, " bytes of segments, but the file has ", size, ": it is truncated; copy or compile it again");
    if (declared != 0) size = declared;  // 0: a writer that does not say
  }
  extent.segments = file.subspan(base, size);
  return extent;
}

std::string_view KeyOf(const pte::Program& program, uint32_t i) { return program.named_data()->Get(i)->key()->string_view(); }

std::span<const std::byte> AsBytes(const flatbuffers::Vector<uint8_t>* v) {
  if (!v) return {};
  return {reinterpret_cast<const std::byte*>(v->Data()), v->size()};
}

}  // namespace

Result<PteView> ReadPte(std::span<const std::byte> file, std::string name) {
  if (reinterpret_cast<uintptr_t>(file.data()) % 16 != 0) return InvalidArgument("'", name, "': the bytes must start at a multiple of 16");
  if (file.empty()) return Corrupt("'", name, "' is empty; compile the model again");
  if (file.size() >= 4 && std::memcmp(file.data(), "PK\3\4", 4) == 0)
    return InvalidArgument("'", name, "' is a zip archive, not a .pte program; if it is an exported .pt2, `dovetail compile MODEL.pt2 -o MODEL.pte` makes a program of it");
  if (file.size() < kHeaderAt || std::memcmp(file.data() + 4, "ET", 2) != 0)
    return Corrupt("'", name, "' is not a .pte program (no ET12 identifier); `dovetail compile MODEL.pt2 -o MODEL.pte` writes one");
  if (std::memcmp(file.data() + 4, pte::ProgramIdentifier(), 4) != 0)
    return Unsupported("'", name, "' is a .pte program of format '", std::string(reinterpret_cast<const char*>(file.data()) + 4, 4),
                       "'; this version reads ", pte::ProgramIdentifier());
  DT_ASSIGN_OR_RETURN(Extent extent, ReadHeader(file, name));
  if (extent.program >= FLATBUFFERS_MAX_BUFFER_SIZE) return Unsupported("'", name, "': the program without its data is over 2 GiB");
  // A table takes at least 4 bytes, so a file that shares none stays below this limit however big it is.
  const uint64_t tables = std::min<uint64_t>(extent.program / 4 + 16, 0xffffffffu);
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(file.data()), extent.program, 64, static_cast<flatbuffers::uoffset_t>(tables));
  if (!pte::VerifyProgramBuffer(verifier)) return Corrupt("'", name, "': the program table is damaged (flatbuffers verification failed)");

  PteView view;
  view.program_ = pte::GetProgram(file.data());
  view.segments_ = extent.segments;
  DT_RETURN_IF_ERROR(VerifyProgram(*view.program_, extent.program, extent.segments.size(), name));
  view.name_ = std::move(name);
  const uint32_t count = view.program_->named_data() ? view.program_->named_data()->size() : 0;
  for (uint32_t i = 0; i < count; ++i) view.named_data_by_key_.push_back(i);
  std::sort(view.named_data_by_key_.begin(), view.named_data_by_key_.end(),
            [&](uint32_t a, uint32_t b) { return KeyOf(*view.program_, a) < KeyOf(*view.program_, b); });
  DT_RETURN_IF_ERROR(view.ReadHashes(file.first(extent.program)));
  return view;
}

Status PteView::ReadHashes(std::span<const std::byte> front) {
  const auto found = FindNamedData(kHashesKey);
  if (!found) return OkStatus();
  const size_t words = kFirstSegmentHash + program_->segments()->size() - 1;
  std::vector<uint64_t> hashes(words);
  if (found->size() != words * kHashBytes) return Corrupt("'", name_, "': ", kHashesKey, " has ", found->size(), " bytes, not ", words * kHashBytes);
  std::memcpy(hashes.data(), found->data(), found->size());
  if (hashes[0] != HashPart(found->subspan(kHashBytes))) return Corrupt("'", name_, "': ", kHashesKey, " is damaged; copy or compile the file anew");
  if (hashes[1] != HashPart(front))
    return Corrupt("'", name_, "': the program table (the first ", front.size(), " bytes) is damaged; copy or compile the file anew");
  hashes_.assign(hashes.begin() + kFirstSegmentHash, hashes.end());
  return OkStatus();
}

Status PteView::CheckSegment(uint32_t index) const {
  if (index >= hashes_.size() || hashes_[index] == HashPart(Segment(index))) return OkStatus();
  const std::span<const std::byte> bytes = Segment(index);
  return Corrupt("'", name_, "': segment ", index, " (", DescribeSegment(index), ", ", bytes.size(), " bytes) is damaged; copy or compile the file anew");
}

std::string PteView::DescribeSegment(uint32_t index) const {
  for (const pte::ExecutionPlan* plan : *program_->execution_plan()) {
    if (!plan->delegates()) continue;
    for (const pte::BackendDelegate* d : *plan->delegates())
      if (d->processed()->location() == pte::DataLocation::SEGMENT && d->processed()->index() == index)
        return StrCat("data of delegate ", d->id()->str(), " in method '", plan->name()->str(), "'");
  }
  if (program_->constant_segment() && program_->constant_segment()->segment_index() == index) return "constants";
  if (program_->mutable_data_segments())
    for (const pte::SubsegmentOffsets* states : *program_->mutable_data_segments())
      if (states->segment_index() == index) return "initial values of states";
  for (uint32_t i : named_data_by_key_)
    if (program_->named_data()->Get(i)->segment_index() == index) return StrCat("named data '", std::string(KeyOf(*program_, i)), "'");
  return "of unknown use";
}

std::optional<uint32_t> PteView::SegmentOf(std::span<const std::byte> bytes) const {
  const uintptr_t at = reinterpret_cast<uintptr_t>(bytes.data());
  for (uint32_t i = 0; program_->segments() && i < program_->segments()->size(); ++i) {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(Segment(i).data());
    if (at >= begin && at - begin < Segment(i).size()) return i;
  }
  return std::nullopt;
}

std::span<const std::byte> PteView::Segment(uint32_t index) const {
  const pte::DataSegment* s = program_->segments()->Get(index);
  return segments_.subspan(s->offset(), s->size());
}

std::optional<std::span<const std::byte>> PteView::FindNamedData(std::string_view key) const {
  auto it = std::lower_bound(named_data_by_key_.begin(), named_data_by_key_.end(), key,
                             [&](uint32_t i, std::string_view k) { return KeyOf(*program_, i) < k; });
  if (it == named_data_by_key_.end() || KeyOf(*program_, *it) != key) return std::nullopt;
  return Segment(program_->named_data()->Get(*it)->segment_index());
}

std::span<const std::byte> PteView::ConstantData(const pte::Tensor& tensor) const {
  if (!IsConstant(tensor) || IsExternal(tensor)) return {};
  const uint32_t index = tensor.data_buffer_idx();
  const uint64_t bytes = TensorBytes(tensor);
  if (program_->constant_buffer() && program_->constant_buffer()->size() > 0)
    return AsBytes(program_->constant_buffer()->Get(index)->storage()).first(bytes);
  const pte::SubsegmentOffsets* table = program_->constant_segment();
  return Segment(table->segment_index()).subspan(table->offsets()->Get(index), bytes);
}

std::span<const std::byte> PteView::InitialData(const pte::Tensor& tensor) const {
  if (tensor.data_buffer_idx() == 0 || !tensor.allocation_info() || IsExternal(tensor)) return {};
  const uint64_t which = tensor.extra_tensor_info() ? tensor.extra_tensor_info()->mutable_data_segments_idx() : 0;
  const pte::SubsegmentOffsets* table = program_->mutable_data_segments()->Get(static_cast<uint32_t>(which));
  return Segment(table->segment_index()).subspan(table->offsets()->Get(tensor.data_buffer_idx()), TensorBytes(tensor));
}

std::span<const std::byte> PteView::DelegateData(const pte::BackendDelegate& delegate) const {
  const uint32_t index = delegate.processed()->index();
  if (delegate.processed()->location() == pte::DataLocation::SEGMENT) return Segment(index);
  return AsBytes(program_->backend_delegate_data()->Get(index)->data());
}

const pte::ExecutionPlan* PteView::FindMethod(std::string_view name) const {
  for (const pte::ExecutionPlan* plan : *program_->execution_plan())
    if (plan->name()->string_view() == name) return plan;
  return nullptr;
}

std::span<const int32_t> TensorSizes(const pte::Tensor& tensor) {
  if (!tensor.sizes()) return {};
  return {tensor.sizes()->data(), tensor.sizes()->size()};
}

uint64_t TensorBytes(const pte::Tensor& tensor) {
  uint64_t bytes = ByteSize(FromScalarType(tensor.scalar_type()));
  for (int32_t size : TensorSizes(tensor)) bytes *= static_cast<uint64_t>(size);
  return bytes;
}

uint64_t AllocationOffset(const pte::AllocationDetails& allocation) {
  return static_cast<uint64_t>(allocation.memory_offset_high()) << 32 | allocation.memory_offset_low();
}

bool IsExternal(const pte::Tensor& tensor) {
  return tensor.extra_tensor_info() && tensor.extra_tensor_info()->location() == pte::TensorDataLocation::EXTERNAL;
}

bool IsConstant(const pte::Tensor& tensor) { return !tensor.allocation_info() && (tensor.data_buffer_idx() != 0 || IsExternal(tensor)); }

}  // namespace dovetail
