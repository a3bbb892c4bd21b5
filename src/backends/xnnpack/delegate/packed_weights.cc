#include "backends/xnnpack/delegate/packed_weights.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xnnpack.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "backends/xnnpack/delegate/allocator.h"

namespace dovetail {
namespace {

constexpr size_t kHugePage = size_t{2} << 20, kAlignment = 64;
// Moving is done in at most so many pieces, since the kernel keeps a record for each.
constexpr size_t kPieces = 64;
// kAuto decides after so many calls of delegates, when the pages were read.
constexpr uint64_t kCallsToDecide = 64;

size_t RoundUp(size_t n, size_t to) { return (n + to - 1) / to * to; }

// The beginning of a small file of the kernel's.
std::string_view ReadKernelFile(const char* path, std::span<char> room) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const ssize_t n = ::read(fd, room.data(), room.size());
  ::close(fd);
  return n > 0 ? std::string_view(room.data(), static_cast<size_t>(n)) : std::string_view();
}

// "NAME:   123 kB" in bytes; 0 if it is not there.
uint64_t KilobytesOf(std::string_view text, std::string_view name) {
  const size_t at = text.find(name);
  if (at == std::string_view::npos) return 0;
  size_t i = text.find_first_of("0123456789", at + name.size());
  uint64_t n = 0;
  for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) n = n * 10 + static_cast<uint64_t>(text[i] - '0');
  return n * 1024;
}

}  // namespace

PackedWeights::PackedWeights(const ProgramSource* program) : program_(program) {
  // Packed forms are about as large as their sources. Addresses alone cost nothing; where even they are rationed, ask for fewer.
  const size_t image = program ? program->image.size() : 0;
  for (size_t size : {std::max(size_t{1} << 30, image * 4), image * 2, size_t{64} << 20}) {
    size = RoundUp(size, kHugePage);
    void* p = ::mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) continue;
    reservation_ = static_cast<std::byte*>(p);
    reservation_bytes_ = size + kHugePage;
    base_ = reinterpret_cast<std::byte*>(RoundUp(reinterpret_cast<uintptr_t>(p), kHugePage));
    capacity_ = size;
    ::madvise(base_, capacity_, MADV_HUGEPAGE);
    break;
  }
  used_ = WeightsFile::kHeaderBytes;
}

void PackedWeights::Count(size_t private_bytes) {
  CountPackedWeights(static_cast<int64_t>(private_bytes) - static_cast<int64_t>(counted_));
  counted_ = private_bytes;
}

PackedWeights::~PackedWeights() {
  Count(0);
  XnnpackFree(spilled_);
  for (void* p : spills_) XnnpackFree(p);
  if (reservation_) ::munmap(reservation_, reservation_bytes_);
}

std::byte* PackedWeights::Reserve(size_t size) {
  XnnpackFree(std::exchange(spilled_, nullptr));
  pending_ = RoundUp(used_, kAlignment);
  if (pending_ <= capacity_ && size <= capacity_ - pending_ && capacity_ - pending_ - size >= XNN_EXTRA_BYTES) return base_ + pending_;
  spilled_ = XnnpackAllocate(size + XNN_EXTRA_BYTES);
  return static_cast<std::byte*>(spilled_);
}

void PackedWeights::Keep(size_t size, const Hash128* key) {
  ++total_packed_;
  if (spilled_) {
    spills_.push_back(std::exchange(spilled_, nullptr));
    return;
  }
  {
    const std::lock_guard lock(move_mutex_);
    Count(counted_ + pending_ + size - used_);
  }
  used_ = pending_ + size;
  if (!key) return;
  if (entries_.try_emplace(*key, PackedEntry{*key, pending_, size}).second) ++new_entries_;
}

const std::byte* PackedWeights::Find(const Hash128& key) {
  if (!file_tried_) OpenFile();
  const auto it = entries_.find(key);
  return it == entries_.end() ? nullptr : base_ + it->second.offset;
}

void PackedWeights::OpenFile() {
  file_tried_ = true;
  if (!program_ || !base_) return;
  file_ = WeightsFile::For(*program_);
  if (!file_) return;
  const WeightsFile::Contents contents = file_->Open();
  if (contents.fd < 0) return;
  if (contents.bytes + XNN_EXTRA_BYTES <= capacity_ && used_ == WeightsFile::kHeaderBytes) {
    Map(contents);
    for (const PackedEntry& e : contents.entries) entries_.emplace(e.key, e);
  }
  ::close(contents.fd);
}

// In place of what is there, whose contents are the same as far as it was used.
void PackedWeights::Map(const WeightsFile::Contents& contents) {
  const std::lock_guard lock(move_mutex_);
  if (::mmap(base_, contents.bytes, PROT_READ, MAP_SHARED | MAP_FIXED, contents.fd, 0) == MAP_FAILED) return;
  ::madvise(base_, contents.bytes, MADV_HUGEPAGE);
  mapped_ = contents.bytes;
  moved_ = 0;
  Count(0);
  calls_ = 0;
  busy_ = program_->weights.mode != WeightsMode::kShared;
  used_ = RoundUp(contents.bytes, kHugePage);
}

