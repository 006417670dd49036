#include "rl/agent_environment.h"

#include "rl/dozen.h"
#include "rl/dozen_environment.h"
#include "rl/lockbox_environment.h"

namespace lockstep {
namespace {
class AgentEnvironment final : public Environment {
 public:
  AgentEnvironment() : lockbox_(make_lockbox_environment()) {
    for (const std::string& task : dozen_tasks()) dozen_.push_back(make_dozen_environment("dozen-" + task));
  }
  std::string name() const override { return "agent"; }
  bool many_turns() const override { return true; }
  std::vector<std::string> domains() const override {
    std::vector<std::string> names = dozen_tasks();
    names.push_back(lockbox_->name());
    return names;
  }
  Problem problem(Split split, std::uint64_t seed, std::uint64_t index) const override {
    const std::uint64_t task = index % (dozen_.size() + 1);
    if (task < dozen_.size()) return dozen_[task]->problem(split, seed, index);
    Problem problem = lockbox_->problem(split, seed, index);
    problem.domain = lockbox_->name();
    return problem;
  }
  std::unique_ptr<Episode> begin(const Problem& problem) const override {
    for (const auto& task : dozen_)
      if (task->domains().front() == problem.domain) return task->begin(problem);
    return lockbox_->begin(problem);
  }

 private:
  std::vector<std::unique_ptr<OneTurnEnvironment>> dozen_;
  std::unique_ptr<Environment> lockbox_;
};
}  // namespace

std::unique_ptr<Environment> make_agent_environment() { return std::make_unique<AgentEnvironment>(); }

}  // namespace lockstep
