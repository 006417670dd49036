#include "text/message/argument_types.h"

#include "base/ascii.h"
#include "base/client_work.h"

namespace lockstep {

using nlohmann::ordered_json;

namespace {
constexpr int kMostSchemaDepth = 16;

void gather(const ordered_json& schema, std::set<std::string>& types, int depth) {
  if (!schema.is_object() || depth > kMostSchemaDepth) return;
  if (const auto type = schema.find("type"); type != schema.end()) {
    if (type->is_string()) types.insert(type->get<std::string>());
    if (type->is_array())
      for (const auto& one : *type)
        if (one.is_string()) types.insert(one.get<std::string>());
  }
  for (const char* name : {"anyOf", "oneOf", "allOf"})
    if (const auto parts = schema.find(name); parts != schema.end() && parts->is_array())
      for (const auto& part : *parts) gather(part, types, depth + 1);
  if (!types.empty()) return;
  // No type is named: that of the values allowed.
  if (const auto values = schema.find("enum"); values != schema.end() && values->is_array())
    for (const auto& value : *values) types.insert(value.is_string() ? "string" : value.is_null() ? "null" : value.is_boolean() ? "boolean" : "number");
}

const ordered_json* member(const ordered_json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

std::string quoted(std::string_view text) { return ordered_json(std::string(text)).dump(-1, ' ', false, ordered_json::error_handler_t::replace); }
}  // namespace

ArgumentTypes::ArgumentTypes(const ordered_json& tools) {
  if (!tools.is_array()) return;
  constexpr std::size_t kEntry = 160;  // of a map or a set, with its texts
  std::size_t bytes = 0;
  for (const ordered_json& tool : tools) {
    const ordered_json* function = member(tool, "function");
    if (!function) function = &tool;
    const ordered_json* name = member(*function, "name");
    if (!name || !name->is_string()) continue;
    auto& arguments = types_[name->get<std::string>()];
    const ordered_json* parameters = member(*function, "parameters");
    const ordered_json* properties = parameters ? member(*parameters, "properties") : nullptr;
    if (!properties || !properties->is_object()) continue;
    for (const auto& [argument, schema] : properties->items()) {
      std::set<std::string>& types = arguments[argument];
      gather(schema, types, 0);
      bytes += kEntry + argument.size();
      for (const std::string& type : types) bytes += kEntry + type.size();
    }
  }
  ClientWork::take(bytes);
  memory_ = ClientWork::hold(bytes);
}

const std::set<std::string>* ArgumentTypes::types_of(std::string_view tool, std::string_view argument) const {
  const auto known = types_.find(tool);
  if (known == types_.end()) return nullptr;
  const auto found = known->second.find(argument);
  return found == known->second.end() || found->second.empty() ? nullptr : &found->second;
}

bool ArgumentTypes::only_text(std::string_view tool, std::string_view argument) const {
  const std::set<std::string>* types = types_of(tool, argument);
  return types && types->count("string") && !types->count("null");
}

ArgumentTypes::Reading ArgumentTypes::reading(std::string_view tool, std::string_view argument) const {
  const std::set<std::string>* types = types_of(tool, argument);
  if (!types || !types->count("string")) return {};
  return {.text = true, .null = types->count("null") > 0, .text_alone = types->size() == 1};
}

std::string ArgumentTypes::value_json(std::string_view tool, std::string_view argument, std::string_view text) const {
  const std::set<std::string>* types = types_of(tool, argument);
  const std::string_view bare = trimmed(text);
  const auto allows = [&](const char* type) { return !types || types->count(type); };
  if (types) {
    std::string lower(bare.substr(0, 8));
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (allows("null") && (lower == "null" || lower == "none")) return "null";
    if (allows("string")) return quoted(text);
    if (allows("boolean") && bare.size() < 8 && (lower == "true" || lower == "false")) return lower;
  }
  // As it stands when it is JSON: numbers keep every digit.
  if (!bare.empty() && ordered_json::accept(bare)) return std::string(bare);
  return quoted(text);
}

}  // namespace lockstep
