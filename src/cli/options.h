// The options of a command as a table of rows: name, destination, allowed values, help. Parsing, --help, the keys of --config FILE.toml
// and --set, validation and the resolved configuration all come from these rows.
//   OptionTable table("generate", "Continues a prompt.", {"lockstep generate --model DIR --prompt TEXT"});
//   table.integer("max-tokens", &max_tokens, 0, 1 << 20, "N", "Tokens at most");
//   table.text("prompt", &prompt, "TEXT", "What is continued").required();
//   table.parse(arguments);
// A default is the variable's value when its row is declared; an optional has none (cli/option.h). Every command has --log-level, applied
// when it is parsed (base/log.h). How a row is found by name or key is cli/option_rows.h. Later settings win: file, then --set and flags in order.
// Knows no command. One thread.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/output_path.h"
#include "cli/option_help.h"

namespace lockstep {

class OptionTable {
 public:
  OptionTable(std::string command, std::string summary, std::vector<std::string> examples);
  OptionTable(const OptionTable&) = delete;

  // Rows. `low` and `high` are inclusive.
  Option& text(std::string name, OptionVariable<std::string> value, std::string placeholder, std::string help);
  Option& texts(std::string name, std::vector<std::string>* value, std::string placeholder, std::string help);  // may be repeated
  // Paths say what happens to what is behind them. One that is written is checked by parse(), before any work, and --overwrite
  // comes with it (base/output_path.h); who writes hands overwrite() on. A kept folder is one that a command goes on working in
  // (of runs, of a server's state): it is claimed by who opens it.
  Option& input(std::string name, OptionVariable<std::string> value, std::string placeholder, std::string help);
  Option& inputs(std::string name, std::vector<std::string>* value, std::string placeholder, std::string help);  // may be repeated
  // A model folder; one that is not here is looked for by its name among those that came along (cli/shipped.h), the default too.
  Option& model(std::string name, std::string* value, std::string help);
  Option& output_file(std::string name, std::string* value, std::string help);
  Option& output_folder(std::string name, std::string* value, std::string help);
  Option& kept_folder(std::string name, std::string* value, std::string help);
  Overwrite overwrite() const { return overwrite_if(overwrite_); }
  Option& choice(std::string name, std::string* value, std::vector<std::string> allowed, std::string help);
  // An optional's `otherwise` describes the value used instead, as "3 with data that end".
  Option& integer(std::string name, OptionVariable<std::int64_t> value, std::int64_t low, std::int64_t high, std::string placeholder, std::string help,
                  std::string otherwise = "");
  Option& number(std::string name, OptionVariable<double> value, double low, double high, std::string placeholder, std::string help,
                 std::string otherwise = "");
  Option& seed(std::string name, OptionVariable<std::uint64_t> value, std::string help);
  Option& integers(std::string name, std::optional<std::vector<std::int32_t>>* value, std::string placeholder, std::string help);  // 1,2,3
  Option& flag(std::string name, bool* value, std::string help);                                                                   // --name, --no-name
  // An argument without a name; those that are required come first. A folder that is written: output_folder(...).positional().required().
  Option& positional(std::string name, std::string* value, bool required, std::string help);
  // The row last declared has no effect while `idle` is true, after all settings; `where` says when that is: "without --training". If it is set on
  // the command line, or in a file to another value than its default, it is refused. A row may have several such rules.
  // `names`: of those rows instead.
  void refused(const std::string& where, const std::function<bool()>& idle, const std::vector<std::string>& names = {});
  // `derive` runs when all settings are read, before the rules of refused(): an option whose value says what others are that were not given().
  void after_reading(std::function<void()> derive) { derive_.push_back(std::move(derive)); }
  // Adds --config and --set.
  void accept_config() { about_.config = true; }

  // Arguments behind the command's name. False: --help was printed, or a TableReading lives. Throws UsageError.
  bool parse(const std::vector<std::string>& arguments);
  bool given(std::string_view name) const { return rows_.given(name); }
  OptionRows& rows() { return rows_; }
  const OptionRows& rows() const { return rows_; }

 private:
  Option& output(std::string name, std::string* value, const char* placeholder, const char* path, std::string help);

  CommandAbout about_;
  std::string log_level_ = "info";
  OptionRows rows_;  // the first is --log-level
  std::vector<std::function<void()>> derive_;
  bool overwrite_ = false;
};

// While one lives, the table that this thread parses next is handed to it when all is read and checked, and parse() returns false, as after --help: so a
// command line of another command is read by its own table, and nothing is done.
//   TableReading reading([&](const OptionTable& table) { name = table.rows().value("name"); }); train_sft(arguments);
class TableReading {
 public:
  explicit TableReading(std::function<void(const OptionTable&)> read);
  ~TableReading();
  TableReading(const TableReading&) = delete;
  TableReading& operator=(const TableReading&) = delete;
};

}  // namespace lockstep
