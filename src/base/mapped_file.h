// A read-only file mapped into memory, and a writer that leaves either the whole new file or nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace dovetail {

// What tells one version of a file from another without reading it: any change of the contents moves the change time.
struct FileIdentity {
  uint64_t device = 0, inode = 0, size = 0;
  int64_t modified_ns = 0, changed_ns = 0;
  bool operator==(const FileIdentity&) const = default;
};

// The bytes stay valid and at one address for the life of the object. At least 16 bytes past the end are readable
// (kernels may read that far past a tensor). Safe for concurrent readers.
class MappedFile {
 public:
  static Result<std::unique_ptr<MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  // As the file was when it was opened.
  const FileIdentity& identity() const { return identity_; }
  // Tells the kernel that the pages inside `part` of bytes() are not needed for now; they are read again on use.
  void Release(std::span<const std::byte> part) const;

 private:
  MappedFile() = default;
  const std::byte* data_ = nullptr;
  size_t size_ = 0, mapped_ = 0;
  std::string path_;
  FileIdentity identity_;
};

// Writes to PATH.tmp.<pid> and renames on Commit; the destructor removes an uncommitted file. What is at PATH must be a regular file, or nothing.
class AtomicFile {
 public:
  static Result<std::unique_ptr<AtomicFile>> Create(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  Status Write(const void* data, size_t size);
  uint64_t offset() const { return offset_; }
  Status Commit();

 private:
  AtomicFile() = default;
  void Forget();  // the temporary file
  int fd_ = -1;
  uint64_t offset_ = 0;
  std::string path_, temporary_;
};

// For a program of its own: SIGINT, SIGTERM and SIGHUP remove what has been written of AtomicFiles before they end it, and a limit on the size of files is
// an error of Write. A library leaves signals alone.
void RemoveUnfinishedFilesOnSignals();

}  // namespace dovetail
