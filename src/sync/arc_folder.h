// Folders of weight deltas as the package fireworks-delta-compression writes them (arc_v1: XOR through zlib, arc_v2: through zstd; each with the
// Adler-32 of the result), read with the weights before. arc_v3 holds Python pickles and is refused. Several threads may read.
//   if (is_arc_folder(folder)) { const ArcFolder arc(folder, {"base", base.list(), read_base});  bytes = arc.read(arc.list()[0]); }
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "sync/folder_tensors.h"

namespace lockstep {

// Whether a folder is one: its safetensors files hold only byte tensors, each with a checksum in the header.
bool is_arc_folder(const std::filesystem::path& folder);

// The weights that the deltas were made against.
struct ArcBase {
  std::string label;                 // for messages
  std::vector<TensorShape> tensors;  // sorted by name
  std::function<std::string(const TensorShape& tensor)> read;
};

class ArcFolder {
 public:
  // Error corrupt_file when a tensor is in one of the two alone.
  ArcFolder(const std::filesystem::path& folder, ArcBase base);
  const std::vector<TensorShape>& list() const { return base_.tensors; }  // types and shapes are the base's
  std::string read(const TensorShape& tensor) const;

 private:
  const ArcBase base_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t> where_;  // by tensor: index of its file
};

}  // namespace lockstep
