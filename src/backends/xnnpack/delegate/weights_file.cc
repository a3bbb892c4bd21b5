#include "backends/xnnpack/delegate/weights_file.h"

#include <cpuinfo.h>
#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xnnpack.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

namespace dovetail {
namespace {

constexpr std::string_view kSuffix = ".weights", kTemporary = ".tmp";
constexpr uint64_t kVersion = 1;

int64_t Nanoseconds(const timespec& t) { return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec; }
int64_t Now() {
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  return Nanoseconds(now);
}

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }
  int Take() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

bool ReadAt(int fd, void* data, size_t size, uint64_t offset) {
  char* p = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t n = ::pread(fd, p, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    p += n, offset += static_cast<uint64_t>(n), size -= static_cast<size_t>(n);
  }
  return true;
}

bool WriteAt(int fd, const void* data, size_t size, uint64_t offset) {
  const char* p = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = ::pwrite(fd, p, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    p += n, offset += static_cast<uint64_t>(n), size -= static_cast<size_t>(n);
  }
  return true;
}

// The build id that the linker gave the object which holds XNNPACK's code: this program, or a shared library.
bool AddBuildId(XXH3_state_t* state) {
  struct Search {
    XXH3_state_t* state;
    uintptr_t code;
    bool found;
  } search{state, reinterpret_cast<uintptr_t>(&xnn_initialize), false};
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* context) {
        Search& s = *static_cast<Search*>(context);
        const auto covers = [&](const ElfW(Phdr)& h, uintptr_t at) {
          return h.p_type == PT_LOAD && at >= info->dlpi_addr + h.p_vaddr && at < info->dlpi_addr + h.p_vaddr + h.p_memsz;
        };
        const ElfW(Phdr)*begin = info->dlpi_phdr, *end = begin + info->dlpi_phnum;
        if (std::none_of(begin, end, [&](const auto& h) { return covers(h, s.code); })) return 0;
        for (const ElfW(Phdr)* h = begin; h != end; ++h) {
          if (h->p_type != PT_NOTE) continue;
          const char* p = reinterpret_cast<const char*>(info->dlpi_addr + h->p_vaddr);
          const char* stop = p + h->p_memsz;
          while (p + sizeof(ElfW(Nhdr)) <= stop) {
            ElfW(Nhdr) note;
            std::memcpy(&note, p, sizeof(note));
            const char* name = p + sizeof(note);
            const char* data = name + (note.n_namesz + 3) / 4 * 4;
            if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
              XXH3_128bits_update(s.state, data, note.n_descsz);
              s.found = note.n_descsz > 0;
              return 1;
            }
            p = data + (note.n_descsz + 3) / 4 * 4;
          }
        }
        return 1;
      },
      &search);
  return search.found;
}

Hash128 Words(const XXH128_hash_t& h) { return {h.low64, h.high64}; }

template <class T>
void Add(XXH3_state_t* state, const T& value) {
  XXH3_128bits_update(state, &value, sizeof(value));
}

struct DeleteState {
  void operator()(XXH3_state_t* s) const { XXH3_freeState(s); }
};
using State = std::unique_ptr<XXH3_state_t, DeleteState>;

// Whether the system lets this process use AMX. XNNPACK asks for that when it starts and packs for other kernels where it is refused.
bool MayUseAmx() {
#ifdef __x86_64__
  uint64_t states = 0;
  constexpr int kGetPermitted = 0x1022, kTileData = 18;  // ARCH_GET_XCOMP_PERM and XFEATURE_XTILEDATA, which older headers lack
  return ::syscall(SYS_arch_prctl, kGetPermitted, &states) == 0 && (states >> kTileData & 1) != 0;
#else
  return false;
#endif
}

// The library's build and the processor. False if they can't be told.
bool HashMachine(Hash128* hash) {
  if (!cpuinfo_initialize()) return false;
  const State state(XXH3_createState());
  if (!state) return false;
  XXH3_128bits_reset(state.get());
  Add(state.get(), kVersion);
  Add(state.get(), sizeof(void*));
  if (!AddBuildId(state.get())) return false;
  XXH3_128bits_update(state.get(), xnn_experimental_get_build_identifier_data(), xnn_experimental_get_build_identifier_size());
  Add(state.get(), cpuinfo_isa);
  Add(state.get(), MayUseAmx());
  for (uint32_t i = 0; i < cpuinfo_get_uarchs_count(); ++i) Add(state.get(), cpuinfo_get_uarchs()[i].uarch);
  *hash = Words(XXH3_128bits_digest(state.get()));
  return true;
}

