#include "text/tokenizer/json_object.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {

using nlohmann::json;

std::string json_excerpt(const json& value) {
  std::string text = value.is_structured() ? std::string(value.type_name()) : value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

JsonObject::JsonObject(const json& value, std::string where) : json_(&value), where_(std::move(where)) {
  if (!value.is_object()) {
    fail(ErrorCode::corrupt_file, "{} is {}, allowed is an object", where_.empty() ? "the file" : where_, json_excerpt(value));
  }
}

bool JsonObject::has(const char* key) const {
  const auto it = json_->find(key);
  return it != json_->end() && !it->is_null();
}

const json& JsonObject::any(const char* key) {
  static const json null;
  read_.emplace_back(key);
  const auto it = json_->find(key);
  return it == json_->end() ? null : *it;
}

bool JsonObject::flag(const char* key, std::optional<bool> otherwise) {
  const json& value = any(key);
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_null() && otherwise) return *otherwise;
  fail(ErrorCode::corrupt_file, "{} is {}, allowed is true or false", path(key), json_excerpt(value));
}

std::string JsonObject::text(const char* key) {
  const json& value = any(key);
  if (!value.is_string()) fail(ErrorCode::corrupt_file, "{} is {}, allowed is a string", path(key), json_excerpt(value));
  return value.get<std::string>();
}

std::int64_t JsonObject::integer(const char* key, std::int64_t low, std::int64_t high) {
  const json& value = any(key);
  const bool fits = value.is_number_integer() && (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX);
  const std::int64_t got = fits ? value.get<std::int64_t>() : 0;
  if (!fits || got < low || got > high) {
    fail(ErrorCode::corrupt_file, "{} is {}, allowed is {} to {}", path(key), json_excerpt(value), low, high);
  }
  return got;
}

const json& JsonObject::array(const char* key) {
  const json& value = any(key);
  if (!value.is_array()) fail(ErrorCode::corrupt_file, "{} is {}, allowed is an array", path(key), json_excerpt(value));
  return value;
}

const json& JsonObject::object(const char* key) {
  const json& value = any(key);
  if (!value.is_object()) fail(ErrorCode::corrupt_file, "{} is {}, allowed is an object", path(key), json_excerpt(value));
  return value;
}

void JsonObject::only(const char* key, const json& allowed) {
  const json& value = any(key);
  if (!value.is_null() && value != allowed) {
    fail(ErrorCode::unsupported, "{} is {}, supported is {}", path(key), json_excerpt(value), allowed.is_null() ? "null" : "null or " + json_excerpt(allowed));
  }
}

void JsonObject::finish() const {
  for (const auto& item : json_->items()) {
    if (std::find(read_.begin(), read_.end(), item.key()) == read_.end()) {
      fail(ErrorCode::unsupported, "{} is a key that is not known here{}", path(item.key()), did_you_mean(item.key(), read_));
    }
  }
}

}  // namespace lockstep
