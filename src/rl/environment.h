// The interface of a reinforcement learning task: problems by (split, seed, index), and an episode of each (rl/episode.h).
//   auto task = make_environment("countdown"); Problem p = task->problem(Split::train, seed, 0); double r = task->begin(p)->step(answer).reward;
// An environment is stateless: equal arguments give equal answers in any order, on any machine, so a run resumes without saving it.
// Knows no model, no tokens. Thread rule: const and pure; one object serves any number of threads.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rl/episode.h"

namespace lockstep {

// Problems of the two splits are disjoint, whatever the seed.
enum class Split { train, held_out };

struct Problem {
  std::uint64_t id = 0;            // equal for problems that are the same task, however they are worded
  std::string prompt;              // what the model continues at first
  std::vector<std::int64_t> data;  // data for the environment's grader, in its own format
  std::string domain = {};         // among domains() of its environment; empty: there is one
};

class Environment {
 public:
  virtual ~Environment() = default;
  virtual std::string name() const = 0;
  virtual Problem problem(Split split, std::uint64_t seed, std::uint64_t index) const = 0;
  // An episode at its beginning; this object outlives it. A problem of another environment is refused here or by its first step (invalid_argument).
  virtual std::unique_ptr<Episode> begin(const Problem& problem) const = 0;
  // Whether an episode may have more than one turn.
  virtual bool many_turns() const = 0;
  // The domains of its problems; problem i is of domain i modulo their number (runs/distillation/teachers.h chooses teachers by domain).
  virtual std::vector<std::string> domains() const { return {name()}; }
};

// A task of one answer.
class OneTurnEnvironment : public Environment {
 public:
  // In [0, 1]. `completion` is the decoded text without the end token; any bytes are allowed. Never throws for them.
  virtual double reward(const Problem& problem, std::string_view completion) const = 0;
  // A reference completion with reward 1, the same for a problem every time, for supervised fine-tuning.
  virtual std::string reference_completion(const Problem& problem) const = 0;
  std::unique_ptr<Episode> begin(const Problem& problem) const final;
  bool many_turns() const final { return false; }
};

std::vector<std::string> environment_names();

// Throws invalid_argument with the known names when `name` is not one of them.
std::unique_ptr<Environment> make_environment(std::string_view name);
// Environment::many_turns of the environment of that name; false for an unknown name.
bool has_many_turns(std::string_view name);

}  // namespace lockstep
