#include "cli/gate_file.h"

#include <filesystem>

#include "base/bounded_json.h"
#include "base/file.h"
#include "cli/options.h"
#include "serving/gate.h"

namespace lockstep {
namespace {
using GateJson = nlohmann::ordered_json;
constexpr std::size_t kMostGateBytes = std::size_t{1} << 20, kMostGateLinesBytes = std::size_t{64} << 20;

// Of each line an object that has these texts and nothing else.
GateJson gate_lines(const std::filesystem::path& file, const std::vector<const char*>& names) {
  const std::string text = read_file(file, kMostGateLinesBytes);
  GateJson lines = GateJson::array();
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const GateJson json = read_json_or_null(line, {.depth = 8});
    bool right = json.is_object() && json.size() == names.size();
    for (const char* name : names) right = right && json.contains(name) && json[name].is_string();
    if (!right) fail(ErrorCode::invalid_argument, "'{}' line {} is no object of the texts {}", file.string(), number, fmt::join(names, ", "));
    lines.push_back(json);
  }
  if (lines.empty()) fail(ErrorCode::invalid_argument, "'{}' has no line", file.string());
  return lines;
}
}  // namespace

GateJson gate_of_file(const std::string& path) {
  GateSpec spec;
  std::string questions, texts;
  std::optional<double> floor, kl, speed;
  OptionTable table("gate", "What a deployment is asked before an alias leads to it.", {});
  table.input("questions", &questions, "FILE", "JSON lines {\"prompt\", \"answer\"}");
  table.text("environment", &spec.environment, "NAME", "Whose checker judges answers to its held-out problems, instead of questions");
  table.integer("problems", &spec.problems, 1, GateSpec::kMostQuestions, "N", "Problems of the environment");
  table.integer("max-tokens", &spec.max_tokens, 1, GateSpec::kMostTokens, "N", "Most tokens of an answer");
  table.number("accuracy-drop", &spec.accuracy_drop, 0, 1, "X", "How far the share of right answers may be below the live version's");
  table.number("accuracy-floor", &floor, 0, 1, "X", "The least share of right answers", "none");
  table.input("texts", &texts, "FILE", "JSON lines {\"text\"}");
  table.number("logprob-drop", &spec.logprob_drop, 0, 1000, "X", "How far the mean log-probability of a token of the texts may be below the live version's");
  table.number("kl-limit", &kl, 0, 1000, "X", "Most nats a token of its own samples from the live version", "none");
  table.number("speed-drop", &speed, 0, 1, "X", "What part of the live version's tokens a second may be lost", "none");
  table.flag("digests", &spec.digests, "It has to be of a snapshot, whose digests were compared");
  table.integer("company", &spec.company, 0, GateSpec::kMostCompany, "N", "So many prompts are answered alone too, with the same bits");
  table.rows().read_toml(read_file(path, kMostGateBytes), path);

  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  GateJson gate = GateJson::object();
  if (!questions.empty()) gate["questions"] = gate_lines(folder / questions, {"prompt", "answer"});
  if (!spec.environment.empty()) gate["environment"] = spec.environment;
  gate["problems"] = spec.problems;
  gate["max_tokens"] = spec.max_tokens;
  gate["accuracy_drop"] = spec.accuracy_drop;
  if (floor) gate["accuracy_floor"] = *floor;
  if (!texts.empty()) {
    gate["texts"] = GateJson::array();
    for (const GateJson& line : gate_lines(folder / texts, {"text"})) gate["texts"].push_back(line["text"]);
  }
  gate["logprob_drop"] = spec.logprob_drop;
  if (kl) gate["kl_limit"] = *kl;
  if (speed) gate["speed_drop"] = *speed;
  gate["digests"] = spec.digests;
  gate["company"] = spec.company;
  return gate;
}

}  // namespace lockstep
