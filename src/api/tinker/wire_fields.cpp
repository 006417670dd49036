#include "api/tinker/wire_fields.h"

#include <cmath>

#include "api/errors.h"
#include "api/harmless_fields.h"

namespace lockstep {
namespace {
const TrainingJson* field(const TrainingJson& json, const std::string& name) {
  const auto found = json.find(name);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}
}  // namespace

void fail_value(const std::string& name, const std::string& problem) { throw RequestError(ErrorCode::invalid_argument, name, name + " " + problem, 422); }

std::string text_field(const TrainingJson& json, const std::string& name, const std::string& standard) {
  const TrainingJson* value = field(json, name);
  if (!value) return standard;
  if (!value->is_string()) fail_value(name, fmt::format("is {}, allowed is a text", describe_json(*value)));
  return value->get<std::string>();
}
std::int64_t integer_field(const TrainingJson& json, const std::string& name, std::int64_t standard) {
  const auto value = json.find(name);
  if (value == json.end()) return standard;
  if (!value->is_number_integer() || (value->is_number_unsigned() && value->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)))
    fail_value(name, fmt::format("is {}, allowed is a whole number from -2^63 to 2^63 - 1", describe_json(*value)));
  return value->get<std::int64_t>();
}
void read_value(const TrainingJson& json, const std::string& name, const std::string& prefix, const ValueReader& read) {
  if (field(json, name)) read_number(json, name, prefix, read);
}
void read_number(const TrainingJson& json, const std::string& name, const std::string& prefix, const ValueReader& read) {
  const auto value = json.find(name);
  if (value == json.end()) return;
  try {
    read(*value, prefix + name);
  } catch (const RequestError& e) {
    throw RequestError(e.code(), e.param(), e.message(), 422);
  }
}
double number_field(const TrainingJson& json, const std::string& name, double standard) {
  const auto value = json.find(name);
  if (value == json.end()) return standard;
  if (!value->is_number() || !std::isfinite(value->get<double>())) fail_value(name, fmt::format("is {}, allowed is a finite number", describe_json(*value)));
  return value->get<double>();
}
std::optional<std::int64_t> optional_integer(const TrainingJson& json, const std::string& name) {
  return field(json, name) ? std::optional(integer_field(json, name, 0)) : std::nullopt;
}
std::optional<double> optional_number(const TrainingJson& json, const std::string& name) {
  return field(json, name) ? std::optional(number_field(json, name, 0)) : std::nullopt;
}
bool boolean_field(const TrainingJson& json, const std::string& name, bool standard) {
  const TrainingJson* value = field(json, name);
  if (!value) return standard;
  if (!value->is_boolean()) fail_value(name, fmt::format("is {}, allowed are true and false", describe_json(*value)));
  return value->get<bool>();
}
TrainingJson object_field(const TrainingJson& json, const std::string& name) {
  const TrainingJson* value = field(json, name);
  if (!value) return TrainingJson::object();
  if (!value->is_object()) fail_value(name, fmt::format("is {}, allowed is an object", describe_json(*value)));
  return *value;
}
TrainingJson list_field(const TrainingJson& json, const std::string& name) {
  const TrainingJson* value = field(json, name);
  if (!value) return {};
  if (!value->is_array()) fail_value(name, fmt::format("is {}, allowed is a list", describe_json(*value)));
  return *value;
}
std::string required_text(const TrainingJson& json, const std::string& name) {
  if (!field(json, name)) fail_value(name, "is missing");
  return text_field(json, name);
}
std::int64_t required_integer(const TrainingJson& json, const std::string& name) {
  if (!json.contains(name)) fail_value(name, "is missing");
  return integer_field(json, name, 0);
}

std::int64_t model_number(const TrainingJson& json) {
  const std::int64_t number = required_integer(json, "model_seq_id");
  if (number < 0) fail_value("model_seq_id", fmt::format("is {}, allowed is at least 0", number));
  return number;
}

bool is_given(const TrainingJson& json, const std::string& name) { return field(json, name) != nullptr; }

void check_text_chunk(const TrainingJson& chunk, const std::string& name) {
  for (const auto& [key, value] : chunk.items())
    if (key != "type" && key != "tokens" && !value.is_null())
      fail_value(fmt::format("{}.{}", name, shown(key)), "is given in a chunk of encoded_text, allowed are type and tokens");
}

std::vector<std::string> known_query(std::initializer_list<const char*> names, std::initializer_list<const char*> harmless) {
  std::vector<std::string> all(names.begin(), names.end());
  for (const char* name : harmless) {
    if (harmless_reason(name).empty()) fail(ErrorCode::internal, "the query parameter {} is on no list of harmless ones", name);
    all.emplace_back(name);
  }
  return all;
}

JsonFields known_fields(std::initializer_list<const char*> names, std::initializer_list<const char*> harmless) {
  JsonFields fields;
  fields.taken(names);
  for (const char* name : harmless) fields.harmless(name);
  return fields;
}

}  // namespace lockstep
