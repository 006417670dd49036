#include "sync/arc_folder.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>

#include "base/error.h"

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

std::string apply_arc(std::string_view payload, std::string_view base, const std::string& checksum) {
  constexpr std::string_view kZstd = "\x28\xb5\x2f\xfd";
  std::string bytes(base.size(), '\0');
  bool whole = false;
  if (payload.starts_with(kZstd)) {
    whole = ZSTD_decompress(bytes.data(), bytes.size(), payload.data(), payload.size()) == bytes.size();
  } else if (payload.size() >= 2 && (static_cast<std::uint8_t>(payload[0]) & 0x0f) == 8 &&
             (static_cast<std::uint8_t>(payload[0]) * 256 + static_cast<std::uint8_t>(payload[1])) % 31 == 0) {
    uLongf length = bytes.size();
    uLong used = payload.size();
    char none = 0;  // zlib wants a place for no bytes too
    whole = uncompress2(reinterpret_cast<Bytef*>(bytes.empty() ? &none : bytes.data()), &length, reinterpret_cast<const Bytef*>(payload.data()), &used) == Z_OK &&
            length == bytes.size() && used == payload.size();
  } else {
    fail(ErrorCode::unsupported, "the delta is neither zlib's (arc_v1) nor zstd's (arc_v2); arc_v3 is refused, since it carries Python pickles, which run code");
  }
  if (!whole) fail(ErrorCode::corrupt_file, "the delta does not decompress to the {} bytes that the base has", base.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(bytes[i] ^ base[i]);
  const std::string found = fmt::format("{}", adler32_z(1, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  if (found != checksum) fail(ErrorCode::corrupt_file, "the result has the Adler-32 {}, expected {}; the base is another, or the delta is damaged", found, checksum.substr(0, 20));
  return bytes;
}

ArcFolder::ArcFolder(const fs::path& folder, const fs::path& base) : base_(base), files_(arc_files(folder)) {
  for (std::size_t i = 0; i < files_.size(); ++i)
    for (const SafetensorsTensor& tensor : files_[i].tensors()) {
      if (!base_.find(tensor.name)) fail(ErrorCode::corrupt_file, "'{}' changes tensor {}, which '{}' has not", folder.string(), quoted_name(tensor.name), base.string());
      where_[tensor.name] = i;
    }
  for (const TensorShape& tensor : base_.list())
    if (!where_.contains(tensor.name)) fail(ErrorCode::corrupt_file, "'{}' has no tensor {}, which '{}' has", folder.string(), quoted_name(tensor.name), base.string());
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
