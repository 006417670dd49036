// Strict reading of one JSON object of a tokenizer.json: every key is read by name, and finish() refuses unread
// keys, because a silently ignored option gives wrong ids.
//   JsonObject object(json, "model"); const bool fuse = object.flag("fuse_unk", false); object.finish();
// Knows no tokenizer. Thread-safe to construct anywhere; one object belongs to one thread.
#pragma once
#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class JsonObject {
 public:
  // corrupt_file when `json` is not an object. `where` names it in errors: "pre_tokenizer.pretokenizers[1]".
  JsonObject(const nlohmann::json& json, std::string where);

  bool has(const char* key) const;  // present and not null
  // The value or null when absent; marks the key as read.
  const nlohmann::json& any(const char* key);
  bool flag(const char* key, std::optional<bool> otherwise = {});
  std::string text(const char* key);
  std::int64_t integer(const char* key, std::int64_t low, std::int64_t high);
  const nlohmann::json& array(const char* key);
  const nlohmann::json& object(const char* key);
  // The key must be absent, null, or equal to `only`; anything else is unsupported.
  void only(const char* key, const nlohmann::json& only);
  void finish() const;

  const std::string& where() const { return where_; }
  std::string path(std::string_view key) const { return where_.empty() ? std::string(key) : where_ + "." + std::string(key); }

 private:
  const nlohmann::json* json_;
  std::string where_;
  std::vector<std::string> read_;
};

// At most 60 bytes of a value for an error message.
std::string json_excerpt(const nlohmann::json& value);

}  // namespace lockstep
