// One option of a command: its name, how its value is read and shown, and when it is refused.
//   table.text("channel", &channel, "NAME", "Channel to follow").required();
// Options are declared by an OptionTable (cli/options.h). Knows no command. One thread.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/usage_error.h"

namespace lockstep {

// Where an option's value goes: a variable, whose value is the default, or an optional, which has none.
template <class T>
class OptionVariable {
 public:
  OptionVariable(T* variable) : variable_(variable) {}
  OptionVariable(std::optional<T>* optional) : optional_(optional) {}
  void set(T value) const {
    if (variable_) *variable_ = std::move(value);
    else *optional_ = std::move(value);
  }
  const T* get() const { return variable_ ? variable_ : *optional_ ? &**optional_ : nullptr; }  // null: none yet
  bool has_default() const { return variable_ != nullptr; }

 private:
  T* variable_ = nullptr;
  std::optional<T>* optional_ = nullptr;
};

// Text of a user within an error: its first 60 bytes.
std::string shortened(const std::string& text);

struct Option {
  // These return the option, so that they can follow its declaration: table.text(...).required().
  Option& required();
  // The option is no key of a file and not in the resolved configuration (--json, --resume).
  Option& command_line_only();
  // On the command line the option may stand without a value, before another option or at the end: then it has this one.
  Option& or_alone(std::string value);
  // An argument without a name.
  Option& positional();

  // Reads `value`; `shown`: the option's name in a UsageError.
  void assign(const std::string& shown, const std::string& value);
  std::string spelled() const { return is_positional ? name : "--" + name; }

  // A rule of OptionTable::refused: the option has no effect if `is_so` after all settings are read; `where` says when that is.
  struct Idle {
    std::string where;
    std::function<bool()> is_so;
  };

  std::string name, placeholder, help;
  std::string alone;                             // or_alone(); empty: it needs a value
  std::function<void(const std::string&)> read;  // throws UsageError with what is allowed
  std::function<std::string()> toml;             // the value as TOML; "" when it has none
  std::string default_text, allowed, path;
  const std::string* written = nullptr;  // the value of an output
  std::string* model = nullptr;          // the value of a model folder
  std::vector<Idle> idle;                // none: never
  bool is_flag = false, is_list = false, is_required = false, is_positional = false, file_key = true;
  bool given = false, on_command_line = false;
};

}  // namespace lockstep
