#include "rl/checked_countdown_environment.h"

#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "rl/countdown_environment.h"

namespace lockstep {
namespace {
// Of a step, and the first of them of its result alone, which costs one token. Chosen on 1,000 problems of the training split, 2 samples each: solved 0.540 at
// 1.33 times the tokens of plain answers (0.357); whole steps three times 0.573 at 1.69, the result alone three times 0.494 at 1.15.
constexpr int kMostTriesAgain = 3, kTriesOfTheResult = 2;

// A number at the beginning of `text`, which loses it.
std::optional<std::int64_t> take_number(std::string_view& text) {
  std::int64_t value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || text.empty() || text.front() == '-') return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

// Whether "7-3=4" is arithmetic that cannot be right, however it goes on. What is no step is not its business.
bool is_wrong_step(std::string_view step) {
  const auto left = take_number(step);
  if (!left || step.empty()) return false;
  const char operation = step.front();
  step.remove_prefix(1);
  const auto right = take_number(step);
  if (!right || step.empty() || step.front() != '=') return false;
  step.remove_prefix(1);
  const std::string said(step);
  if (said.empty() || !take_number(step) || !step.empty()) return false;
  constexpr std::int64_t kMost = 1'000'000;
  if (*left > kMost || *right > kMost) return false;
  std::int64_t result = 0;
  switch (operation) {
    case '+':
      result = *left + *right;
      break;
    case '-':
      result = *left - *right;
      break;
    case '*':
      result = *left * *right;
      break;
    case '/':
      if (*right == 0 || *left % *right != 0) return true;
      result = *left / *right;
      break;
    default:
      return false;
  }
  return std::to_string(result).compare(0, said.size(), said) != 0;  // more digits may come
}

class CheckedCountdownEpisode final : public Episode {
 public:
  explicit CheckedCountdownEpisode(std::unique_ptr<Episode> inner) : inner_(std::move(inner)) {}
  std::string task() const override { return inner_->task(); }
  EpisodeStep step(std::string_view answer) override { return inner_->step(answer); }
  std::string reference() const override { return inner_->reference(); }
  // Behind "=" and a digit: the tokenizer of the shipped model has a token for each number up to 100.
  std::vector<std::string> checked_at() const override { return {"=0", "=1", "=2", "=3", "=4", "=5", "=6", "=7", "=8", "=9"}; }
  AnswerCheck check(std::string_view answer) override {
    const std::size_t comma = answer.rfind(','), begin = comma == std::string_view::npos ? 0 : comma + 1;
    if (!is_wrong_step(answer.substr(begin)) || tries_again_[begin] >= kMostTriesAgain) return {};
    const int tries = tries_again_[begin]++;
    return {.kind = AnswerCheck::Kind::roll_back, .keep = tries < kTriesOfTheResult ? answer.find('=', begin) + 1 : begin};
  }

 private:
  std::unique_ptr<Episode> inner_;
  std::map<std::size_t, int> tries_again_;  // by where the step begins
};

class CheckedCountdownEnvironment : public Environment {
 public:
  std::string name() const override { return "countdown-checked"; }
  Problem problem(Split split, std::uint64_t seed, std::uint64_t index) const override { return countdown_->problem(split, seed, index); }
  std::unique_ptr<Episode> begin(const Problem& problem) const override { return std::make_unique<CheckedCountdownEpisode>(countdown_->begin(problem)); }
  bool many_turns() const override { return false; }

 private:
  std::unique_ptr<OneTurnEnvironment> countdown_ = make_countdown_environment();
};
}  // namespace

std::unique_ptr<Environment> make_checked_countdown_environment() { return std::make_unique<CheckedCountdownEnvironment>(); }

}  // namespace lockstep
