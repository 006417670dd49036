#include "launch/mpirun_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "launch/launch_word.h"

namespace lockstep {

namespace {
std::vector<std::string> words_between_blanks(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; (at = text.find_first_not_of(' ', at)) != std::string::npos;) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}
}  // namespace

std::vector<Host> hosts_taken(const std::vector<Host>& hosts, int processes) {
  std::vector<Host> taken;
  for (const Host& host : hosts) {
    if (processes == 0) break;
    taken.push_back({host.name, std::min(host.slots, processes)});
    processes -= taken.back().slots;
  }
  return taken;
}

std::vector<std::string> mpirun_line(const LaunchProgram& program, const std::vector<Host>& hosts, const LaunchLayout& layout, bool resume, int start) {
  // Recovery: one that dies does not end the others, who say who it was; and then end themselves.
  std::vector<std::string> line{program.mpirun,
                                "--host",
                                hosts_text(hosts_taken(hosts, layout.processes)),
                                "-n",
                                std::to_string(layout.processes),
                                "--map-by",
                                "slot",
                                "--bind-to",
                                "none",
                                "--enable-recovery",
                                "-x",
                                fmt::format("{}={}", kLaunchVariable, start)};
  if (!program.agent.empty()) line.insert(line.end(), {"--mca", "plm", "rsh", "--mca", "plm_rsh_agent", program.agent});
  line.insert(line.end(), program.options.begin(), program.options.end());
  line.insert(line.end(), program.program.begin(), program.program.end());
  line.insert(line.end(), {"--transport", "mpi", "--ranks", layout.ranks.text()});
  if (resume) line.emplace_back("--resume");
  return line;
}

std::vector<std::string> asking_line(const LaunchProgram& program, const std::string& host) {
  if (is_this_machine(host)) return {};
  std::vector<std::string> line = words_between_blanks(program.agent);
  if (line.empty()) line = {"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5"};
  line.insert(line.end(), {host, "true"});
  return line;
}

std::string shell_text(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=,:@%+";
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) {
      if (c == '\'') text += "'\\''";
      else text += c;
    }
    text += '\'';
  }
  return text;
}

}  // namespace lockstep
