// Parses the JSON header of a safetensors file, strictly and without recursion: only what the format knows, each name once.
//   const SafetensorsHeader header = parse_safetensors_header(text, "model.safetensors");
// Knows nothing of files; the reader checks offsets.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"

namespace lockstep {

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;  // in the order of the header; begin <= end, and end - begin fits type and shape
  std::map<std::string, std::string> metadata;
};

// Errors: corrupt_file, unsupported; both name `label`, the tensor and the value.
SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& label);

}  // namespace lockstep
