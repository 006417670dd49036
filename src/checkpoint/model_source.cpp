#include "checkpoint/model_source.h"

#include "base/hub_name.h"
#include "checkpoint/gguf_model.h"

namespace lockstep {

std::unique_ptr<const FolderFiles> open_folder_files(const std::filesystem::path& model) {
  refuse_hub_name(model.string());
  if (is_gguf_file(model)) return std::make_unique<GgufFolder>(GgufFile::open(model));
  return std::make_unique<FolderOnDisk>(model);
}

}  // namespace lockstep
