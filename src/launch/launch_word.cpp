#include "launch/launch_word.h"

#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "parallel/processes.h"

namespace lockstep {

namespace {
constexpr std::string_view kMark = "lockstep-launch ";

void say(LaunchWord word) {
  if (!has_launcher()) return;
  const char* process = std::getenv("OMPI_COMM_WORLD_RANK");
  word.process = process ? std::atoi(process) : 0;
  const std::string line = launch_line(word) + "\n";  // in one write: lines of several processes stay apart
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}
}  // namespace

std::string launch_line(const LaunchWord& word) {
  const nlohmann::ordered_json json = {{"process", word.process}, {"ended", word.ended}, {"status", word.status}, {"lost", word.lost}};
  return std::string(kMark) + json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

std::optional<LaunchWord> read_launch_word(std::string_view line) {
  // Behind what another process was about to write.
  const std::size_t at = line.find(kMark);
  if (at == std::string_view::npos) return std::nullopt;
  const nlohmann::json json = nlohmann::json::parse(line.substr(at + kMark.size()), nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const auto process = json.find("process"), ended = json.find("ended"), status = json.find("status"), lost = json.find("lost");
  if (process == json.end() || !process->is_number_integer() || ended == json.end() || !ended->is_boolean() || status == json.end() ||
      !status->is_number_integer() || lost == json.end() || !lost->is_string())
    return std::nullopt;
  return LaunchWord{process->get<int>(), ended->get<bool>(), status->get<int>(), lost->get<std::string>()};
}

bool has_launcher() { return std::getenv(kLaunchVariable) != nullptr; }

int launch_start() {
  const char* number = std::getenv(kLaunchVariable);
  return number ? std::atoi(number) : 0;
}

void say_begun() { say({}); }
void say_ended(int status) { say({.ended = true, .status = status, .lost = lost_process()}); }

}  // namespace lockstep
