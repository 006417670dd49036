#include "checkpoint/checkpoint_head.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/json_file.h"

namespace lockstep {

std::string checkpoint_name(std::int64_t step) { return fmt::format("step-{:06}", step); }

CheckpointHead read_checkpoint_head(const std::filesystem::path& folder) {
  CheckpointHead head;
  head.json = read_json_file(folder / "state.json");
  const Json& json = head.json;
  const auto wrong = [&](const char* key, const char* allowed) {
    fail(ErrorCode::corrupt_file, "'{}': '{}' is {}, allowed is {}", (folder / "state.json").string(), key,
         json.contains(key) ? json.at(key).dump().substr(0, 100) : "missing", allowed);
  };
  if (!json.contains("format") || (json.at("format") != kWholeFormat && json.at("format") != kSharesFormat)) wrong("format", "1 or 2");
  for (const char* key : {"profile_digest", "config_hash"})
    if (!json.contains(key) || !json.at(key).is_string()) wrong(key, "a string");
  if (!json.contains("step") || !json.at("step").is_number_integer() || checkpoint_name(json.at("step").get<std::int64_t>()) != folder.filename())
    wrong("step", "the number in the folder's name");
  if (!json.contains("position") || !json.at("position").is_object()) wrong("position", "an object");
  head.format = json.at("format").get<int>();
  if (!head.in_shares() && (!json.contains("state_sha256") || !json.at("state_sha256").is_string())) wrong("state_sha256", "a string");
  if (head.in_shares() && (!json.contains("shares") || !json.at("shares").is_array())) wrong("shares", "an array");
  head.step = json.at("step").get<std::int64_t>();
  head.profile_digest = json.at("profile_digest").get<std::string>();
  head.config_hash = json.at("config_hash").get<std::string>();
  head.position = json.at("position");
  return head;
}

void write_checkpoint_head(const std::filesystem::path& folder, const CheckpointHead& head, const Json& more) {
  Json json = {{"format", head.format}, {"step", head.step}, {"profile_digest", head.profile_digest}, {"config_hash", head.config_hash}};
  for (const auto& [key, value] : more.items()) json[key] = value;
  json["position"] = head.position;
  write_file_atomic(folder / "state.json", json_text(json));
}

}  // namespace lockstep
