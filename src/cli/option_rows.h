// The options that a command has declared, in order: found by name, and by key of a --config file, from which they are read and to which they
// are written. Names have dashes on the command line (--max-tokens) and dashes or underscores in files; a dot is a TOML table
// (--optimizer.learning-rate is learning_rate in [optimizer]), and a table's name may be the beginning of a name (loss in [mtp] is --mtp-loss).
//   rows.read_toml(text, "run.toml");  // each key as --set does it
// Knows no command. One thread.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/option.h"

namespace lockstep {

// A name as it stands in a table: with dashes.
std::string option_name(std::string_view name);

class OptionRows {
 public:
  explicit OptionRows(std::string command) : command_(std::move(command)) {}

  // A new one, the last; its name must be new (internal).
  Option& add(std::string name, std::string placeholder, std::string help);
  Option& last() { return *rows_.back(); }
  Option* find(std::string_view name) const;     // null: there is none
  Option* find_key(std::string_view key) const;  // of a file
  bool given(std::string_view name) const;       // internal: there is none
  const std::string& command() const { return command_; }
  const std::vector<std::unique_ptr<Option>>& all() const { return rows_; }

  // One key of a file. Throws UsageError.
  void set(std::string_view key, const std::string& value);
  // A whole file; errors name it as `label`.
  void read_toml(std::string_view toml, const std::string& label);
  // Of any row, as text; "" where it has none. Error internal: there is no such row.
  std::string value(std::string_view name) const;
  // Every key's value, a file that read_toml reads back to the same.
  std::string resolved_toml() const;

 private:
  std::string command_;
  std::vector<std::unique_ptr<Option>> rows_;
};

}  // namespace lockstep