// Another one after every start of the machine; zeros where the kernel does not tell.
std::array<char, 16> BootId() {
  std::array<char, 16> id{};
  char text[64] = {};
  const Fd fd(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return id;
  const ssize_t n = ::read(fd.get(), text, sizeof(text));
  if (n > 0) {
    const XXH128_hash_t h = XXH3_128bits(text, static_cast<size_t>(n));
    std::memcpy(id.data(), &h, sizeof(id));
  }
  return id;
}

bool MakeFolders(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1))
    ::mkdir(path.substr(0, slash).c_str(), 0700);
  struct stat st;
  return (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) && ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

}  // namespace

Hash128 HashBytes(const void* data, size_t size) { return Words(XXH3_128bits(data, size)); }

struct WeightsFile::Header {
  std::array<char, 8> magic;
  uint64_t version;
  Hash128 machine;
  FileIdentity source;
  uint64_t bytes, index_offset, entries;
  Hash128 contents;  // of everything after the header
  std::array<char, 16> boot;
  int64_t stamp_ns;  // the file's modification time if nobody wrote to it since
  Hash128 self;      // of the fields above

  Hash128 Hash() const { return HashBytes(this, offsetof(Header, self)); }
};

std::unique_ptr<WeightsFile> WeightsFile::For(const ProgramSource& program) {
  if (!program.file || program.weights.cache_folder.empty()) return nullptr;
  std::unique_ptr<WeightsFile> f(new WeightsFile);
  f->source_ = program.file->identity();
  // A change within one tick of the file system's clock would not show.
  const int64_t tick = f->source_.changed_ns % 1'000'000'000 == 0 ? 2'000'000'000 : 20'000'000;
  const int64_t age = Now() - f->source_.changed_ns;
  if (age < tick || !HashMachine(&f->machine_)) return nullptr;
  f->folder_ = program.weights.cache_folder;
  f->limit_ = program.weights.cache_limit;
  const std::unique_ptr<char, decltype(&::free)> real(::realpath(program.file->path().c_str(), nullptr), &::free);
  if (!real) return nullptr;
  std::string name(reinterpret_cast<const char*>(f->machine_.data()), sizeof(f->machine_));
  name += real.get();
  const Hash128 hash = HashBytes(name.data(), name.size());
  char hex[33];
  std::snprintf(hex, sizeof(hex), "%016llx%016llx", static_cast<unsigned long long>(hash[1]), static_cast<unsigned long long>(hash[0]));
  f->path_ = StrCat(f->folder_, "/", hex, kSuffix);
  return f;
}

WeightsFile::Header WeightsFile::NewHeader() const {
  static_assert(std::has_unique_object_representations_v<Header>);  // it is hashed, and compared, as bytes
  Header h{};
  std::memcpy(h.magic.data(), "DTWEIGHT", 8);
  h.version = kVersion;
  h.machine = machine_;
  h.source = source_;
  return h;
}

