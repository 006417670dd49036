#include "checkpoint/json_file.h"

#include "base/error.h"
#include "base/file.h"
#include "base/hub_name.h"

namespace lockstep {

namespace {
template <class J>
J read_object(const std::filesystem::path& path, std::size_t most_bytes, std::size_t most_keys) {
  refuse_hub_name(path.parent_path().string());
  const std::string text = read_file(path, most_bytes);
  std::size_t keys = 0;
  J json;
  try {
    // Documents are copied and written by recursion: depth is bounded here.
    json = J::parse(text, [&](int depth, typename J::parse_event_t event, J&) {
      if (depth > 64) fail(ErrorCode::corrupt_file, "'{}' is nested more than 64 levels deep", path.string());
      if (event == J::parse_event_t::key && ++keys > most_keys)
        fail(ErrorCode::corrupt_file, "'{}' has more than {} keys", path.string(), most_keys);
      return true;
    });
  } catch (const nlohmann::json::parse_error& e) {
    fail(ErrorCode::corrupt_file, "'{}' is not valid JSON at byte {} of {}", path.string(), e.byte, text.size());
  } catch (const nlohmann::json::exception&) {
    fail(ErrorCode::corrupt_file, "'{}' holds a number that is out of range", path.string());
  }
  if (!json.is_object())
    fail(ErrorCode::corrupt_file, "'{}' is a JSON {}, allowed is an object", path.string(), json.type_name());
  return json;
}
}  // namespace

Json read_json_file(const std::filesystem::path& path, std::size_t most_bytes) {
  return read_object<Json>(path, most_bytes, 20'000);
}

nlohmann::json read_large_json_file(const std::filesystem::path& path, std::size_t most_bytes) {
  return read_object<nlohmann::json>(path, most_bytes, SIZE_MAX);
}

std::string json_text(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace lockstep
