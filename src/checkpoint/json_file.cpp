#include "checkpoint/json_file.h"

#include "base/error.h"
#include "base/file.h"
#include "base/hub_name.h"

namespace lockstep {

namespace {
template <class J>
J parse_object(const std::string& text, const std::string& place, std::size_t most_keys) {
  std::size_t keys = 0;
  J json;
  try {
    // Documents are copied and written by recursion: depth is bounded here.
    json = J::parse(text, [&](int depth, typename J::parse_event_t event, J&) {
      if (depth > 64) fail(ErrorCode::corrupt_file, "'{}' is nested more than 64 levels deep", place);
      if (event == J::parse_event_t::key && ++keys > most_keys) fail(ErrorCode::corrupt_file, "'{}' has more than {} keys", place, most_keys);
      return true;
    });
  } catch (const nlohmann::json::parse_error& e) {
    fail(ErrorCode::corrupt_file, "'{}' is not valid JSON at byte {} of {}", place, e.byte, text.size());
  } catch (const nlohmann::json::exception&) {
    fail(ErrorCode::corrupt_file, "'{}' holds a number that is out of range", place);
  }
  if (!json.is_object()) fail(ErrorCode::corrupt_file, "'{}' is a JSON {}, allowed is an object", place, json.type_name());
  return json;
}

template <class J>
J read_object(const std::filesystem::path& path, std::size_t most_bytes, std::size_t most_keys) {
  refuse_hub_name(path.parent_path().string());
  return parse_object<J>(read_file(path, most_bytes), path.string(), most_keys);
}

constexpr std::size_t kMostKeys = 20'000;
}  // namespace

Json read_json_file(const std::filesystem::path& path, std::size_t most_bytes) { return read_object<Json>(path, most_bytes, kMostKeys); }

Json read_json_file(const FolderFiles& files, const std::string& name, std::size_t most_bytes) {
  return parse_object<Json>(files.read(name, most_bytes), files.place(name), kMostKeys);
}

nlohmann::json read_large_json_file(const std::filesystem::path& path, std::size_t most_bytes) {
  return read_object<nlohmann::json>(path, most_bytes, SIZE_MAX);
}

std::string json_text(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace lockstep
