// The words of a command line as settings of a command's options: --name VALUE, --name=VALUE, --flag, --no-flag, -- and arguments without a
// name. Nothing is assigned here.
//   const CommandLine line = read_command_line(arguments, rows, true);
// Any thread.
#pragma once
#include "cli/option_rows.h"

namespace lockstep {

struct CommandLine {
  struct Setting {
    std::string name, value;
    bool is_key;  // of --set
  };
  enum class Help { none, text, json };
  Help help = Help::none;  // asked for: what follows is not read
  std::vector<Setting> settings;
  std::vector<std::string> bare, files;  // arguments without a name; of --config
};

// Arguments behind the command's name. `config`: it has --config and --set. Throws UsageError.
CommandLine read_command_line(const std::vector<std::string>& arguments, const OptionRows& rows, bool config);
// The error for an argument without a name that no option takes.
UsageError unexpected_argument(const std::string& argument, const OptionRows& rows, bool config);

}  // namespace lockstep
