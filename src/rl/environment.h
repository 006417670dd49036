// The interface of a reinforcement learning task: problems by (split, seed, index), a reward for a completion, and a reference
// completion to imitate.
//   auto task = make_environment("countdown"); Problem p = task->problem(Split::train, seed, 0); task->reward(p, answer);
// An environment is stateless: equal arguments give equal answers in any order, on any machine, so a run resumes without saving it.
// Knows no model, no tokens. Thread rule: const and pure; one object serves any number of threads.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Problems of the two splits are disjoint, whatever the seed.
enum class Split { train, held_out };

struct Problem {
  std::uint64_t id = 0;            // equal for problems that are the same task, however they are worded
  std::string prompt;              // what the model continues
  std::vector<std::int64_t> data;  // data for the environment's grader, in its own format
};

class Environment {
 public:
  virtual ~Environment() = default;
  virtual std::string name() const = 0;
  virtual Problem problem(Split split, std::uint64_t seed, std::uint64_t index) const = 0;
  // In [0, 1]. `completion` is the decoded text without the end token; any bytes are allowed. Never throws for them.
  virtual double reward(const Problem& problem, std::string_view completion) const = 0;
  // A reference completion with reward 1, the same for a problem every time, for supervised fine-tuning.
  virtual std::string reference_completion(const Problem& problem) const = 0;
};

std::vector<std::string> environment_names();

// Throws invalid_argument with the known names when `name` is not one of them.
std::unique_ptr<Environment> make_environment(std::string_view name);

}  // namespace lockstep
