// Memory for the packed weights of a Program: one range of addresses that stays what is behind it changes. That is private memory in
// huge pages while weights are packed, and after that, or from the start, a cache file (weights_file.h) mapped read-only in its place,
// which may later give way to private memory again, a piece at a time (WeightsMode).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/xnnpack/delegate/weights_file.h"

namespace dovetail {

// Reserve, Keep, Find and Settle are called by one thread at a time; BeforeCall by any.
class PackedWeights {
 public:
  // `program` may be null and must outlive this.
  explicit PackedWeights(const ProgramSource* program);
  ~PackedWeights();
  PackedWeights(const PackedWeights&) = delete;
  PackedWeights& operator=(const PackedWeights&) = delete;

  // Uninitialized memory at a multiple of 64, readable XNN_EXTRA_BYTES past its end; null when there is none. What is reserved and not kept
  // is reserved again by the next call.
  std::byte* Reserve(size_t size);
  // What the last Reserve gave holds weights now. With a key the cache file will have them.
  void Keep(size_t size, const Hash128* key);
  // The weights of the cache file or kept under that key; null if there are none.
  const std::byte* Find(const Hash128& key);
  // After a method was loaded: what it packed goes to the cache file.
  void Settle();
  // Before each call of a delegate: moves a piece to huge pages if the mode says so.
  void BeforeCall() {
    if (busy_.load(std::memory_order_relaxed)) Move();
  }

  struct Statistics {
    uint64_t mapped_bytes = 0;   // of the cache file
    uint64_t private_bytes = 0;  // of packed weights in private memory
    uint64_t packed = 0;         // weights that this process packed
    bool file = false;           // a cache file was found or written
  };
  Statistics statistics() const;

 private:
  void Map(const WeightsFile::Contents& contents);
  void OpenFile();
  void Move();
  void Count(size_t private_bytes);  // packed weights in private memory are now so many
  bool SmallPagesOnly() const;  // whether the kernel maps the file with those, and memory is plentiful

  const ProgramSource* program_;
  std::byte *reservation_ = nullptr, *base_ = nullptr;  // base_ at a multiple of a huge page
  size_t reservation_bytes_ = 0, capacity_ = 0;
  size_t used_ = 0;      // packed weights lie below
  size_t pending_ = 0;   // offset of what Reserve gave
  void* spilled_ = nullptr;           // what Reserve gave from elsewhere
  std::vector<void*> spills_;
  bool file_tried_ = false;
  std::unique_ptr<WeightsFile> file_;
  std::map<Hash128, PackedEntry> entries_;
  size_t new_entries_ = 0, total_packed_ = 0;

  mutable std::mutex move_mutex_;  // guards what follows
  size_t mapped_ = 0, moved_ = 0;  // the first `mapped_` bytes are the file's, but for `moved_`
  size_t counted_ = 0;
  uint64_t calls_ = 0;
  std::atomic<bool> busy_{false};  // whether Move has anything to do or to decide
};

}  // namespace dovetail
