#include "rl/environment.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "rl/agent_environment.h"
#include "rl/checked_countdown_environment.h"
#include "rl/countdown_environment.h"
#include "rl/dozen_environment.h"
#include "rl/lockbox_environment.h"
#include "rl/recall_environment.h"

namespace lockstep {
namespace {
using Maker = std::unique_ptr<Environment> (*)();
// One row per environment; beside them the dozen, and recall of any length.
constexpr std::array<std::pair<std::string_view, Maker>, 4> kEnvironments = {{
    {"countdown", []() -> std::unique_ptr<Environment> { return make_countdown_environment(); }},
    {"countdown-checked", []() { return make_checked_countdown_environment(); }},
    {"agent", []() -> std::unique_ptr<Environment> { return make_agent_environment(); }},
    {"lockbox", []() -> std::unique_ptr<Environment> { return make_lockbox_environment(); }},
}};

class OneTurnEpisode final : public Episode {
 public:
  OneTurnEpisode(const OneTurnEnvironment& environment, Problem problem) : environment_(environment), problem_(std::move(problem)) {}
  std::string task() const override { return problem_.prompt; }
  EpisodeStep step(std::string_view answer) override {
    if (std::exchange(done_, true)) fail(ErrorCode::internal, "the episode of '{}' is done, and it got another answer", problem_.prompt);
    return {.observation = {}, .reward = environment_.reward(problem_, answer), .done = true};
  }
  std::string reference() const override { return environment_.reference_completion(problem_); }

 private:
  const OneTurnEnvironment& environment_;
  Problem problem_;
  bool done_ = false;
};
}  // namespace

std::unique_ptr<Episode> OneTurnEnvironment::begin(const Problem& problem) const { return std::make_unique<OneTurnEpisode>(*this, problem); }

std::vector<std::string> environment_names() {
  std::vector<std::string> names;
  for (const auto& row : kEnvironments) names.emplace_back(row.first);
  for (const std::string& dozen : dozen_environment_names()) names.push_back(dozen);
  for (const std::string& recall : recall_environment_names()) names.push_back(recall);
  return names;
}

std::unique_ptr<Environment> make_environment(std::string_view name) {
  for (const auto& [known, make] : kEnvironments) {
    if (known == name) return make();
  }
  if (is_dozen(name)) return make_dozen_environment(std::string(name));
  if (is_recall(name)) return make_recall_environment(std::string(name));
  fail(ErrorCode::invalid_argument, "environment is '{}', allowed is {}{}", name.substr(0, 60), fmt::join(environment_names(), ", "),
       did_you_mean(name, environment_names()));
}

bool has_many_turns(std::string_view name) {
  for (const auto& [known, make] : kEnvironments)
    if (known == name) return make()->many_turns();
  return false;
}

}  // namespace lockstep
