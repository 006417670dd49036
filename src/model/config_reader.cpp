#include "model/config_reader.h"

#include <algorithm>

#include "base/choice.h"
#include "base/error.h"
#include "model/config_key_log.h"

namespace lockstep {

namespace {
[[noreturn]] void wrong(const std::string& key, const Json& value, const std::string& allowed) {
  std::string got = value.dump();
  if (got.size() > 100) got = got.substr(0, 100) + "...";
  fail(ErrorCode::invalid_argument, "config.json: '{}' is {}, allowed is {}", key, got, allowed);
}
bool given(const Json& config, const std::string& key) { return config.contains(key) && !config.at(key).is_null(); }
[[noreturn]] void missing(const std::string& key) { fail(ErrorCode::invalid_argument, "config.json: '{}' is missing", key); }
}  // namespace

ConfigReader::ConfigReader(const Json& json) : json_(json) {
  if (!json.is_object()) fail(ErrorCode::invalid_argument, "config.json is not a JSON object");
}

bool ConfigReader::has(const std::string& key) const {
  if (ConfigKeyLog* log = ConfigKeyLog::of(json_)) log->read(key);
  return given(json_, key);
}

std::int64_t ConfigReader::integer(const std::string& key, std::int64_t low, std::int64_t high, std::optional<std::int64_t> fallback) const {
  if (!has(key)) {
    if (fallback) return *fallback;
    missing(key);
  }
  const Json& value = json_.at(key);
  const std::string allowed = fmt::format("an integer from {} to {}", low, high);
  if (!value.is_number_integer()) wrong(key, value, allowed);
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) wrong(key, value, allowed);
  const std::int64_t n = value.get<std::int64_t>();
  if (n < low || n > high) wrong(key, value, allowed);
  return n;
}

double ConfigReader::number(const std::string& key, double low, double high, std::optional<double> fallback) const {
  if (!has(key)) {
    if (fallback) return *fallback;
    missing(key);
  }
  const Json& value = json_.at(key);
  const std::string allowed = fmt::format("a number from {} to {}", low, high);
  if (!value.is_number()) wrong(key, value, allowed);
  const double x = value.get<double>();
  if (!(x >= low && x <= high)) wrong(key, value, allowed);
  return x;
}

bool ConfigReader::boolean(const std::string& key, bool fallback) const {
  if (!has(key)) return fallback;
  if (!json_.at(key).is_boolean()) wrong(key, json_.at(key), "true or false");
  return json_.at(key).get<bool>();
}

std::string ConfigReader::text(const std::string& key, std::optional<std::string> fallback) const {
  if (!has(key)) {
    if (fallback) return *fallback;
    missing(key);
  }
  if (!json_.at(key).is_string()) wrong(key, json_.at(key), "a string");
  return json_.at(key).get<std::string>();
}

std::vector<std::string> ConfigReader::texts(const std::string& key) const {
  std::vector<std::string> result;
  if (!has(key)) return result;
  const Json& value = json_.at(key);
  if (!value.is_array()) wrong(key, value, "a list of strings");
  for (const Json& item : value) {
    if (!item.is_string()) wrong(key, value, "a list of strings");
    result.push_back(item.get<std::string>());
  }
  return result;
}

std::vector<std::string> ConfigReader::layer_texts(const std::string& key, std::int64_t layers, const std::vector<std::string>& allowed) const {
  const std::vector<std::string> list = texts(key);
  if (list.empty()) return list;
  if (static_cast<std::int64_t>(list.size()) != layers)
    fail(ErrorCode::invalid_argument, "config.json: '{}' has {} entries, 'num_hidden_layers' is {}", key, list.size(), layers);
  for (const std::string& item : list)
    if (std::find(allowed.begin(), allowed.end(), item) == allowed.end())
      fail(ErrorCode::invalid_argument, "config.json: '{}' contains '{}', {}", key, item, allowed_are(item, allowed));
  return list;
}

std::vector<std::int64_t> ConfigReader::integers(const std::string& key) const {
  std::vector<std::int64_t> result;
  if (!has(key)) return result;
  const Json& value = json_.at(key);
  if (value.is_number_integer()) return {value.get<std::int64_t>()};
  if (!value.is_array()) wrong(key, value, "an integer or a list of integers");
  for (const Json& item : value) {
    if (!item.is_number_integer()) wrong(key, value, "an integer or a list of integers");
    result.push_back(item.get<std::int64_t>());
  }
  return result;
}

void ConfigReader::only(const std::string& key, const std::vector<Json>& allowed) const {
  if (ConfigKeyLog* log = ConfigKeyLog::of(json_)) log->allow(key, allowed);
  if (!given(json_, key)) return;
  for (const Json& value : allowed)
    if (json_.at(key) == value) return;
  std::string list;
  std::vector<std::string> words;
  for (const Json& value : allowed) {
    list += (list.empty() ? "" : " or ") + value.dump();
    if (value.is_string()) words.push_back(value.get<std::string>());
  }
  if (json_.at(key).is_string()) list += did_you_mean(json_.at(key).get<std::string>(), words);
  wrong(key, json_.at(key), list);
}

}  // namespace lockstep
