#include "cli/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/log.h"
#include "cli/foreign_words.h"
#include "cli/shipped.h"
#include "cli/toml.h"

namespace lockstep {
namespace {
template <class T>
T parse_number(const std::string& text, const std::string& allowed) {
  T value{};
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) throw UsageError(allowed);
  return value;
}

std::string canonical(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

std::string shown_value(const std::string& text) { return text.size() > 60 ? text.substr(0, 60) + "..." : text; }

// Lines of at most `width` characters, cut at blanks, those after the first behind `indent` blanks.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t width) {
  std::string result;
  std::size_t column = indent;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::size_t length = end - at;
    if (column > indent && column + 1 + length > width) {
      result += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      result += ' ';
      ++column;
    }
    result += text.substr(at, length);
    column += length;
    at = end + 1;
  }
  return result;
}
}  // namespace

OptionTable::OptionTable(std::string command, std::string summary, std::vector<std::string> examples)
    : command_(std::move(command)), summary_(std::move(summary)), examples_(std::move(examples)) {
  choice("log-level", &log_level_, {"debug", "info", "warning", "error", "off"}, "The least line that the log writes to stderr");
  command_line_only();
}

OptionTable::Row& OptionTable::add(std::string name, std::string placeholder, std::string help) {
  if (find(name)) fail(ErrorCode::internal, "the option '{}' of {} is declared twice", name, command_);
  rows_.push_back(std::make_unique<Row>());
  Row& row = *rows_.back();
  row.name = std::move(name);
  row.placeholder = std::move(placeholder);
  row.help = std::move(help);
  return row;
}

void OptionTable::text(std::string name, std::string* value, std::string placeholder, std::string help) {
  Row& row = add(std::move(name), std::move(placeholder), std::move(help));
  row.default_text = *value;
  row.assign = [value](const std::string& text) { *value = text; };
  row.toml = [value] { return toml_text(*value); };
}

void OptionTable::text(std::string name, std::optional<std::string>* value, std::string placeholder, std::string help) {
  Row& row = add(std::move(name), std::move(placeholder), std::move(help));
  row.assign = [value](const std::string& text) { *value = text; };
  row.toml = [value] { return *value ? toml_text(**value) : std::string(); };
}

void OptionTable::texts(std::string name, std::vector<std::string>* value, std::string placeholder, std::string help) {
  Row& row = add(std::move(name), std::move(placeholder), std::move(help) + " (may be repeated)");
  row.is_list = true;
  row.assign = [value](const std::string& text) { value->push_back(text); };
  row.toml = [value] {
    std::vector<std::string> parts;
    for (const std::string& text : *value) parts.push_back(toml_text(text));
    return fmt::format("[{}]", fmt::join(parts, ", "));
  };
}

void OptionTable::input(std::string name, std::string* value, std::string placeholder, std::string help) {
  text(std::move(name), value, std::move(placeholder), std::move(help));
  rows_.back()->path = "reads";
}

void OptionTable::input(std::string name, std::optional<std::string>* value, std::string placeholder, std::string help) {
  text(std::move(name), value, std::move(placeholder), std::move(help));
  rows_.back()->path = "reads";
}

void OptionTable::inputs(std::string name, std::vector<std::string>* value, std::string placeholder, std::string help) {
  texts(std::move(name), value, std::move(placeholder), std::move(help));
  rows_.back()->path = "reads";
}

void OptionTable::model(std::string name, std::string* value, std::string help) {
  input(std::move(name), value, "DIR", std::move(help));
  rows_.back()->model = value;
}

// --overwrite stands before the first of them, so that the row last declared is the output's own.
void OptionTable::add_output(std::string name, std::string* value, const char* placeholder, const char* path, std::string help) {
  if (!find("overwrite")) {
    flag("overwrite", &overwrite_, "Write also over files that are no earlier output: in a folder those of the names that are written, others stay");
    command_line_only();
  }
  text(std::move(name), value, placeholder, std::move(help));
  rows_.back()->path = path;
  rows_.back()->written = value;
}

void OptionTable::output_file(std::string name, std::string* value, std::string help) {
  add_output(std::move(name), value, "FILE", "writes file", std::move(help));
}

