// The checks that a deployment must pass before an alias leads to it, and their results. Plain values. jobs/deployment_gate.h runs the checks; the
// routes of aliases ask for them (api/openai/model_deployment_routes.h).
//   GateReport report = judge(spec, candidate, live);   if (!report.passed()) told(report.reason());
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class GenerationService;
struct WeightSet;
struct AdapterWeights;

// A version under test.
struct GateSide {
  std::string name;
  std::shared_ptr<GenerationService> service;
  std::string snapshot;  // of its weights; empty: none
  // Weights for the test's requests, when the service does not use the version yet; null: its present weights.
  std::shared_ptr<const WeightSet> weights = nullptr;
  std::shared_ptr<const AdapterWeights> adapter = nullptr;  // over these; null: none
};

struct GateQuestion {
  std::string prompt, answer;  // correct: the greedy answer is this text, apart from spaces around it
};

struct GateSpec {
  static constexpr std::int64_t kMostQuestions = 10'000, kMostTexts = 10'000, kMostTokens = 1 << 16, kMostCompany = 256;
  static constexpr std::size_t kMostTextBytes = std::size_t{1} << 16;

  std::vector<GateQuestion> questions;  // instead of an environment
  std::string environment;              // that provides held-out problems and grades answers (rl/environment.h); empty: none
  std::int64_t problems = 200;          // of the environment
  std::int64_t max_tokens = 64;         // of an answer
  double accuracy_drop = 0;             // allowed loss in the share of correct answers against the live version
  std::optional<double> accuracy_floor;
  std::vector<std::string> texts;    // held out
  double logprob_drop = 0;           // allowed loss in mean log-probability a token against the live version, in nats
  bool digests = true;               // require a snapshot whose tensors were all checked by their digests
  std::int64_t company = 8;          // that many prompts are also answered alone, and must have the same bits as in a batch
  std::optional<double> kl_limit;    // largest KL a token from the live version, in nats, on the candidate's samples; none: only measured
  std::optional<double> speed_drop;  // allowed loss in tokens a second, as a part of the live version's; none: only measured
  std::int64_t prompts() const { return questions.empty() ? problems : static_cast<std::int64_t>(questions.size()); }
  bool asks() const { return !questions.empty() || !environment.empty(); }
};

struct GateCheck {
  std::string name;  // "digests", "accuracy", "company", "divergence", "speed", "log-probability"
  std::string why;   // the reason of a failure; empty: passed
  nlohmann::ordered_json figures = nlohmann::ordered_json::object();
};

struct GateReport {
  std::string candidate, live;  // deployments; live empty: the alias was new
  std::vector<GateCheck> checks;
  double seconds = 0;

  bool passed() const {
    for (const GateCheck& one : checks)
      if (!one.why.empty()) return false;
    return true;
  }
  // One sentence; empty: passed.
  std::string reason() const {
    std::string all;
    for (const GateCheck& one : checks)
      if (!one.why.empty()) all += (all.empty() ? "" : "; ") + one.why;
    return all;
  }
};

// "forced": false: a gate that ran has moved nothing yet (GateReports::overruled).
inline nlohmann::ordered_json to_json(const GateReport& report) {
  nlohmann::ordered_json checks = nlohmann::ordered_json::array();
  for (const GateCheck& one : report.checks) {
    nlohmann::ordered_json row{{"name", one.name}, {"passed", one.why.empty()}};
    if (!one.why.empty()) row["why"] = one.why;
    row.update(one.figures);
    checks.push_back(std::move(row));
  }
  return {{"deployment", report.candidate},
          {"live", report.live.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(report.live)},
          {"passed", report.passed()},
          {"reason", report.passed() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(report.reason())},
          {"forced", false},
          {"seconds", report.seconds},
          {"checks", std::move(checks)}};
}

}  // namespace lockstep
