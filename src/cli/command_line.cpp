#include "cli/command_line.h"

#include <algorithm>

#include "cli/foreign_words.h"

namespace lockstep {
namespace {
std::vector<std::string> names_of(const OptionRows& rows, bool config) {
  std::vector<std::string> names;
  for (const auto& row : rows.all())
    if (!row->is_positional) names.push_back("--" + row->name);
  if (config) names.insert(names.end(), {"--config", "--set"});
  names.push_back("--help");
  return names;
}

bool is_bare(const std::string& argument) { return argument.size() < 2 || argument[0] != '-' || (argument[1] >= '0' && argument[1] <= '9'); }
}  // namespace

UsageError unexpected_argument(const std::string& argument, const OptionRows& rows, bool config) {
  return UsageError(fmt::format("unexpected argument '{}'{}; `lockstep {} --help` shows what is expected", shortened(argument),
                                did_you_mean("--" + argument, names_of(rows, config)), rows.command()));
}

CommandLine read_command_line(const std::vector<std::string>& arguments, const OptionRows& rows, bool config) {
  CommandLine line;
  bool only_bare = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (only_bare || is_bare(argument)) {
      line.bare.push_back(argument);
      continue;
    }
    if (argument == "--") {
      only_bare = true;
      continue;
    }
    if (argument == "--help=json" || argument == "-h" || argument == "--help") {
      line.help = argument == "--help=json" ? CommandLine::Help::json : CommandLine::Help::text;
      return line;
    }
    const std::size_t equals = argument.find('=');
    const std::string shown = argument.substr(0, equals);
    const std::string name = option_name(shown.substr(std::min<std::size_t>(shown.find_first_not_of('-'), shown.size())));
    const bool own = config && (shown == "--config" || shown == "--set");
    const Option* row = rows.find(name);
    const Option* positive = !row && name.starts_with("no-") ? rows.find(name.substr(3)) : nullptr;
    const bool negated = positive && positive->is_flag;
    if (negated) row = positive;
    if (!own && (!row || row->is_positional || !shown.starts_with("--"))) {
      const std::vector<std::string> names = names_of(rows, config);
      const std::string ours = own_option(name, names);
      throw UsageError(fmt::format("unknown option '{}'{}; `lockstep {} --help` lists them", shortened(shown), ours.empty() ? did_you_mean(shown, names) : ours,
                                   rows.command()));
    }
    std::string value = "true";
    if (equals != std::string::npos) value = argument.substr(equals + 1);
    else if (!own && !row->alone.empty() && (i + 1 == arguments.size() || !is_bare(arguments[i + 1]))) {
      value = row->alone;
    } else if (own || !row->is_flag) {
      if (i + 1 == arguments.size()) throw UsageError(fmt::format("{} needs a value", shown));
      value = arguments[++i];
    }
    if (negated) {
      if (equals != std::string::npos) throw UsageError(fmt::format("{} takes no value", shown));
      value = "false";
    }
    if (!own) line.settings.push_back({row->name, value, false});
    else if (shown == "--config") line.files.push_back(value);
    else if (const std::size_t at = value.find('='); at == std::string::npos || at == 0)
      throw UsageError(fmt::format("--set is '{}', allowed is KEY=VALUE", shortened(value)));
    else line.settings.push_back({value.substr(0, at), value.substr(at + 1), true});
  }
  return line;
}

}  // namespace lockstep
