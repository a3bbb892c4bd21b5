#include "import/archive.h"

namespace dovetail::pt2 {
namespace {

constexpr std::string_view kModels = "models/", kJson = ".json";

std::string_view Text(const ZipMember& m) { return {reinterpret_cast<const char*>(m.data.data()), m.data.size()}; }

// Archives of older versions of torch, told by their members.
Status Refuse(const ZipArchive& zip) {
  for (const ZipMember& m : zip.members()) {
    if (m.name.ends_with("serialized_exported_program.json") || m.name.ends_with("data/weights/model.pt"))
      return Unsupported("the file is a .pt2 of an older layout, with pickled weights ('", m.name,
                         "'); load it with its torch and save it again with torch 2.10 or newer");
    if (m.name.ends_with("data.pkl"))
      return Unsupported("the file is a pickled checkpoint of torch.save, not a .pt2; export the model with torch.export.export and torch.export.save");
  }
  return Corrupt("not a .pt2 file: the archive holds no models/NAME.json; torch.export.save(program, \"model.pt2\") writes one");
}

}  // namespace

Result<Archive> Archive::Open(std::span<const std::byte> bytes, std::string_view graph_name) {
  Archive archive;
  DT_ASSIGN_OR_RETURN(archive.zip_, ZipArchive::Open(bytes));
  std::vector<const ZipMember*> models;
  const ZipMember* model = nullptr;
  for (const ZipMember& m : archive.zip_.members()) {
    const size_t slash = m.name.find('/');
    const size_t start = slash == std::string_view::npos ? 0 : slash + 1;
    const std::string_view rest = m.name.substr(start);
    if (!rest.starts_with(kModels) || !rest.ends_with(kJson) || rest.size() <= kModels.size() + kJson.size()) continue;
    const std::string_view name = rest.substr(kModels.size(), rest.size() - kModels.size() - kJson.size());
    models.push_back(&m);
    if (models.size() > 1 && name != graph_name) continue;
    model = &m;
    archive.top_ = m.name.substr(0, start);
    archive.model_ = name;
  }
  if (models.empty()) return Refuse(archive.zip_);
  if (models.size() > 1 && archive.model_ != graph_name) {
    std::string names;
    for (const ZipMember* m : models) names += StrCat(names.empty() ? "" : ", ", m->name);
    return NotFound("the file holds several models (", names, ") and none is named '", graph_name, "'; give the name of one");
  }
  if (const ZipMember* order = archive.zip_.Find(StrCat(archive.top_, "byteorder")); order && Text(*order) != "little")
    return Unsupported("the file was written on a big-endian machine (byteorder '", Text(*order).substr(0, 16), "')");
  DT_ASSIGN_OR_RETURN(archive.program_, ParseExportedProgram(model->data, model->name));
  DT_RETURN_IF_ERROR(archive.ReadConfig("data/weights/", "_weights_config.json"));
  DT_RETURN_IF_ERROR(archive.ReadConfig("data/constants/", "_constants_config.json"));
  return archive;
}

Status Archive::ReadConfig(std::string_view folder, std::string_view config_suffix) {
  const ZipMember* member = zip_.Find(StrCat(top_, folder, model_, config_suffix));
  if (!member) return OkStatus();  // a model without any
  configs_.push_back(std::make_unique<JsonDocument>());
  DT_RETURN_IF_ERROR(ParseJson(member->data, member->name, configs_.back().get()));
  DT_ASSIGN_OR_RETURN(const JsonObject root, AsObject(configs_.back()->root, member->name));
  DT_ASSIGN_OR_RETURN(const JsonObject config, GetObject(root, "config", member->name));
  for (auto [name, element] : config) {
    const std::string where = StrCat("tensor '", name, "' of ", member->name);
    DT_ASSIGN_OR_RETURN(const JsonObject entry, AsObject(element, where));
    DT_ASSIGN_OR_RETURN(const bool pickled, GetBool(entry, "use_pickle", where, false));
    if (pickled)
      return Unsupported("tensor '", name,
                         "' is stored as a Python pickle, which only Python can read (a tensor subclass, or an object of a script or opaque type); "
                         "of a model quantized by torchao's quantize_, call torchao.utils.unwrap_tensor_subclass(model) before torch.export.export; "
                         "else replace it by a plain tensor, and save again with torch 2.10 or newer");
    StoredTensor tensor;
    DT_ASSIGN_OR_RETURN(const std::string_view file, GetString(entry, "path_name", where));
    DT_ASSIGN_OR_RETURN(const JsonElement meta, Get(entry, "tensor_meta", where));
    DT_ASSIGN_OR_RETURN(tensor.meta, ParseTensorMeta(meta, where));
    const ZipMember* data = zip_.Find(StrCat(top_, folder, file));
    if (!data) return Corrupt("the archive has no member '", top_, folder, file, "', which holds ", where);
    tensor.path = data->name;
    tensor.storage = data->data;
    tensor.crc32 = data->crc32;
    tensors_.emplace(name, std::move(tensor));
  }
  return OkStatus();
}

Result<const StoredTensor*> Archive::FindTensor(std::string_view name) const {
  auto it = tensors_.find(name);
  if (it == tensors_.end()) return Corrupt("the archive holds no data of '", name, "'");
  return &it->second;
}

}  // namespace dovetail::pt2
