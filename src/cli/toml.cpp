#include "cli/toml.h"

#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include <algorithm>

#include "cli/options.h"

namespace lockstep {
namespace {
std::string scalar_text(const toml::node& node, const std::string& key) {
  if (const auto* value = node.as_string()) return value->get();
  if (const auto* value = node.as_integer()) return fmt::format("{}", value->get());
  if (const auto* value = node.as_floating_point()) return fmt::format("{}", value->get());
  if (const auto* value = node.as_boolean()) return value->get() ? "true" : "false";
  throw UsageError(fmt::format("{} is a date, a time or a nested value, allowed are text, numbers, true, false and lists of those", key));
}

void flatten(const toml::table& table, const std::string& prefix, std::vector<TomlSetting>& settings) {
  for (const auto& [name, node] : table) {
    const std::string key = prefix + std::string(name.str());
    if (const toml::table* inner = node.as_table()) {
      flatten(*inner, key + ".", settings);
    } else if (const toml::array* list = node.as_array()) {
      TomlSetting setting{key, {}, true};
      for (const toml::node& element : *list) setting.values.push_back(scalar_text(element, key));
      settings.push_back(std::move(setting));
    } else {
      settings.push_back({key, {scalar_text(node, key)}, false});
    }
  }
}
}  // namespace

std::vector<TomlSetting> flatten_toml(std::string_view toml, const std::string& label) {
  std::vector<TomlSetting> settings;
  try {
    flatten(toml::parse(toml), "", settings);
  } catch (const UsageError& e) {
    throw UsageError(label + ": " + e.message());
  } catch (const toml::parse_error& e) {
    throw UsageError(fmt::format("{}:{}:{}: {}", label, e.source().begin.line, e.source().begin.column, e.description()));
  }
  return settings;
}

std::string toml_key(std::string_view option_name) {
  std::string key(option_name);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

std::string toml_text(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    else quoted += c;
  }
  return quoted + "\"";
}

std::string toml_number(double value) {
  const std::string text = fmt::format("{}", value);  // shortest that reads back the same; a float needs a point or an exponent
  return text.find_first_of(".einf") == std::string::npos ? text + ".0" : text;
}

}  // namespace lockstep
