// What state.json of a training checkpoint (checkpoint/training_checkpoint.h) says of it, in either form: the state in one file, or in a file of each rank.
//   const CheckpointHead head = read_checkpoint_head(folder); if (head.in_shares()) ...
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "model/config_reader.h"

namespace lockstep {

inline constexpr int kWholeFormat = 1, kSharesFormat = 2;

struct CheckpointHead {
  int format = kWholeFormat;
  std::int64_t step = 0;
  std::string profile_digest, config_hash;
  Json position = Json::object();
  Json json = Json::object();  // all of the file
  bool in_shares() const { return format == kSharesFormat; }
};

// Errors: not_found, io, corrupt_file.
CheckpointHead read_checkpoint_head(const std::filesystem::path& folder);
// The file of these values, of `format`, with those of `more` before the position.
void write_checkpoint_head(const std::filesystem::path& folder, const CheckpointHead& head, const Json& more);
// "step-000123".
std::string checkpoint_name(std::int64_t step);

}  // namespace lockstep