void OptionTable::output_folder(std::string name, std::string* value, std::string help) {
  add_output(std::move(name), value, "DIR", "writes folder", std::move(help));
}

void OptionTable::kept_folder(std::string name, std::string* value, std::string help) {
  text(std::move(name), value, "DIR", std::move(help));
  rows_.back()->path = "keeps folder";
}

void OptionTable::choice(std::string name, std::string* value, std::vector<std::string> allowed, std::string help) {
  Row& row = add(std::move(name), "NAME", std::move(help));
  row.default_text = *value;
  row.allowed = fmt::format("{}", fmt::join(allowed, ", "));
  row.assign = [value, allowed = std::move(allowed)](const std::string& text) {
    if (std::find(allowed.begin(), allowed.end(), text) == allowed.end())
      throw UsageError(fmt::format("allowed are {}{}", fmt::join(allowed, ", "), did_you_mean(text, allowed)));
    *value = text;
  };
  row.toml = [value] { return toml_text(*value); };
}

void OptionTable::integer(std::string name, std::int64_t* value, std::int64_t low, std::int64_t high, std::string placeholder, std::string help) {
  Row& row = add(std::move(name), std::move(placeholder), std::move(help));
  row.default_text = fmt::format("{}", *value);
  row.allowed = fmt::format("{} to {}", low, high);
  row.assign = [value, low, high](const std::string& text) {
    const std::string allowed = fmt::format("allowed is an integer from {} to {}", low, high);
    const auto number = parse_number<std::int64_t>(text, allowed);
    if (number < low || number > high) throw UsageError(allowed);
    *value = number;
  };
  row.toml = [value] { return fmt::format("{}", *value); };
}

void OptionTable::integer(std::string name, std::optional<std::int64_t>* value, std::int64_t low, std::int64_t high, std::string placeholder, std::string help,
                          std::string otherwise) {
  Row& row = add(std::move(name), std::move(placeholder), std::move(help));
  row.default_text = std::move(otherwise);
  row.allowed = fmt::format("{} to {}", low, high);
  row.assign = [value, low, high](const std::string& text) {
    const std::string allowed = fmt::format("allowed is an integer from {} to {}", low, high);
    const auto number = parse_number<std::int64_t>(text, allowed);
    if (number < low || number > high) throw UsageError(allowed);
    *value = number;
  };
  row.toml = [value] { return *value ? fmt::format("{}", **value) : std::string(); };
}

void OptionTable::number(std::string name, std::optional<double>* value, double low, double high, std::string placeholder, std::string help,
                         std::string otherwise) {
  Row& row = add(std::move(name), std::move(placeholder), std::move(help));
  row.default_text = std::move(otherwise);
  row.allowed = fmt::format("{} to {}", low, high);
  row.assign = [value, low, high](const std::string& text) {
    const std::string allowed = fmt::format("allowed is a number from {} to {}", low, high);
    const auto number = parse_number<double>(text, allowed);
    if (!(number >= low && number <= high)) throw UsageError(allowed);
    *value = number;
  };
  row.toml = [value] { return *value ? toml_number(**value) : std::string(); };
}

namespace {
constexpr const char* kSeedAllowed = "allowed is an integer from 0 to 18446744073709551615";
// TOML's integers are signed: a seed above them is written as text.
std::string toml_seed(std::uint64_t value) { return value >> 63 ? fmt::format("\"{}\"", value) : fmt::format("{}", value); }
}  // namespace

void OptionTable::seed(std::string name, std::uint64_t* value, std::string help) {
  Row& row = add(std::move(name), "N", std::move(help));
  row.default_text = fmt::format("{}", *value);
  row.assign = [value](const std::string& text) { *value = parse_number<std::uint64_t>(text, kSeedAllowed); };
  row.toml = [value] { return toml_seed(*value); };
}

void OptionTable::seed(std::string name, std::optional<std::uint64_t>* value, std::string help) {
  Row& row = add(std::move(name), "N", std::move(help));
  row.assign = [value](const std::string& text) { *value = parse_number<std::uint64_t>(text, kSeedAllowed); };
  row.toml = [value] { return *value ? toml_seed(**value) : std::string(); };
}

