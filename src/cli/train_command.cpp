// `lockstep train sft|rl`.
#include "cli/train_command.h"

#include <cstdio>

#include "cli/toml.h"
#include "runs/training_state.h"

namespace lockstep {

nlohmann::ordered_json resolved_json(const OptionTable& table) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const TomlSetting& setting : flatten_toml(table.resolved_toml(), "the resolved configuration"))
    json[setting.key] = setting.is_list ? nlohmann::ordered_json(setting.values) : nlohmann::ordered_json(setting.values.at(0));
  return json;
}

std::string fork_of(const std::string& runs, std::string& name, const std::string& fork, bool resume) {
  if (fork.empty()) return {};
  if (fork == name) throw UsageError(fmt::format("--fork is '{}', the run that it would begin from; name a new one", fork));
  const std::string from = resume ? std::string() : newest_checkpoint(std::filesystem::path(runs) / name);
  name = fork;
  return from;
}

std::string resume_line(const std::string& kind, const Arguments& arguments) {
  std::string line = "lockstep train " + kind;
  for (const std::string& argument : arguments) {
    if (argument == "--resume") continue;
    const bool plain = argument.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=,:") == std::string::npos;
    line += plain && !argument.empty() ? " " + argument : " '" + argument + "'";
  }
  return line + " --resume";
}

int train_command(const Arguments& arguments) {
  const std::string kind = arguments.empty() ? "--help" : arguments[0];
  const Arguments rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (kind == "sft") return train_sft(rest);
  if (kind == "rl") return run_train_rl(rest);
  if (kind == "--help" || kind == "-h") {
    std::fputs("usage: lockstep train sft|rl [options]\n\n"
               "  lockstep train sft --config recipes/countdown_sft.toml\n"
               "  lockstep train rl --config recipes/countdown_rl.toml\n\n"
               "`lockstep train sft --help` and `lockstep train rl --help` list every option.\n", stdout);
    return kExitOk;
  }
  throw UsageError(fmt::format("train: unknown kind '{}', allowed are sft, rl{}", kind.substr(0, 60), did_you_mean(kind, {"sft", "rl"})));
}

}  // namespace lockstep
