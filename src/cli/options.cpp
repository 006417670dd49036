#include "cli/options.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "base/choice.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/command_line.h"
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

// What a variable of a number holds, in `shown`'s form; "" when it has none.
template <class T, class Shown>
std::function<std::string()> toml_of(OptionVariable<T> value, const Shown& shown) {
  return [value, shown] { return value.get() ? shown(*value.get()) : std::string(); };
}

// A number from `low` to `high`; `kind` is "an integer" or "a number".
template <class T>
void take_range(Option& row, OptionVariable<T> value, T low, T high, const char* kind, std::string otherwise) {
  row.default_text = value.has_default() ? fmt::format("{}", *value.get()) : std::move(otherwise);
  row.allowed = fmt::format("{} to {}", low, high);
  row.read = [value, low, high, kind](const std::string& text) {
    const std::string allowed = fmt::format("allowed is {} from {} to {}", kind, low, high);
    const T number = parse_number<T>(text, allowed);
    if (!(number >= low && number <= high)) throw UsageError(allowed);
    value.set(number);
  };
}
}  // namespace

OptionTable::OptionTable(std::string command, std::string summary, std::vector<std::string> examples)
    : about_{std::move(summary), std::move(examples)}, rows_(std::move(command)) {
  choice("log-level", &log_level_, {"debug", "info", "warning", "error", "off"}, "The least line that the log writes to stderr").command_line_only();
}

Option& OptionTable::text(std::string name, OptionVariable<std::string> value, std::string placeholder, std::string help) {
  Option& row = rows_.add(std::move(name), std::move(placeholder), std::move(help));
  if (value.has_default()) row.default_text = *value.get();
  row.read = [value](const std::string& text) { value.set(text); };
  row.toml = toml_of(value, toml_text);
  return row;
}

Option& OptionTable::texts(std::string name, std::vector<std::string>* value, std::string placeholder, std::string help) {
  Option& row = rows_.add(std::move(name), std::move(placeholder), std::move(help) + " (may be repeated)");
  row.is_list = true;
  row.read = [value](const std::string& text) { value->push_back(text); };
  row.toml = [value] {
    std::vector<std::string> parts;
    for (const std::string& text : *value) parts.push_back(toml_text(text));
    return fmt::format("[{}]", fmt::join(parts, ", "));
  };
  return row;
}

Option& OptionTable::input(std::string name, OptionVariable<std::string> value, std::string placeholder, std::string help) {
  Option& row = text(std::move(name), value, std::move(placeholder), std::move(help));
  row.path = "reads";
  return row;
}

Option& OptionTable::inputs(std::string name, std::vector<std::string>* value, std::string placeholder, std::string help) {
  Option& row = texts(std::move(name), value, std::move(placeholder), std::move(help));
  row.path = "reads";
  return row;
}

Option& OptionTable::model(std::string name, std::string* value, std::string help) {
  Option& row = input(std::move(name), value, "DIR", std::move(help));
  row.model = value;
  return row;
}

// --overwrite stands before the first of them, so that the row last declared is the output's own.
Option& OptionTable::output(std::string name, std::string* value, const char* placeholder, const char* path, std::string help) {
  if (!rows_.find("overwrite"))
    flag("overwrite", &overwrite_, "Write also over files that are no earlier output: in a folder those of the names that are written, others stay")
        .command_line_only();
  Option& row = text(std::move(name), value, placeholder, std::move(help));
  row.path = path;
  row.written = value;
  return row;
}

Option& OptionTable::output_file(std::string name, std::string* value, std::string help) {
  return output(std::move(name), value, "FILE", "writes file", std::move(help));
}

Option& OptionTable::output_folder(std::string name, std::string* value, std::string help) {
  return output(std::move(name), value, "DIR", "writes folder", std::move(help));
}

Option& OptionTable::kept_folder(std::string name, std::string* value, std::string help) {
  Option& row = text(std::move(name), value, "DIR", std::move(help));
  row.path = "keeps folder";
  return row;
}

Option& OptionTable::choice(std::string name, std::string* value, std::vector<std::string> allowed, std::string help) {
  Option& row = rows_.add(std::move(name), "NAME", std::move(help));
  row.default_text = *value;
  row.allowed = fmt::format("{}", fmt::join(allowed, ", "));
  row.read = [value, allowed = std::move(allowed)](const std::string& text) {
    if (std::find(allowed.begin(), allowed.end(), text) == allowed.end()) throw UsageError(allowed_are(text, allowed));
    *value = text;
  };
  row.toml = [value] { return toml_text(*value); };
  return row;
}

Option& OptionTable::integer(std::string name, OptionVariable<std::int64_t> value, std::int64_t low, std::int64_t high, std::string placeholder,
                             std::string help, std::string otherwise) {
  Option& row = rows_.add(std::move(name), std::move(placeholder), std::move(help));
  take_range(row, value, low, high, "an integer", std::move(otherwise));
  row.toml = toml_of(value, [](std::int64_t number) { return fmt::format("{}", number); });
  return row;
}

Option& OptionTable::number(std::string name, OptionVariable<double> value, double low, double high, std::string placeholder, std::string help,
                            std::string otherwise) {
  Option& row = rows_.add(std::move(name), std::move(placeholder), std::move(help));
  take_range(row, value, low, high, "a number", std::move(otherwise));
  row.toml = toml_of(value, toml_number);
  return row;
}

