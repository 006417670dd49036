#include "cli/commands.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <new>
#include <system_error>

#include "base/error.h"
#include "base/signals.h"
#include "cli/foreign_words.h"
#include "cli/options.h"
#include "launch/launch_word.h"

namespace lockstep {

const std::vector<Command>& commands() {
  static const std::vector<Command> rows = {
      {"demo", "sample, train and serve the shipped model; compare with the published hash", demo_command},
      {"chat", "talk with a model in the terminal", chat_command},
      {"generate", "continue a prompt, streaming", generate_command},
      {"train", "supervised fine-tuning, reinforcement learning, preferences", train_command},
      {"eval", "measure how many held-out problems of an environment a model solves", eval_command},
      {"serve", "answer OpenAI's API over HTTP", serve_command},
      {"render", "render messages with a model's chat template, to text and token ids", render_command},
      {"watch", "show runs in a browser: curves, transcripts, parity", watch_command},
      {"report", "write one HTML file of a run", report_command},
      {"info", "show what a model holds", info_command},
      {"convert", "write a Hugging Face folder of a GGUF file or of another folder", convert_command},
      {"snapshot", "put weights into a store as what changed, take them out, check them", snapshot_command},
      {"fleet", "which replicas have the newest weights", fleet_command},
      {"deploy", "load one more model into a server, and give it an alias' traffic", deploy_command},
      {"rollback", "give an alias of a server the models that it had before", rollback_command},
      {"score", "log-probabilities of given tokens, by any of four forwards", score_command},
      {"grad", "gradients of a loss over given tokens", grad_command},
      {"tokenize", "text to token ids with offsets, and back", tokenize_command},
      {"index-share", "what indexers of sparse attention select, and what they have in common", index_share_command},
      {"parity", "compare all ways of computing, bit by bit", parity_command},
      {"bench", "time operations on this machine", bench_command},
      {"plan", "predict the memory of training or serving, and whether it fits", plan_command},
      {"simulate", "compute the time of a training step by layout on other hardware", simulate_command},
      {"launch", "run training on several hosts, and go on when one is lost", launch_command},
      {"shapes", "which hardware and layout a large model needs, and why", shapes_command},
      {"doctor", "is this machine fit, and what fixes it", doctor_command},
  };
  return rows;
}

namespace {
std::string overview() {
  std::string text =
      "lockstep trains and serves open language models with one forward pass: both compute bitwise equal log-probabilities.\n\n"
      "  lockstep COMMAND --help      an example and every option\n\n";
  for (const Command& command : commands()) text += fmt::format("  {:<13}{}\n", command.name, command.summary);
  text += fmt::format("  {:<13}{}\n  {:<13}{}\n", "help", "this text; `help COMMAND` is `COMMAND --help`", "--version",
                      "commit, numerics profiles, instruction set");
  return text;
}

const Command& find_command(const std::string& name) {
  std::vector<std::string> names = {"help"};
  for (const Command& command : commands()) {
    if (command.name == name) return command;
    names.emplace_back(command.name);
  }
  const std::string ours = own_command(name);
  throw UsageError(fmt::format("unknown command '{}'{}; `lockstep help` lists them", name.substr(0, 60), ours.empty() ? did_you_mean(name, names) : ours));
}

int dispatch(const Arguments& arguments) {
  if (arguments.empty() || arguments == Arguments{"help"} || arguments == Arguments{"--help"} || arguments == Arguments{"-h"}) {
    std::fputs(overview().c_str(), stdout);
    return kExitOk;
  }
  if (arguments[0] == "--version" || arguments[0] == "version") {
    std::fputs(version_text().c_str(), stdout);
    return kExitOk;
  }
  if (arguments[0] == "help") return find_command(arguments[1]).run({"--help"});
  return find_command(arguments[0]).run({arguments.begin() + 1, arguments.end()});
}

// One line whatever a message holds.
int report(std::string message, int code) {
  for (char& c : message)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  std::fprintf(stderr, "error: %s\n", message.c_str());
  return code;
}
// What no input should bring about.
std::string own_fault(const std::string& found) {
  return fmt::format("{}; this is a bug in lockstep: please report it with the command and `lockstep --version`", found);
}
}  // namespace

namespace {
int run_reported(const Arguments& arguments) {
  try {
    const int code = dispatch(arguments);
    if (std::fflush(stdout) != 0 || std::ferror(stdout)) return report(fmt::format("writing the output: {}", std::strerror(errno)), kExitError);
    return code;
  } catch (const UsageError& e) {
    return report(e.what(), kExitUsage);
  } catch (const Error& e) {
    std::fflush(stdout);
    if (e.code() == ErrorCode::cancelled && interrupted()) return report(e.what(), 128 + interrupt_signal());
    return report(e.code() == ErrorCode::internal ? own_fault(e.what()) : e.what(), e.code() == ErrorCode::numeric ? kExitDiverged : kExitError);
  } catch (const std::bad_alloc&) {
    return report("out of memory; `lockstep plan` says what training or serving takes", kExitError);
  } catch (const std::filesystem::filesystem_error& e) {
    return report(fmt::format("'{}': {}", e.path1().string(), e.code().message()), kExitError);
  } catch (const std::system_error& e) {
    return report(fmt::format("the system refused: {}", e.code().message()), kExitError);
  } catch (const std::exception& e) {
    return report(own_fault(e.what()), kExitError);
  }
}
}  // namespace

int run_program(const Arguments& arguments) {
  say_begun();
  const int status = run_reported(arguments);
  say_ended(status);
  return status;
}

}  // namespace lockstep

int lockstep_main(int argc, char** argv) {
  lockstep::Arguments arguments;
  for (int i = 1; i < argc; ++i) arguments.emplace_back(argv[i]);
  return lockstep::run_program(arguments);
}
