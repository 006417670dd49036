// --help and --help=json of a command.
//   std::fputs(help_text(about, rows).c_str(), stdout);
// Any thread.
#pragma once
#include "cli/option_rows.h"

namespace lockstep {

// The head of a command's help; the command's name is that of its rows.
struct CommandAbout {
  std::string summary;
  std::vector<std::string> examples;  // command lines, which the help begins with
  bool config = false;                // it has --config and --set
};

// The help as text, in lines of at most 110 characters. The first of `rows` (--log-level, which every command has) comes last.
std::string help_text(const CommandAbout& about, const OptionRows& rows);
// The same as JSON, for programs. {"command", "options": [{"name", "help", "default", "required", "path": what happens
// to what is behind it: "reads", "writes file", "writes folder", "keeps folder"}]}
std::string help_json(const CommandAbout& about, const OptionRows& rows);

}  // namespace lockstep
