// What a .pt2 archive holds: models as JSON, and tensors as spans of the file.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "import/exported_program.h"
#include "import/zip.h"

namespace dovetail::pt2 {

// A parameter, buffer or constant: a strided view of a storage in the file.
struct StoredTensor {
  std::string_view path;               // of the member that holds the storage: two tensors with one path share memory
  std::span<const std::byte> storage;
  uint32_t crc32 = 0;                  // of the storage, as the file has it
  TensorMeta meta;
};

class Archive {
 public:
  // `bytes` must outlive the archive and every span it gives. The model is chosen as ImportPt2 says.
  static Result<Archive> Open(std::span<const std::byte> bytes, std::string_view graph_name);

  const ExportedProgram& program() const { return *program_; }
  // By fully qualified name, for a parameter, buffer or constant.
  Result<const StoredTensor*> FindTensor(std::string_view name) const;

 private:
  Status ReadConfig(std::string_view folder, std::string_view config_suffix);

  ZipArchive zip_;
  std::string_view top_;    // "model/" of "model/models/model.json"
  std::string_view model_;  // "model"
  std::unique_ptr<ExportedProgram> program_;
  std::vector<std::unique_ptr<JsonDocument>> configs_;
  std::unordered_map<std::string_view, StoredTensor> tensors_;
};

}  // namespace dovetail::pt2
