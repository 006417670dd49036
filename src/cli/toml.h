// TOML as flat settings, for option_rows.h: tables become dotted keys, values become the text that a flag would carry.
// Any thread.
//   for (const TomlSetting& s : flatten_toml(text, "run.toml")) rows.set(s.key, s.values[0]);
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct TomlSetting {
  std::string key;                  // "optimizer.learning_rate"
  std::vector<std::string> values;  // one, or those of a list
  bool is_list = false;
};

// The settings of a file in the order of keys. Throws UsageError with `label`, line and column for a text that is no TOML, and with the key for
// a date or a list of lists.
std::vector<TomlSetting> flatten_toml(std::string_view toml, const std::string& label);

// For writing: "optimizer.learning_rate" of "optimizer.learning-rate"; a quoted string; the shortest text of the same double.
std::string toml_key(std::string_view option_name);
std::string toml_text(std::string_view text);
std::string toml_number(double value);

}  // namespace lockstep
