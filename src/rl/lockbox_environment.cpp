#include "rl/lockbox_environment.h"

#include "base/error.h"
#include "rl/lockbox.h"

namespace lockstep {
namespace {

// Problem::data is the keys, the symbols and the digits.
constexpr std::size_t kLockboxNumbers = kLockboxSymbols + 2 * kLockboxDoors;

LockboxProblem read_lockbox(const Problem& problem) {
  const auto wrong = [&] { fail(ErrorCode::invalid_argument, "problem '{}' is not one of lockbox", problem.prompt); };
  if (problem.data.size() != kLockboxNumbers) wrong();
  LockboxProblem made;
  auto next = problem.data.begin();
  const auto take = [&](auto& numbers, std::int64_t low, std::int64_t high) {
    for (int& number : numbers) {
      if (*next < low || *next > high) wrong();
      number = static_cast<int>(*next++);
    }
  };
  take(made.keys, 1, kLockboxKeys);
  take(made.symbols, 0, kLockboxSymbols - 1);
  take(made.digits, 0, 9);
  return made;
}

class LockboxEpisode final : public Episode {
 public:
  explicit LockboxEpisode(const LockboxProblem& problem) : problem_(problem) {}
  std::string task() const override { return lockbox_task(problem_); }
  std::string first() const override { return lockbox_door(problem_, 0); }

  EpisodeStep step(std::string_view answer) override {
    if (done_) fail(ErrorCode::internal, "the lockbox '{}' is done, and it got another answer", task());
    if (door_ == kLockboxDoors) {
      done_ = true;
      return {.observation = {}, .reward = lockbox_correct(problem_, answer) ? 1.0 : 0.0, .done = true};
    }
    if (answer != lockbox_key(problem_, door_)) {
      done_ = true;
      return {.observation = {}, .reward = 0, .done = true};
    }
    shown_.push_back(problem_.digits[static_cast<std::size_t>(door_)]);
    return {.observation = lockbox_opened(problem_, door_++), .reward = 0, .done = false};
  }

  std::string summary_prompt() const override { return std::string(kLockboxSummaryPrompt); }
  void next_window() override {
    if (shown_.empty()) return;
    for (std::size_t i = 0; i + 1 < shown_.size(); ++i) carried_ += shown_[i];
    carried_ %= 10;
    shown_.erase(shown_.begin(), shown_.end() - 1);
  }

  std::string reference() const override { return door_ < kLockboxDoors ? lockbox_key(problem_, door_) : sums(shown_.size()); }
  std::string reference_summary() const override { return sums(shown_.empty() ? 0 : shown_.size() - 1); }

 private:
  // The sums modulo 10 as the window's first `count` digits come, from what was carried into it: "3,0,7"; without a digit that alone.
  std::string sums(std::size_t count) const {
    if (count == 0) return fmt::format("{}", carried_);
    std::string text;
    int sum = carried_;
    for (std::size_t i = 0; i < count; ++i) {
      sum = (sum + shown_[i]) % 10;
      text += fmt::format("{}{}", i > 0 ? "," : "", sum);
    }
    return text;
  }

  LockboxProblem problem_;
  int door_ = 0;  // the one to be opened; kLockboxDoors: the sum is asked for
  bool done_ = false;
  // For references alone: the sum that the window's summary carried, and the digits that the window shows.
  int carried_ = 0;
  std::vector<int> shown_;
};

class LockboxEnvironment final : public Environment {
 public:
  std::string name() const override { return "lockbox"; }
  bool many_turns() const override { return true; }
  Problem problem(Split split, std::uint64_t seed, std::uint64_t index) const override {
    const LockboxProblem made = make_lockbox_problem(split, seed, index);
    Problem problem;
    problem.id = lockbox_id(made);
    problem.prompt = lockbox_task(made) + lockbox_door(made, 0);
    problem.data.assign(made.keys.begin(), made.keys.end());
    problem.data.insert(problem.data.end(), made.symbols.begin(), made.symbols.end());
    problem.data.insert(problem.data.end(), made.digits.begin(), made.digits.end());
    return problem;
  }
  std::unique_ptr<Episode> begin(const Problem& problem) const override { return std::make_unique<LockboxEpisode>(read_lockbox(problem)); }
};

}  // namespace

std::unique_ptr<Environment> make_lockbox_environment() { return std::make_unique<LockboxEnvironment>(); }

}  // namespace lockstep
