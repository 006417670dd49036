// The options of a command as a table of rows: name, destination, allowed values, help. Parsing, --help, the keys of --config FILE.toml
// and --set, validation and the resolved configuration all come from these rows.
//   OptionTable table("generate", "Continues a prompt.", {"lockstep generate --model DIR --prompt TEXT"});
//   table.integer("max-tokens", &max_tokens, 0, 1 << 20, "N", "Tokens at most");
//   table.parse(arguments);
// A default is the variable's value when its row is declared. Every command has --log-level, applied when it is parsed (base/log.h).
// Names have dashes on the command line (--max-tokens) and dashes or underscores in files; a dot is a
// TOML table (--optimizer.learning-rate is learning_rate in [optimizer]), and a table's name may be the beginning of a name (loss in [mtp] is --mtp-loss).
// Later settings win: file, then --set and flags in order.
// Knows no command. One thread.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/output_path.h"

namespace lockstep {

// A fault of the command line or of a config key: exit code 2.
class UsageError : public Error {
 public:
  explicit UsageError(std::string message) : Error(ErrorCode::invalid_argument, std::move(message)) {}
};

// What `read` returns, where it reads the value of an option: an Error of it is a UsageError with the same message.
template <class Read>
auto as_usage(const Read& read) {
  try {
    return read();
  } catch (const Error& e) {
    throw UsageError(e.message());
  }
}

class OptionTable {
 public:
  OptionTable(std::string command, std::string summary, std::vector<std::string> examples);
  OptionTable(const OptionTable&) = delete;

  // Rows. `low` and `high` are inclusive; an optional has no default.
  void text(std::string name, std::string* value, std::string placeholder, std::string help);
  void text(std::string name, std::optional<std::string>* value, std::string placeholder, std::string help);
  void texts(std::string name, std::vector<std::string>* value, std::string placeholder, std::string help);  // may be repeated
  // Paths say what happens to what is behind them. One that is written is checked by parse(), before any work, and --overwrite
  // comes with it (base/output_path.h); who writes hands overwrite() on. A kept folder is one that a command goes on working in
  // (of runs, of a server's state): it is claimed by who opens it.
  void input(std::string name, std::string* value, std::string placeholder, std::string help);
  void input(std::string name, std::optional<std::string>* value, std::string placeholder, std::string help);
  void inputs(std::string name, std::vector<std::string>* value, std::string placeholder, std::string help);  // may be repeated
  // A model folder; one that is not here is looked for by its name among those that came along (cli/shipped.h), the default too.
  void model(std::string name, std::string* value, std::string help);
  void output_file(std::string name, std::string* value, std::string help);
  void output_folder(std::string name, std::string* value, std::string help);
  void kept_folder(std::string name, std::string* value, std::string help);
  Overwrite overwrite() const { return overwrite_if(overwrite_); }
  void choice(std::string name, std::string* value, std::vector<std::string> allowed, std::string help);
  void integer(std::string name, std::int64_t* value, std::int64_t low, std::int64_t high, std::string placeholder, std::string help);
  // Without a fixed default: `otherwise` describes the value used instead, as "3 with data that end".
  void integer(std::string name, std::optional<std::int64_t>* value, std::int64_t low, std::int64_t high, std::string placeholder, std::string help,
               std::string otherwise);
  void number(std::string name, std::optional<double>* value, double low, double high, std::string placeholder, std::string help, std::string otherwise);
  void seed(std::string name, std::uint64_t* value, std::string help);
  void seed(std::string name, std::optional<std::uint64_t>* value, std::string help);
  void integers(std::string name, std::optional<std::vector<std::int32_t>>* value, std::string placeholder, std::string help);  // 1,2,3
  void number(std::string name, double* value, double low, double high, std::string placeholder, std::string help);
  void flag(std::string name, bool* value, std::string help);  // --name, --no-name
  // An argument without a name; those that are required come first.
  void positional(std::string name, std::string* value, bool required, std::string help);
  // The same for a folder that is written, as output_folder; required.
  void positional_output_folder(std::string name, std::string* value, std::string help);
  // The row last declared must be given.
  void require();
  // The row last declared is no key of a file and no part of the resolved configuration (--json, --resume).
  void command_line_only();
  // The row last declared has no effect while `idle` is true, after all settings; `where` says when that is: "without --training". If it is set on
  // the command line, or in a file to another value than its default, it is refused. A row may have several such rules.
  // `names`: of those rows instead.
  void refused(const std::string& where, const std::function<bool()>& idle, const std::vector<std::string>& names = {});
  // `derive` runs when all settings are read, before the rules of refused(): an option whose value says what others are that were not given().
  void after_reading(std::function<void()> derive) { derive_.push_back(std::move(derive)); }
  // Adds --config and --set.
  void accept_config();

  // Arguments behind the command's name. False: --help was printed. Throws UsageError.
  bool parse(const std::vector<std::string>& arguments);
  // One key as --set does it. Throws UsageError.
  void set(std::string_view key, const std::string& value);
  void read_toml(std::string_view toml, const std::string& label);

  bool given(std::string_view name) const;
  std::string help() const;
  // The same as JSON, for programs: --help=json. {"command", "options": [{"name", "help", "default", "required", "path": what happens
  // to what is behind it: "reads", "writes file", "writes folder", "keeps folder"}]}
  std::string help_json() const;
  // Every row's value, a file that --config reads back to the same.
  std::string resolved_toml() const;

 private:
  struct Row {
    std::string name, placeholder, allowed, help;
    std::function<void(const std::string&)> assign;  // throws UsageError with what is allowed
    std::function<std::string()> toml;               // the value as TOML; "" when it has none
    std::string default_text, path;
    const std::string* written = nullptr;  // the value of an output
    std::string* model = nullptr;          // the value of a model folder
    struct Idle {
      std::string where;
      std::function<bool()> is_so;
    };
    std::vector<Idle> idle;  // none: never
    bool is_flag = false, is_list = false, on_command_line = false, required = false, file_key = true, given = false, positional = false;
  };
  Row& add(std::string name, std::string placeholder, std::string help);
  Row* find(std::string_view name);
  Row* find_key(std::string_view key);  // of a file
  void assign(Row& row, const std::string& shown, const std::string& value);
  void refuse_idle(const std::vector<std::string>& defaults) const;
  std::vector<std::string> names() const;

  std::string command_, summary_;
  std::vector<std::string> examples_;
  std::string log_level_ = "info";
  std::vector<std::unique_ptr<Row>> rows_;  // the first is --log-level
  std::vector<std::function<void()>> derive_;
  void add_output(std::string name, std::string* value, const char* placeholder, const char* path, std::string help);
  bool config_ = false, overwrite_ = false;
};

}  // namespace lockstep
