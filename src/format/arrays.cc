#include "format/arrays.h"

#include "base/mapped_file.h"
#include "format/npy.h"

namespace dovetail {

Result<std::vector<NamedArray>> LoadArrays(const std::string& path) {
  const bool npz = path.ends_with(".npz"), npy = path.ends_with(".npy"), safetensors = path.ends_with(".safetensors");
  if (!npz && !npy && !safetensors) return InvalidArgument("'", path, "': arrays are read from .npz, .npy and .safetensors files");
  DT_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));
  if (npz) return ParseNpz(file->bytes(), path);
  if (safetensors) return ParseSafetensors(file->bytes(), path);
  DT_ASSIGN_OR_RETURN(NamedArray array, ParseNpy(file->bytes(), "input_0", StrCat("'", path, "'")));
  std::vector<NamedArray> arrays;
  arrays.push_back(std::move(array));
  return arrays;
}

}  // namespace dovetail
