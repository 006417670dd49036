#include "jobs/deployment_gate.h"

#include <chrono>
#include <cmath>

#include "base/ascii.h"
#include "base/error.h"
#include "base/seconds.h"
#include "jobs/gate_company.h"
#include "jobs/gate_divergence.h"
#include "jobs/gate_speed.h"
#include "rl/evaluation.h"

namespace lockstep {
namespace {
// Questions of a file as an environment: problem i is question i.
class QuestionEnvironment : public OneTurnEnvironment {
 public:
  explicit QuestionEnvironment(const std::vector<GateQuestion>& questions) : questions_(questions) {}
  std::string name() const override { return "questions"; }
  Problem problem(Split, std::uint64_t, std::uint64_t index) const override {
    const std::size_t at = index % questions_.size();
    Problem problem;
    problem.id = at;
    problem.prompt = questions_[at].prompt;
    problem.data = {static_cast<std::int64_t>(at)};
    return problem;
  }
  double reward(const Problem& problem, std::string_view completion) const override {
    return trimmed(completion) == trimmed(questions_.at(problem.id).answer) ? 1 : 0;
  }
  std::string reference_completion(const Problem& problem) const override { return questions_.at(problem.id).answer; }

 private:
  const std::vector<GateQuestion>& questions_;
};

// Runs a check; an Error of the candidate's is why it failed.
template <class F>
GateCheck gate_check(const std::string& name, F&& work) {
  GateCheck check;
  check.name = name;
  try {
    work(check);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::cancelled || e.code() == ErrorCode::invalid_argument) throw;
    check.why = fmt::format("the check of {} broke off: {}", name, e.message());
  }
  return check;
}

// Of the tokens behind each text's first one.
struct TextScores {
  std::vector<std::vector<std::int32_t>> ids;
  std::vector<double> sums;
  std::int64_t tokens = 0;
  double mean = 0;
};

TextScores score_texts(const std::vector<std::string>& texts, const GateSide& side, const StopToken& stop) {
  TextScores scores;
  double sum = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::vector<std::int32_t> ids = side.service->model().tokenizer().encode(texts[i], true);
    if (ids.size() < 2) fail(ErrorCode::invalid_argument, "text {} of the gate has {} tokens, allowed are 2 and more", i + 1, ids.size());
    const std::vector<float> logprobs = gate_logprobs(side, ids, stop, fmt::format("text {}", i + 1));
    double of_text = 0;
    for (const float logprob : logprobs) of_text += static_cast<double>(logprob);
    scores.sums.push_back(of_text);
    scores.tokens += static_cast<std::int64_t>(logprobs.size());
    scores.ids.push_back(std::move(ids));
    sum += of_text;
  }
  scores.mean = sum / static_cast<double>(scores.tokens);
  return scores;
}

Evaluation answers_of(const Environment& environment, const GateSpec& spec, const GateSide& side, const StopToken& stop) {
  LocalSampler sampler = gate_sampler(side, stop);
  EvaluationSettings settings;
  settings.problems = spec.prompts();
  settings.samples = 1;
  settings.max_tokens = spec.max_tokens;
  settings.seed = kGateSeed;
  return evaluate(environment, side.service->model().tokenizer(), sampler, settings);
}

void check_accuracy(const GateSpec& spec, const Environment& environment, const GateSide& candidate, const std::optional<GateSide>& live, const StopToken& stop,
                    GateCheck& check) {
  const std::optional<Evaluation> before = live ? std::optional(answers_of(environment, spec, *live, stop)) : std::nullopt;
  const Evaluation now = answers_of(environment, spec, candidate, stop);
  check.figures = {{"environment", now.environment}, {"problems", now.problems}, {"accuracy", to_json(now.greedy)}, {"tokens", now.tokens}};
  if (spec.accuracy_floor) {
    check.figures["floor"] = *spec.accuracy_floor;
    if (now.greedy.value < *spec.accuracy_floor)
      check.why =
          fmt::format("'{}' answers {:.4f} of {} problems right, the floor is {}", candidate.name, now.greedy.value, now.problems, *spec.accuracy_floor);
  }
  if (!before) return;
  std::vector<double> differences;  // by problem, so that those that are hard for both say nothing
  for (std::size_t i = 0; i < now.greedy_right.size(); ++i)
    differences.push_back(static_cast<double>(now.greedy_right[i]) - static_cast<double>(before->greedy_right[i]));
  const Interval difference = bootstrap_means({differences}, kGateSeed).front();
  check.figures["live_accuracy"] = to_json(before->greedy);
  check.figures["difference"] = to_json(difference);
  check.figures["accuracy_drop"] = spec.accuracy_drop;
  if (!check.why.empty() || difference.value >= -spec.accuracy_drop) return;
  check.why = fmt::format(
      "'{}' answers {:.4f} of {} problems right and '{}', which is live, {:.4f}: {:.4f} less (95 % interval {:.4f} to {:.4f}), "
      "allowed are {}",
      candidate.name, now.greedy.value, now.problems, live->name, before->greedy.value, -difference.value, -difference.high, -difference.low,
      spec.accuracy_drop);
}

