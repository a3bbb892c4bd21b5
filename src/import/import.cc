#include "import/import.h"

#include "import/importer.h"
#include "ir/verifier.h"

namespace dovetail {
namespace {

Result<Module> Import(std::span<const std::byte> bytes, const std::string& file_name, std::string_view graph_name) {
  DT_ASSIGN_OR_RETURN(const pt2::Archive archive, pt2::Archive::Open(bytes, graph_name));
  Module module;
  module.source_file = file_name;
  module.form = Form::kCore;
  module.graphs.push_back(std::make_unique<Graph>(std::string(graph_name)));
  DT_RETURN_IF_ERROR(pt2::Importer(archive, module, *module.graphs[0]).Run());
  DT_RETURN_IF_ERROR(Verify(module));
  return module;
}

}  // namespace

Result<Module> ImportPt2Bytes(std::span<const std::byte> bytes, const std::string& file_name, std::string_view graph_name) {
  auto module = Import(bytes, file_name, graph_name);
  if (!module.ok()) return std::move(module).status().While(StrCat("importing '", file_name, "'"));
  return module;
}

Result<Module> ImportPt2(const std::string& path, std::string_view graph_name) {
  DT_ASSIGN_OR_RETURN(std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  DT_ASSIGN_OR_RETURN(Module module, ImportPt2Bytes(file->bytes(), path, graph_name));
  module.files.push_back(std::move(file));
  return module;
}

}  // namespace dovetail