void OptionTable::integers(std::string name, std::optional<std::vector<std::int32_t>>* value, std::string placeholder, std::string help) {
  Row& row = add(std::move(name), std::move(placeholder), std::move(help));
  row.is_list = true;
  row.assign = [value](const std::string& text) {
    const std::string allowed = "allowed are integers from 0 to 2147483647 with commas between, such as 1,2,3";
    if (!*value) value->emplace();
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t end = std::min(text.find(',', at), text.size());
      const auto number = parse_number<std::int32_t>(text.substr(at, end - at), allowed);
      if (number < 0) throw UsageError(allowed);
      (*value)->push_back(number);
      at = end + 1;
    }
  };
  row.toml = [value] { return *value ? fmt::format("[{}]", fmt::join(**value, ", ")) : std::string(); };
}

void OptionTable::number(std::string name, double* value, double low, double high, std::string placeholder, std::string help) {
  Row& row = add(std::move(name), std::move(placeholder), std::move(help));
  row.default_text = fmt::format("{}", *value);
  row.allowed = fmt::format("{} to {}", low, high);
  row.assign = [value, low, high](const std::string& text) {
    const std::string allowed = fmt::format("allowed is a number from {} to {}", low, high);
    const auto number = parse_number<double>(text, allowed);
    if (!(number >= low && number <= high)) throw UsageError(allowed);
    *value = number;
  };
  row.toml = [value] { return toml_number(*value); };
}

void OptionTable::flag(std::string name, bool* value, std::string help) {
  Row& row = add(std::move(name), "", std::move(help));
  row.is_flag = true;
  row.default_text = *value ? "yes" : "";
  row.assign = [value](const std::string& text) {
    if (text != "true" && text != "false") throw UsageError("allowed are true and false");
    *value = text == "true";
  };
  row.toml = [value] { return *value ? "true" : "false"; };
}

void OptionTable::positional(std::string name, std::string* value, bool required, std::string help) {
  Row& row = add(std::move(name), "", std::move(help));
  row.positional = true;
  row.required = required;
  row.file_key = false;
  row.assign = [value](const std::string& text) { *value = text; };
}

void OptionTable::positional_output_folder(std::string name, std::string* value, std::string help) {
  output_folder(std::move(name), value, std::move(help));
  Row& row = *rows_.back();
  row.positional = row.required = true;
  row.file_key = false;
  row.placeholder.clear();
}

void OptionTable::require() { rows_.back()->required = true; }
void OptionTable::command_line_only() { rows_.back()->file_key = false; }
void OptionTable::refused(const std::string& where, const std::function<bool()>& idle, const std::vector<std::string>& names) {
  const auto mark = [&](Row& row) { row.idle.push_back({where, idle}); };
  if (names.empty()) mark(*rows_.back());
  for (const std::string& name : names) mark(*find(name));
}
void OptionTable::accept_config() { config_ = true; }

OptionTable::Row* OptionTable::find(std::string_view name) {
  const auto it = std::find_if(rows_.begin(), rows_.end(), [&](const auto& row) { return row->name == name; });
  return it == rows_.end() ? nullptr : it->get();
}

OptionTable::Row* OptionTable::find_key(std::string_view key) {
  std::string name = canonical(key);
  if (Row* row = find(name)) return row;
  std::replace(name.begin(), name.end(), '.', '-');
  return find(name);
}

bool OptionTable::given(std::string_view name) const {
  const auto it = std::find_if(rows_.begin(), rows_.end(), [&](const auto& row) { return row->name == name; });
  if (it == rows_.end()) fail(ErrorCode::internal, "{} has no option '{}'", command_, name);
  return (*it)->given;
}

std::vector<std::string> OptionTable::names() const {
  std::vector<std::string> names;
  for (const auto& row : rows_)
    if (!row->positional) names.push_back("--" + row->name);
  if (config_) names.insert(names.end(), {"--config", "--set"});
  names.push_back("--help");
  return names;
}

