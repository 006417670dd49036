#include "cli/option_rows.h"

#include <algorithm>

#include "cli/toml.h"

namespace lockstep {

std::string option_name(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

Option& OptionRows::add(std::string name, std::string placeholder, std::string help) {
  if (find(name)) fail(ErrorCode::internal, "the option '{}' of {} is declared twice", name, command_);
  rows_.push_back(std::make_unique<Option>());
  Option& row = last();
  row.name = std::move(name);
  row.placeholder = std::move(placeholder);
  row.help = std::move(help);
  return row;
}

Option* OptionRows::find(std::string_view name) const {
  const auto it = std::find_if(rows_.begin(), rows_.end(), [&](const auto& row) { return row->name == name; });
  return it == rows_.end() ? nullptr : it->get();
}

Option* OptionRows::find_key(std::string_view key) const {
  std::string name = option_name(key);
  if (Option* row = find(name)) return row;
  std::replace(name.begin(), name.end(), '.', '-');
  return find(name);
}

bool OptionRows::given(std::string_view name) const {
  const Option* row = find(name);
  if (!row) fail(ErrorCode::internal, "{} has no option '{}'", command_, name);
  return row->given;
}

void OptionRows::set(std::string_view key, const std::string& value) {
  Option* row = find_key(key);
  if (!row || !row->file_key) {
    std::vector<std::string> keys;
    for (const auto& other : rows_)
      if (other->file_key) keys.push_back(toml_key(other->name));
    throw UsageError(fmt::format("unknown key '{}'{}; `lockstep {} --help` lists them", shortened(std::string(key)), did_you_mean(key, keys), command_));
  }
  row->assign(std::string(key), value);
}

void OptionRows::read_toml(std::string_view toml, const std::string& label) {
  for (const TomlSetting& setting : flatten_toml(toml, label)) {
    try {
      const Option* row = find_key(setting.key);
      if (setting.is_list && row && !row->is_list) throw UsageError(fmt::format("{} is a list, allowed is one value", setting.key));
      for (const std::string& value : setting.values) set(setting.key, value);
    } catch (UsageError& e) {
      throw UsageError(fmt::format("{}: {}", label, e.message()));
    }
  }
}

std::string OptionRows::value(std::string_view name) const {
  const Option* row = find(name);
  if (!row) fail(ErrorCode::internal, "{} has no option '{}'", command_, name);
  const std::string toml = row->toml ? row->toml() : std::string();
  return toml.empty() ? std::string() : flatten_toml("value = " + toml, row->name).at(0).values.at(0);
}

std::string OptionRows::resolved_toml() const {
  std::string text;
  for (const auto& row : rows_) {
    const std::string value = row->file_key ? row->toml() : std::string();
    if (value.empty()) continue;
    // Dotted keys at the root mean the same as tables and keep the order of the rows.
    text += fmt::format("{} = {}\n", toml_key(row->name), value);
  }
  return text;
}

}  // namespace lockstep
