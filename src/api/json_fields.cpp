#include "api/json_fields.h"

#include <algorithm>

#include "api/harmless_fields.h"
#include "base/bounded_json.h"
#include "base/choice.h"

namespace lockstep {
void fail_field(const std::string& name, const std::string& problem, ErrorCode code) { throw RequestError(code, name, name + " " + problem); }

std::string describe_json(const Json& value) {
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_object()) return "an object";
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 40) text = text.substr(0, 40) + "...";
  return text;
}

std::int64_t json_integer(const Json& value, const std::string& name, std::int64_t low, std::int64_t high) {
  const bool fits = value.is_number_integer() && !(value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX));
  if (!fits || value.get<std::int64_t>() < low || value.get<std::int64_t>() > high)
    fail_field(name, fmt::format("is {}, allowed is an integer from {} to {}", describe_json(value), low, high));
  return value.get<std::int64_t>();
}

std::string json_text(const Json& value, const std::string& name) {
  if (!value.is_string()) fail_field(name, fmt::format("is {}, allowed is a string", describe_json(value)));
  return value.get<std::string>();
}

void require_object(const Json& value, const std::string& name) {
  if (!value.is_object()) fail_field(name, fmt::format("is {}, allowed is an object", describe_json(value)));
}

Json parse_object(std::string_view body) {
  Json json;
  try {
    json = read_json(body);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::invalid_argument) throw;  // the client has gone, or its memory is used up
    throw RequestError(e.code(), {}, "the body " + e.message());
  }
  if (!json.is_object()) throw RequestError(ErrorCode::invalid_argument, {}, fmt::format("the body is {}, allowed is a JSON object", describe_json(json)));
  return json;
}

Json json_in_text(std::string_view text, const std::string& name, const char* allowed) {
  try {
    return read_json(text);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::invalid_argument) throw;
    fail_field(name, e.message() + "; allowed is " + allowed);
  }
}

void JsonFields::integer(std::string name, std::int64_t* value, std::int64_t low, std::int64_t high) {
  custom(std::move(name), [=](const Json& json, const std::string& field) { *value = json_integer(json, field, low, high); });
}

void JsonFields::integer(std::string name, std::optional<std::int64_t>* value, std::int64_t low, std::int64_t high) {
  custom(std::move(name), [=](const Json& json, const std::string& field) { *value = json_integer(json, field, low, high); });
}

void JsonFields::number(std::string name, float* value, double low, double high) {
  custom(std::move(name), [=](const Json& json, const std::string& field) {
    if (!json.is_number() || !(json.get<double>() >= low && json.get<double>() <= high))
      fail_field(field, fmt::format("is {}, allowed is a number from {} to {}", describe_json(json), low, high));
    *value = json.get<float>();
  });
}

void JsonFields::boolean(std::string name, bool* value) {
  custom(std::move(name), [=](const Json& json, const std::string& field) {
    if (!json.is_boolean()) fail_field(field, fmt::format("is {}, allowed are true and false", describe_json(json)));
    *value = json.get<bool>();
  });
}

void JsonFields::boolean(std::string name, std::optional<bool>* value) {
  custom(std::move(name), [=](const Json& json, const std::string& field) {
    if (!json.is_boolean()) fail_field(field, fmt::format("is {}, allowed are true and false", describe_json(json)));
    *value = json.get<bool>();
  });
}

void JsonFields::text(std::string name, std::string* value) {
  custom(std::move(name), [=](const Json& json, const std::string& field) { *value = json_text(json, field); });
}

void JsonFields::choice(std::string name, std::string* value, std::vector<std::string> allowed) {
  custom(std::move(name), [value, allowed = std::move(allowed)](const Json& json, const std::string& field) {
    const std::string given = json.is_string() ? json.get<std::string>() : std::string();
    if (std::find(allowed.begin(), allowed.end(), given) == allowed.end())
      fail_field(field, fmt::format("is {}, {}", describe_json(json), allowed_are(given, allowed)));
    *value = given;
  });
}

void JsonFields::harmless(std::string name) {
  if (harmless_reason(name).empty()) fail(ErrorCode::internal, "the field {} is on no list of harmless ones", name);
  custom(std::move(name), [](const Json&, const std::string&) {});
}

void JsonFields::harmless(std::string name, std::vector<Json> values) {
  if (harmless_reason(name).empty()) fail(ErrorCode::internal, "the field {} is on no list of harmless ones", name);
  only(std::move(name), std::move(values));
}

void JsonFields::only(std::string name, std::vector<Json> harmless) {
  custom(std::move(name), [harmless = std::move(harmless)](const Json& json, const std::string& field) {
    for (const Json& value : harmless)
      if (json == value) return;
    std::string allowed;
    for (const Json& value : harmless) allowed += value.dump() + ", ";
    fail_field(field, fmt::format("is {}, which is not offered; allowed are {}null and leaving it out", describe_json(json), allowed), ErrorCode::unsupported);
  });
}

void JsonFields::custom(std::string name, Reader reader) { rows_.push_back({std::move(name), std::move(reader), false}); }

void JsonFields::taken(std::initializer_list<const char*> names) {
  for (const char* name : names) custom(name, [](const Json&, const std::string&) {});
}

void JsonFields::inside(std::string name, JsonFields inner) {
  custom(std::move(name), [inner = std::move(inner)](const Json& json, const std::string& field) {
    if (json.is_object()) inner.read(json, field + ".");
  });
}

void JsonFields::each(std::string name, JsonFields inner) {
  custom(std::move(name), [inner = std::move(inner)](const Json& json, const std::string& field) {
    if (!json.is_array()) return;
    for (std::size_t i = 0; i < json.size(); ++i)
      if (json[i].is_object()) inner.read(json[i], fmt::format("{}[{}].", field, i));
  });
}

void JsonFields::inside_all(std::string name, JsonFields inner) {
  custom(std::move(name), [inner = std::move(inner)](const Json& json, const std::string& field) {
    if (!json.is_object()) return;
    for (const auto& [key, value] : json.items())
      if (value.is_object()) inner.read(value, fmt::format("{}.{}.", field, shown(key)));
  });
}

void JsonFields::read(const Json& object, const std::string& prefix) const {
  for (const auto& item : object.items()) {
    const std::string& name = item.key();
    const Json& value = item.value();
    const auto row = std::find_if(rows_.begin(), rows_.end(), [&](const Row& r) { return r.name == name; });
    if (row == rows_.end()) {
      std::vector<std::string> names;
      for (const Row& r : rows_) names.push_back(r.name);
      const std::string shown = prefix + (name.size() > 60 ? name.substr(0, 60) + "..." : name);
      throw RequestError(ErrorCode::invalid_argument, shown, fmt::format("unknown field '{}'{}", shown, did_you_mean(name, names)));
    }
    if (!value.is_null() || row->reads_null) row->reader(value, prefix + name);
  }
}

}  // namespace lockstep
