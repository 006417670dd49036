#include "sync/arc_folder.h"

#include <algorithm>

#include "base/error.h"
#include "sync/arc_delta.h"

namespace lockstep {
namespace fs = std::filesystem;

namespace {
std::vector<SafetensorsFile> arc_files(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().extension() == ".safetensors") paths.push_back(entry->path());
  std::sort(paths.begin(), paths.end());
  std::vector<SafetensorsFile> files;
  for (const fs::path& path : paths) files.push_back(SafetensorsFile::open(path));
  return files;
}
}  // namespace

bool is_arc_folder(const fs::path& folder) {
  std::size_t tensors = 0;
  for (const SafetensorsFile& file : arc_files(folder))
    for (const SafetensorsTensor& tensor : file.tensors()) {
      const auto checksum = file.metadata().find(tensor.name);
      if (tensor.type != SafetensorsType::u8 || tensor.shape.size() != 1 || checksum == file.metadata().end()) return false;
      ++tensors;
    }
  return tensors > 0;
}

ArcFolder::ArcFolder(const fs::path& folder, ArcBase base) : base_(std::move(base)), files_(arc_files(folder)) {
  const auto in_base = [&](const std::string& name) { return std::ranges::binary_search(base_.tensors, name, {}, &TensorShape::name); };
  for (std::size_t i = 0; i < files_.size(); ++i)
    for (const SafetensorsTensor& tensor : files_[i].tensors()) {
      if (!in_base(tensor.name))
        fail(ErrorCode::corrupt_file, "'{}' changes tensor {}, which {} has not", folder.string(), quoted_name(tensor.name), base_.label);
      where_[tensor.name] = i;
    }
  for (const TensorShape& tensor : base_.tensors)
    if (!where_.contains(tensor.name))
      fail(ErrorCode::corrupt_file, "'{}' has no tensor {}, which {} has", folder.string(), quoted_name(tensor.name), base_.label);
}

std::string ArcFolder::read(const TensorShape& tensor) const {
  const SafetensorsFile& file = files_[where_.at(tensor.name)];
  const SafetensorsTensor& stored = file.tensor(tensor.name);
  std::string payload(stored.end - stored.begin, '\0');
  if (!payload.empty()) file.read_bytes(stored, {reinterpret_cast<std::uint8_t*>(payload.data()), payload.size()});
  const std::string before = base_.read(tensor);
  return with_context(fmt::format("reading the delta of tensor {} in '{}'", quoted_name(tensor.name), file.label()),
                      [&] { return apply_arc(payload, before, file.metadata().at(tensor.name)); });
}

}  // namespace lockstep
