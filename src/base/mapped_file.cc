#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace dovetail {
namespace {
constexpr size_t kReadablePastEnd = 16;

std::string ErrnoText() { return std::strerror(errno); }
}  // namespace

Result<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return (errno == ENOENT ? NotFound("cannot open '", path, "': ", ErrnoText()) : IoError("cannot open '", path, "': ", ErrnoText()));
  struct stat st;
  if (::fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    ::close(fd);
    return InvalidArgument("'", path, "' is not a regular file");
  }
  std::unique_ptr<MappedFile> f(new MappedFile);
  f->path_ = path;
  f->size_ = static_cast<size_t>(st.st_size);
  const auto nanoseconds = [](const timespec& t) { return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec; };
  f->identity_ = {st.st_dev, st.st_ino, f->size_, nanoseconds(st.st_mtim), nanoseconds(st.st_ctim)};
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t file_pages = (f->size_ + page - 1) / page * page;
  // An anonymous reservation one page longer holds the file's pages, so reads just past the end never fault.
  f->mapped_ = (f->size_ + kReadablePastEnd + page - 1) / page * page;
  if (f->mapped_ == file_pages) f->mapped_ += page;
  void* base = ::mmap(nullptr, f->mapped_, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  bool ok = base != MAP_FAILED;
  if (ok && f->size_ > 0)
    ok = ::mmap(base, f->size_, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) != MAP_FAILED;
  const std::string error = ok ? "" : ErrnoText();
  ::close(fd);
  if (base != MAP_FAILED) f->data_ = static_cast<const std::byte*>(base);
  if (!ok) return IoError("cannot map '", path, "': ", error);
  return f;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), mapped_);
}

void MappedFile::Release(std::span<const std::byte> part) const {
  if (part.data() < data_ || part.data() + part.size() > data_ + size_) return;
  const uintptr_t page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(part.data()) + page - 1) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(part.data() + part.size()) / page * page;
  if (end > begin) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

namespace {

// Names of temporary files, for a signal handler.
std::array<std::atomic<const char*>, 16> unfinished;
static_assert(std::atomic<const char*>::is_always_lock_free);

void Replace(const char* name, const char* with) {
  for (auto& slot : unfinished)
    if (const char* expected = name; slot.compare_exchange_strong(expected, with)) return;
}

extern "C" void RemoveUnfinished(int signal) {
  for (auto& slot : unfinished)
    if (const char* name = slot.load()) ::unlink(name);
  ::raise(signal);  // with the default action, which SA_RESETHAND has restored
}

}  // namespace

void RemoveUnfinishedFilesOnSignals() {
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now;
    if (::sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) continue;  // nohup ignores SIGHUP
    struct sigaction remove{};
    remove.sa_handler = RemoveUnfinished;
    remove.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(signal, &remove, nullptr);
  }
  ::signal(SIGXFSZ, SIG_IGN);
}

Result<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path) {
  // Renaming over a device or a pipe would replace it.
  if (struct stat st; ::stat(path.c_str(), &st) == 0 && !S_ISREG(st.st_mode)) return InvalidArgument("cannot write '", path, "': it is not a regular file");
  std::unique_ptr<AtomicFile> f(new AtomicFile);
  f->path_ = path;
  f->temporary_ = StrCat(path, ".tmp.", static_cast<int64_t>(::getpid()));
  f->fd_ = ::open(f->temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (f->fd_ < 0) {
    std::string error = ErrnoText();
    f->temporary_.clear();
    return IoError("cannot write '", path, "': ", error);
  }
  Replace(nullptr, f->temporary_.c_str());
  return f;
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (temporary_.empty()) return;
  ::unlink(temporary_.c_str());
  Forget();
}

void AtomicFile::Forget() {
  Replace(temporary_.c_str(), nullptr);
  temporary_.clear();
}

Status AtomicFile::Write(const void* data, size_t size) {
  const char* p = static_cast<const char*>(data);
  while (size > 0) {
    ssize_t n = ::write(fd_, p, size);
    if (n < 0) {
      if (errno == EINTR) continue;
      return IoError("cannot write '", path_, "': ", ErrnoText());
    }
    p += n;
    size -= static_cast<size_t>(n);
    offset_ += static_cast<uint64_t>(n);
  }
  return OkStatus();
}

Status AtomicFile::Commit() {
  int fd = fd_;
  fd_ = -1;
  if (::close(fd) != 0) return IoError("cannot write '", path_, "': ", ErrnoText());
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return IoError("cannot write '", path_, "': ", ErrnoText());
  Forget();
  return OkStatus();
}

}  // namespace dovetail