void OptionTable::assign(Row& row, const std::string& shown, const std::string& value) {
  try {
    row.assign(value);
  } catch (const UsageError& allowed) {
    throw UsageError(fmt::format("{} is '{}', {}", shown, shown_value(value), allowed.message()));
  }
  row.given = true;
}

void OptionTable::set(std::string_view key, const std::string& value) {
  Row* row = find_key(key);
  if (!row || !row->file_key) {
    std::vector<std::string> keys;
    for (const auto& other : rows_)
      if (other->file_key) keys.push_back(toml_key(other->name));
    throw UsageError(fmt::format("unknown key '{}'{}; `lockstep {} --help` lists them", shown_value(std::string(key)), did_you_mean(key, keys), command_));
  }
  assign(*row, std::string(key), value);
}

void OptionTable::read_toml(std::string_view toml, const std::string& label) {
  for (const TomlSetting& setting : flatten_toml(toml, label)) {
    try {
      const Row* row = find_key(setting.key);
      if (setting.is_list && row && !row->is_list) throw UsageError(fmt::format("{} is a list, allowed is one value", setting.key));
      for (const std::string& value : setting.values) set(setting.key, value);
    } catch (UsageError& e) {
      throw UsageError(fmt::format("{}: {}", label, e.message()));
    }
  }
}

// A file may be one that says everything (resolved_toml), so there a default is no wish.
void OptionTable::refuse_idle(const std::vector<std::string>& defaults) const {
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = *rows_[i];
    if (!row.given || row.idle.empty() || !(row.on_command_line || row.toml() != defaults[i])) continue;
    for (const Row::Idle& idle : row.idle)
      if (idle.is_so()) throw UsageError(fmt::format("--{} does nothing {}; allowed is to leave it out", row.name, idle.where));
  }
}

bool OptionTable::parse(const std::vector<std::string>& arguments) {
  struct Setting {
    std::string name, value;
    bool is_key;  // of --set
  };
  std::vector<Setting> settings;
  std::vector<std::string> bare, files;
  bool only_bare = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (only_bare || argument.size() < 2 || argument[0] != '-' || (argument[1] >= '0' && argument[1] <= '9')) {
      bare.push_back(argument);
      continue;
    }
    if (argument == "--") {
      only_bare = true;
      continue;
    }
    if (argument == "--help=json") {
      std::fputs(help_json().c_str(), stdout);
      return false;
    }
    if (argument == "-h" || argument == "--help") {
      std::fputs(help().c_str(), stdout);
      return false;
    }
    const std::size_t equals = argument.find('=');
    const std::string shown = argument.substr(0, equals);
    const std::string name = canonical(shown.substr(std::min<std::size_t>(shown.find_first_not_of('-'), shown.size())));
    const bool own = config_ && (shown == "--config" || shown == "--set");
    const Row* row = find(name);
    const bool negated = !row && name.starts_with("no-") && find(name.substr(3)) && find(name.substr(3))->is_flag;
    if (negated) row = find(name.substr(3));
    if (!own && (!row || row->positional || !shown.starts_with("--"))) {
      const std::string ours = own_option(name, names());
      throw UsageError(fmt::format("unknown option '{}'{}; `lockstep {} --help` lists them", shown_value(shown),
                                   ours.empty() ? did_you_mean(shown, names()) : ours, command_));
    }
    std::string value = "true";
    if (equals != std::string::npos) value = argument.substr(equals + 1);
    else if (own || !row->is_flag) {
      if (i + 1 == arguments.size()) throw UsageError(fmt::format("{} needs a value", shown));
      value = arguments[++i];
    }
    if (negated) {
      if (equals != std::string::npos) throw UsageError(fmt::format("{} takes no value", shown));
      value = "false";
    }
    if (!own) settings.push_back({row->name, value, false});
    else if (shown == "--config") files.push_back(value);
    else if (const std::size_t at = value.find('='); at == std::string::npos || at == 0)
      throw UsageError(fmt::format("--set is '{}', allowed is KEY=VALUE", shown_value(value)));
    else settings.push_back({value.substr(0, at), value.substr(at + 1), true});
  }
  std::vector<std::string> defaults;
  for (const auto& row : rows_) defaults.push_back(row->idle.empty() ? std::string() : row->toml());
  for (const std::string& file : files) read_toml(read_file(shipped("recipes", file), 1 << 20), file);
  for (const Setting& s : settings) {
    if (s.is_key) set(s.name, s.value);
    else assign(*find(s.name), "--" + s.name, s.value);
    if (Row* row = find_key(s.name)) row->on_command_line = true;
  }
  std::size_t next = 0;
  for (const auto& row : rows_)
    if (row->positional && next < bare.size()) assign(*row, row->name, bare[next++]);
  if (next < bare.size()) {
    const std::string hint = did_you_mean("--" + bare[next], names());
    throw UsageError(fmt::format("unexpected argument '{}'{}; `lockstep {} --help` shows what is expected", shown_value(bare[next]), hint, command_));
  }
  for (const auto& row : rows_)
    if (row->required && !row->given)
      throw UsageError(fmt::format("{}{} is missing; `lockstep {} --help` shows an example", row->positional ? "" : "--", row->name, command_));
  for (const auto& row : rows_)
    if (row->model) *row->model = shipped("models", *row->model);
  set_log_level(parse_log_level(log_level_));
  for (const std::function<void()>& derive : derive_) derive();
  refuse_idle(defaults);
  for (const auto& row : rows_) {
    if (!row->written || row->written->empty()) continue;
    with_context(row->positional ? row->name : "--" + row->name, [&] {
      if (row->path == "writes folder") check_output_folder(*row->written, overwrite());
      else check_output_file(*row->written, overwrite());
    });
  }
  return true;
}