bool WeightsFile::Check(int fd, Contents* contents) const {
  struct stat st;
  if (::fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != ::geteuid() || (st.st_mode & 022) != 0) return false;
  Header h;
  if (!ReadAt(fd, &h, sizeof(h), 0) || h.Hash() != h.self) return false;
  const Header want = NewHeader();
  if (h.magic != want.magic || h.version != want.version || h.machine != want.machine || !(h.source == want.source)) return false;
  if (h.bytes != static_cast<uint64_t>(st.st_size) || h.index_offset < kHeaderBytes || h.index_offset > h.bytes ||
      h.entries != (h.bytes - h.index_offset) / sizeof(PackedEntry) || h.entries * sizeof(PackedEntry) != h.bytes - h.index_offset)
    return false;
  const std::array<char, 16> boot = BootId();
  if (boot == std::array<char, 16>{} || h.boot != boot || h.stamp_ns != Nanoseconds(st.st_mtim)) {
    void* all = ::mmap(nullptr, h.bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (all == MAP_FAILED) return false;
    const Hash128 hash = HashBytes(static_cast<const char*>(all) + kHeaderBytes, h.bytes - kHeaderBytes);
    ::munmap(all, h.bytes);
    if (hash != h.contents) return false;
    h.boot = boot;
    h.stamp_ns = Nanoseconds(st.st_mtim);
    h.self = h.Hash();
    const timespec times[2] = {{0, UTIME_NOW}, st.st_mtim};
    if (WriteAt(fd, &h, sizeof(h), 0)) ::futimens(fd, times);
  } else {
    const timespec used[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
    ::futimens(fd, used);
  }
  contents->entries.resize(h.entries);
  if (!ReadAt(fd, contents->entries.data(), h.entries * sizeof(PackedEntry), h.index_offset)) return false;
  for (const PackedEntry& e : contents->entries)
    if (e.offset < kHeaderBytes || e.offset % 64 != 0 || e.offset > h.index_offset || e.size > h.index_offset - e.offset) return false;
  contents->bytes = h.bytes;
  return true;
}

WeightsFile::Contents WeightsFile::Open() const {
  Contents contents;
  Fd fd(::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (fd.get() < 0 || !Check(fd.get(), &contents)) return {};
  contents.fd = fd.Take();
  return contents;
}

void WeightsFile::MakeRoom(uint64_t bytes) const {
  struct Item {
    std::string path;
    uint64_t bytes;
    int64_t used_ns;
  };
  std::vector<Item> items;
  uint64_t total = bytes;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(folder_.c_str()), &::closedir);
  if (!dir) return;
  constexpr int64_t kAbandonedNs = int64_t{600} * 1'000'000'000;
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    Item item{StrCat(folder_, "/", name), 0, 0};
    struct stat st;
    if (::lstat(item.path.c_str(), &st) != 0 || !S_ISREG(st.st_mode)) continue;
    item.bytes = static_cast<uint64_t>(st.st_blocks) * 512;
    item.used_ns = Nanoseconds(st.st_atim);
    if (name.ends_with(kTemporary) && name.find(kSuffix) != std::string_view::npos) {
      if (Now() - Nanoseconds(st.st_mtim) > kAbandonedNs) ::unlink(item.path.c_str());
    } else if (name.ends_with(kSuffix) && item.path != path_) {
      total += item.bytes;
      items.push_back(std::move(item));
    }
  }
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.used_ns < b.used_ns; });
  for (const Item& item : items) {
    if (total <= limit_) break;
    if (::unlink(item.path.c_str()) == 0) total -= item.bytes;
  }
}

Status WeightsFile::Write(const std::byte* base, uint64_t end, const std::vector<PackedEntry>& entries) const {
  const auto failed = [&] { return IoError("cannot write '", path_, "': ", std::strerror(errno)); };
  if (!MakeFolders(folder_)) return failed();
  const uint64_t index = entries.size() * sizeof(PackedEntry), bytes = end + index;
  if (bytes > limit_) return OutOfRange("the packed weights are ", bytes, " bytes, more than the cache may hold");
  MakeRoom(bytes);
  const std::string temporary = StrCat(path_, ".", static_cast<int64_t>(::getpid()), ".", reinterpret_cast<uintptr_t>(this), kTemporary);
  struct Remove {
    const std::string* path;
    ~Remove() {
      if (path) ::unlink(path->c_str());
    }
  } remove{nullptr};
  const Fd fd(::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (fd.get() < 0) return failed();
  remove.path = &temporary;

  Header h = NewHeader();
  h.bytes = bytes;
  h.index_offset = end;
  h.entries = entries.size();
  h.boot = BootId();
  h.stamp_ns = Now();
  const State state(XXH3_createState());
  if (!state) return OutOfRange("no memory");
  XXH3_128bits_reset(state.get());
  XXH3_128bits_update(state.get(), base + kHeaderBytes, end - kHeaderBytes);
  XXH3_128bits_update(state.get(), entries.data(), index);
  h.contents = Words(XXH3_128bits_digest(state.get()));
  h.self = h.Hash();
  // From the start and in one go: the kernel then finds large pages for it. The header's own page follows.
  if (!WriteAt(fd.get(), base, end, 0) || !WriteAt(fd.get(), entries.data(), index, end)) return failed();
  std::vector<char> first(kHeaderBytes);
  std::memcpy(first.data(), &h, sizeof(h));
  if (!WriteAt(fd.get(), first.data(), first.size(), 0)) return failed();
  const timespec times[2] = {{0, UTIME_NOW}, {h.stamp_ns / 1'000'000'000, h.stamp_ns % 1'000'000'000}};
  if (::futimens(fd.get(), times) != 0) return failed();
  if (::rename(temporary.c_str(), path_.c_str()) != 0) return failed();
  remove.path = nullptr;
  return OkStatus();
}

}  // namespace dovetail