Option& OptionTable::seed(std::string name, OptionVariable<std::uint64_t> value, std::string help) {
  Option& row = rows_.add(std::move(name), "N", std::move(help));
  if (value.has_default()) row.default_text = fmt::format("{}", *value.get());
  row.read = [value](const std::string& text) { value.set(parse_number<std::uint64_t>(text, "allowed is an integer from 0 to 18446744073709551615")); };
  // TOML's integers are signed: a seed above them is written as text.
  row.toml = toml_of(value, [](std::uint64_t seed) { return seed >> 63 ? fmt::format("\"{}\"", seed) : fmt::format("{}", seed); });
  return row;
}

Option& OptionTable::integers(std::string name, std::optional<std::vector<std::int32_t>>* value, std::string placeholder, std::string help) {
  Option& row = rows_.add(std::move(name), std::move(placeholder), std::move(help));
  row.is_list = true;
  row.read = [value](const std::string& text) {
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
  return row;
}

Option& OptionTable::flag(std::string name, bool* value, std::string help) {
  Option& row = rows_.add(std::move(name), "", std::move(help));
  row.is_flag = true;
  row.default_text = *value ? "yes" : "";
  row.read = [value](const std::string& text) {
    if (text != "true" && text != "false") throw UsageError("allowed are true and false");
    *value = text == "true";
  };
  row.toml = [value] { return *value ? "true" : "false"; };
  return row;
}

Option& OptionTable::positional(std::string name, std::string* value, bool required, std::string help) {
  Option& row = rows_.add(std::move(name), "", std::move(help)).positional();
  row.is_required = required;
  row.read = [value](const std::string& text) { *value = text; };
  return row;
}

void OptionTable::refused(const std::string& where, const std::function<bool()>& idle, const std::vector<std::string>& names) {
  if (names.empty()) rows_.last().idle.push_back({where, idle});
  for (const std::string& name : names) rows_.find(name)->idle.push_back({where, idle});
}

namespace {
// What an option with rules of refused() has as its default, as TOML.
std::vector<std::string> defaults_of(const OptionRows& rows) {
  std::vector<std::string> defaults;
  for (const auto& row : rows.all()) defaults.push_back(row->idle.empty() ? std::string() : row->toml());
  return defaults;
}

// A file may be one that says everything (resolved_toml), so there a default is no wish.
void refuse_idle(const OptionRows& rows, const std::vector<std::string>& defaults) {
  for (std::size_t i = 0; i < defaults.size(); ++i) {
    const Option& row = *rows.all()[i];
    if (!row.given || row.idle.empty() || !(row.on_command_line || row.toml() != defaults[i])) continue;
    for (const Option::Idle& idle : row.idle)
      if (idle.is_so()) throw UsageError(fmt::format("--{} does nothing {}; allowed is to leave it out", row.name, idle.where));
  }
}

void assign_all(const CommandLine& line, OptionRows& rows, bool config) {
  for (const std::string& file : line.files) rows.read_toml(read_file(shipped("recipes", file), 1 << 20), file);
  for (const CommandLine::Setting& s : line.settings) {
    if (s.is_key) rows.set(s.name, s.value);
    else rows.find(s.name)->assign("--" + s.name, s.value);
    if (Option* row = rows.find_key(s.name)) row->on_command_line = true;
  }
  std::size_t next = 0;
  for (const auto& row : rows.all())
    if (row->is_positional && next < line.bare.size()) row->assign(row->name, line.bare[next++]);
  if (next < line.bare.size()) throw unexpected_argument(line.bare[next], rows, config);
  for (const auto& row : rows.all())
    if (row->is_required && !row->given) throw UsageError(fmt::format("{} is missing; `lockstep {} --help` shows an example", row->spelled(), rows.command()));
}
}  // namespace

namespace {
thread_local std::function<void(const OptionTable&)> reader_of_tables;
}

TableReading::TableReading(std::function<void(const OptionTable&)> read) { reader_of_tables = std::move(read); }
TableReading::~TableReading() { reader_of_tables = nullptr; }

bool OptionTable::parse(const std::vector<std::string>& arguments) {
  const CommandLine line = read_command_line(arguments, rows_, about_.config);
  if (line.help != CommandLine::Help::none) {
    std::fputs((line.help == CommandLine::Help::json ? help_json(about_, rows_) : help_text(about_, rows_)).c_str(), stdout);
    return false;
  }
  const std::vector<std::string> defaults = defaults_of(rows_);
  assign_all(line, rows_, about_.config);
  for (const auto& row : rows_.all())
    if (row->model) *row->model = shipped("models", *row->model);
  set_log_level(parse_log_level(log_level_));
  for (const std::function<void()>& derive : derive_) derive();
  refuse_idle(rows_, defaults);
  for (const auto& row : rows_.all()) {
    if (!row->written || row->written->empty()) continue;
    with_context(row->spelled(), [&] {
      if (row->path == "writes folder") check_output_folder(*row->written, overwrite());
      else check_output_file(*row->written, overwrite());
    });
  }
  if (reader_of_tables) reader_of_tables(*this);
  return !reader_of_tables;
}

}  // namespace lockstep
