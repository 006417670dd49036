// Reads a config.json with one clear error per fault: the key, the value, what is allowed. Knows no family.
//   ConfigReader reader(json); int64_t h = reader.integer("hidden_size", 1, 1 << 20);
// Keys that nobody reads stay in the document and are written back on export; those that would change the arithmetic are refused (config_keys.h).
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

using Json = nlohmann::ordered_json;

class ConfigReader {
 public:
  explicit ConfigReader(const Json& json);
  bool has(const std::string& key) const;  // present and not null
  std::int64_t integer(const std::string& key, std::int64_t low, std::int64_t high, std::optional<std::int64_t> fallback = {}) const;
  double number(const std::string& key, double low, double high, std::optional<double> fallback = {}) const;
  bool boolean(const std::string& key, bool fallback) const;
  std::string text(const std::string& key, std::optional<std::string> fallback = {}) const;
  std::vector<std::string> texts(const std::string& key) const;
  // A list with one of `allowed` per layer; absent: empty.
  std::vector<std::string> layer_texts(const std::string& key, std::int64_t layers, const std::vector<std::string>& allowed) const;
  std::vector<std::int64_t> integers(const std::string& key) const;  // an integer or a list of them; absent: empty
  // Refuses any value of `key` but those listed; absent is allowed.
  void only(const std::string& key, const std::vector<Json>& allowed) const;
  const Json& raw() const { return json_; }

 private:
  const Json& json_;
};

}  // namespace lockstep