std::string OptionTable::help_json() const {
  nlohmann::ordered_json json{{"command", command_}, {"summary", summary_}, {"options", nlohmann::ordered_json::array()}};
  for (const auto& row : rows_) {
    nlohmann::ordered_json option{
        {"name", row->positional ? row->name : "--" + row->name}, {"value", row->placeholder}, {"help", row->help}, {"required", row->required}};
    if (!row->default_text.empty()) option["default"] = row->default_text;
    if (!row->allowed.empty()) option["allowed"] = row->allowed;
    if (!row->path.empty()) option["path"] = row->path;
    json["options"].push_back(std::move(option));
  }
  return json.dump() + "\n";
}

std::string OptionTable::help() const {
  std::string text;
  for (const std::string& example : examples_) text += "  " + example + "\n";
  text += "\n" + wrapped(summary_, 0, 100) + "\n\n";
  struct Line {
    std::string left, right;
  };
  std::vector<Line> lines;
  const auto line_of = [&](const std::unique_ptr<Row>& row) {
    std::vector<std::string> notes;
    if (row->required) notes.push_back("required");
    if (!row->default_text.empty()) notes.push_back("default " + row->default_text);
    if (!row->allowed.empty()) notes.push_back(row->allowed);
    for (const Row::Idle& idle : row->idle) notes.push_back("refused " + idle.where);
    const std::string left = row->positional ? row->name : "--" + row->name + (row->placeholder.empty() ? "" : " " + row->placeholder);
    lines.push_back({left, row->help + (notes.empty() ? "" : fmt::format(" ({})", fmt::join(notes, "; ")))});
  };
  std::for_each(rows_.begin() + 1, rows_.end(), line_of);
  if (config_) {
    lines.push_back(
        {"--config FILE", "Settings from a TOML file: the names above, dashes or underscores; one that came along is found by its name (countdown_rl.toml)"});
    lines.push_back({"--set KEY=VALUE", "One such setting (may be repeated)"});
  }
  line_of(rows_.front());
  lines.push_back({"--help", "This text"});
  std::size_t width = 0;
  for (const Line& line : lines) width = std::max(width, std::min<std::size_t>(line.left.size(), 28));
  for (const Line& line : lines) {
    text += "  " + line.left;
    text += line.left.size() > width ? "\n" + std::string(width + 4, ' ') : std::string(width + 2 - line.left.size(), ' ');
    text += wrapped(line.right, width + 4, 110) + "\n";
  }
  return text;
}

std::string OptionTable::resolved_toml() const {
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