void PackedWeights::Settle() {
  if (new_entries_ == 0 || !file_) return;
  new_entries_ = 0;
  std::vector<PackedEntry> entries;
  for (const auto& [key, e] : entries_) entries.push_back(e);
  const uint64_t end = RoundUp(used_, kAlignment);
  // A file that cannot be written costs the next load its time; this one has what it needs.
  if (Status s = file_->Write(base_, end, entries); !s.ok()) return;
  if (program_->weights.mode == WeightsMode::kFast) return;
  const WeightsFile::Contents contents = file_->Open();
  if (contents.fd < 0) return;
  if (contents.entries.size() == entries.size() && contents.bytes == end + entries.size() * sizeof(PackedEntry)) Map(contents);
  ::close(contents.fd);
}

bool PackedWeights::SmallPagesOnly() const {
  std::array<char, 4096> room;
  const std::string_view huge = ReadKernelFile("/sys/kernel/mm/transparent_hugepage/enabled", room);
  if (huge.empty() || huge.find("[never]") != std::string_view::npos) return false;  // private memory would be no better
  if (KilobytesOf(ReadKernelFile("/proc/meminfo", room), "MemAvailable:") / 4 < mapped_) return false;
  // The pages' sizes are in the kernel's list of mappings, in the paragraph that begins with the address.
  char begin[24];
  const int length = std::snprintf(begin, sizeof(begin), "%lx-", reinterpret_cast<unsigned long>(base_));
  const int fd = ::open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  size_t kept = 0;
  bool found = false, small = false;
  for (ssize_t n; (n = ::read(fd, room.data() + kept, room.size() - kept)) > 0;) {
    const std::string_view text(room.data(), kept + static_cast<size_t>(n));
    if (!found) {
      const size_t at = text.find(std::string_view(begin, static_cast<size_t>(length)));
      // Keeps the beginning of a paragraph for the next read.
      const size_t from = at == std::string_view::npos ? text.size() - std::min(text.size(), sizeof(begin)) : at;
      found = at != std::string_view::npos;
      kept = text.size() - from;
      std::memmove(room.data(), text.data() + from, kept);
    } else {
      kept = text.size();
    }
    const std::string_view paragraph(room.data(), kept);
    if (found && paragraph.find("VmFlags:") != std::string_view::npos) {
      small = KilobytesOf(paragraph, "FilePmdMapped:") < KilobytesOf(paragraph, "Rss:") / 2;
      break;
    }
    if (kept == room.size()) break;
  }
  ::close(fd);
  return small;
}

void PackedWeights::Move() {
  const std::unique_lock lock(move_mutex_, std::try_to_lock);
  if (!lock || mapped_ == 0) return;
  if (program_->weights.mode == WeightsMode::kAuto && moved_ == 0) {
    if (++calls_ < kCallsToDecide) return;
    if (!SmallPagesOnly()) {
      busy_ = false;
      return;
    }
  }
  const size_t all = RoundUp(mapped_, kHugePage), piece = std::min(std::max(RoundUp(all / kPieces, kHugePage), kHugePage), all - moved_);
  // Filled elsewhere and then put in place, which for whoever reads there happens at once.
  bool ok = false;
  void* room = ::mmap(nullptr, piece + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room != MAP_FAILED) {
    std::byte* begin = reinterpret_cast<std::byte*>(RoundUp(reinterpret_cast<uintptr_t>(room), kHugePage));
    ::madvise(begin, piece, MADV_HUGEPAGE);
    const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    // Past the end of a file there is nothing to read.
    const size_t readable = std::min(piece, RoundUp(mapped_, page) - moved_);
    std::memcpy(begin, base_ + moved_, readable);
    ok = ::mremap(begin, piece, piece, MREMAP_MAYMOVE | MREMAP_FIXED, base_ + moved_) != MAP_FAILED;
    ::munmap(room, static_cast<size_t>(begin - static_cast<std::byte*>(room)));
    const std::byte* end = static_cast<std::byte*>(room) + piece + kHugePage;
    if (ok) ::munmap(begin + piece, static_cast<size_t>(end - (begin + piece)));
    else ::munmap(begin, static_cast<size_t>(end - begin));
  }
  if (ok) Count(counted_ + piece);
  moved_ += piece;
  if (!ok || moved_ >= all) busy_ = false;
  if (moved_ >= all) mapped_ = 0;
}

PackedWeights::Statistics PackedWeights::statistics() const {
  const std::lock_guard lock(move_mutex_);
  Statistics s;
  s.packed = total_packed_;
  s.file = file_ && !entries_.empty();
  s.mapped_bytes = mapped_ - std::min(mapped_, moved_);
  s.private_bytes = used_ - std::min<size_t>(used_, s.mapped_bytes);
  return s;
}

}  // namespace dovetail