void check_logprob(const GateSpec& spec, const GateSide& candidate, const std::optional<GateSide>& live, const StopToken& stop, GateCheck& check) {
  const std::optional<TextScores> before = live ? std::optional(score_texts(spec.texts, *live, stop)) : std::nullopt;
  const TextScores now = score_texts(spec.texts, candidate, stop);
  if (!std::isfinite(now.mean)) {
    check.why = fmt::format("the log-probability of the held-out texts under '{}' is no number", candidate.name);
    return;
  }
  check.figures = {{"texts", spec.texts.size()}, {"tokens", now.tokens}, {"logprob", now.mean}};
  if (!before) return;
  check.figures["live_logprob"] = before->mean;
  check.figures["logprob_drop"] = spec.logprob_drop;
  if (before->ids != now.ids) {
    check.why = fmt::format("'{}' and '{}' split the held-out texts into different tokens, whose log-probabilities do not compare", candidate.name, live->name);
    return;
  }
  std::vector<double> differences;  // nats a token, by text
  for (std::size_t i = 0; i < now.sums.size(); ++i) differences.push_back((now.sums[i] - before->sums[i]) / static_cast<double>(now.ids[i].size() - 1));
  check.figures["difference_by_text"] = to_json(bootstrap_means({differences}, kGateSeed).front());
  if (now.mean >= before->mean - spec.logprob_drop) return;
  check.why = fmt::format(
      "the held-out texts have a mean log-probability of {:.4f} a token under '{}' and of {:.4f} under '{}', which is live: {:.4f} less, "
      "allowed are {}",
      now.mean, candidate.name, before->mean, live->name, before->mean - now.mean, spec.logprob_drop);
}
}  // namespace

GateReport judge_deployment(const GateSpec& spec, const GateSide& candidate, const std::optional<GateSide>& live, const StopToken& stop) {
  stop.throw_if_stopped();
  const auto begin = std::chrono::steady_clock::now();
  GateReport report;
  report.candidate = candidate.name;
  if (live) report.live = live->name;
  if (spec.digests) {
    GateCheck check;
    check.name = "digests";
    if (candidate.snapshot.empty())
      check.why = fmt::format("'{}' was not made of a snapshot, so that no digest says what its weights must be (deploy STORE/SNAPSHOT, or digests = false)",
                              candidate.name);
    else check.figures["snapshot"] = candidate.snapshot;
    report.checks.push_back(std::move(check));
  }
  if (spec.asks()) {
    const std::unique_ptr<Environment> environment =
        spec.questions.empty() ? make_environment(spec.environment) : std::make_unique<QuestionEnvironment>(spec.questions);
    report.checks.push_back(gate_check("accuracy", [&](GateCheck& check) { check_accuracy(spec, *environment, candidate, live, stop, check); }));
    if (spec.company > 0)
      report.checks.push_back(gate_check("company", [&](GateCheck& check) {
        LocalSampler sampler = gate_sampler(candidate, stop);
        check_company(spec, *environment, candidate, sampler, check);
      }));
    if (live) report.checks.push_back(gate_check("divergence", [&](GateCheck& check) { check_divergence(spec, *environment, candidate, *live, stop, check); }));
    report.checks.push_back(gate_check("speed", [&](GateCheck& check) { check_speed(spec, *environment, candidate, live, stop, check); }));
  }
  if (!spec.texts.empty()) report.checks.push_back(gate_check("log-probability", [&](GateCheck& check) { check_logprob(spec, candidate, live, stop, check); }));
  report.seconds = seconds_since(begin);
  return report;
}

}  // namespace lockstep
