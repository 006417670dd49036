#include "rl/dozen_environment.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "rl/dozen.h"

namespace lockstep {
namespace {
constexpr std::string_view kDozen = "dozen";

// Its problems are read from their text; Problem::data is empty.
class DozenEnvironment final : public OneTurnEnvironment {
 public:
  DozenEnvironment(std::string name, std::vector<std::string> tasks) : name_(std::move(name)), tasks_(std::move(tasks)) {}
  std::string name() const override { return name_; }
  std::vector<std::string> domains() const override { return tasks_; }

  // Twelve problems in a row have the twelve tasks.
  Problem problem(Split split, std::uint64_t seed, std::uint64_t index) const override {
    const std::string& task = tasks_[index % tasks_.size()];
    const DozenProblem made = make_dozen_problem(task, split, seed, index);
    return {.id = dozen_id(made.prompt), .prompt = made.prompt, .data = {}, .domain = task};
  }
  double reward(const Problem& problem, std::string_view completion) const override { return completion == right_answer(problem) ? 1.0 : 0.0; }
  std::string reference_completion(const Problem& problem) const override { return right_answer(problem); }

 private:
  static std::string right_answer(const Problem& problem) {
    std::string answer = dozen_answer(problem.prompt);
    if (answer.empty()) fail(ErrorCode::invalid_argument, "problem '{}' is not one of the dozen", problem.prompt);
    return answer;
  }
  std::string name_;
  std::vector<std::string> tasks_;
};

// Of "dozen-sort+add".
std::vector<std::string> named_tasks(std::string_view name) {
  std::vector<std::string> tasks;
  for (std::size_t begin = kDozen.size() + 1; begin <= name.size();) {
    const std::size_t end = std::min(name.find('+', begin), name.size());
    tasks.emplace_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return tasks;
}
}  // namespace

std::vector<std::string> dozen_environment_names() {
  std::vector<std::string> names = {std::string(kDozen)};
  for (const std::string& task : dozen_tasks()) names.push_back(fmt::format("{}-{}", kDozen, task));
  return names;
}

bool is_dozen(std::string_view name) {
  const std::vector<std::string> names = dozen_environment_names(), known = dozen_tasks();
  if (std::find(names.begin(), names.end(), name) != names.end()) return true;
  if (!name.starts_with(std::string(kDozen) + "-")) return false;
  const std::vector<std::string> tasks = named_tasks(name);
  std::set<std::string> seen;
  return std::all_of(tasks.begin(), tasks.end(),
                     [&](const std::string& task) { return std::find(known.begin(), known.end(), task) != known.end() && seen.insert(task).second; });
}

std::unique_ptr<OneTurnEnvironment> make_dozen_environment(const std::string& name) {
  std::vector<std::string> tasks = dozen_tasks();
  if (name != kDozen) tasks = named_tasks(name);
  return std::make_unique<DozenEnvironment>(name, std::move(tasks));
}

}  // namespace lockstep
