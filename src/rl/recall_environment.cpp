#include "rl/recall_environment.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "rl/recall.h"

namespace lockstep {
namespace {
constexpr std::string_view kRecall = "recall";
constexpr std::int64_t kRecallUsualLength = 256;

// Its problems are read from their text; Problem::data is empty.
class RecallEnvironment final : public OneTurnEnvironment {
 public:
  RecallEnvironment(std::string name, std::vector<std::string> kinds, std::int64_t length)
      : name_(std::move(name)), kinds_(std::move(kinds)), length_(length) {}
  std::string name() const override { return name_; }
  std::vector<std::string> domains() const override { return kinds_; }

  Problem problem(Split split, std::uint64_t seed, std::uint64_t index) const override {
    const std::string& kind = kinds_[index % kinds_.size()];
    RecallProblem made = make_recall_problem(kind, length_, split, seed, index);
    const std::uint64_t id = recall_id(made.prompt);
    return {.id = id, .prompt = std::move(made.prompt), .data = {}, .domain = kind};
  }
  double reward(const Problem& problem, std::string_view completion) const override { return recall_share(right_answer(problem), completion); }
  std::string reference_completion(const Problem& problem) const override { return right_answer(problem); }

 private:
  static std::string right_answer(const Problem& problem) {
    std::string answer = recall_answer(problem.prompt);
    if (answer.empty()) fail(ErrorCode::invalid_argument, "problem '{}' is not one of recall", problem.prompt.substr(0, 60));
    return answer;
  }
  std::string name_;
  std::vector<std::string> kinds_;
  std::int64_t length_;
};

struct RecallName {
  std::vector<std::string> kinds;
  std::int64_t length = kRecallUsualLength;
};

// Nothing where a name is not one of recall; a length that is not allowed is one that make_recall_problem refuses, here already.
std::optional<RecallName> read_recall_name(std::string_view name) {
  if (!name.starts_with(kRecall)) return std::nullopt;
  RecallName read{.kinds = recall_kinds()};
  std::string_view rest = name.substr(kRecall.size());
  for (const std::string& kind : recall_kinds())
    if (rest == "-" + kind || rest.starts_with("-" + kind + "-")) {
      read.kinds = {kind};
      rest.remove_prefix(kind.size() + 1);
      break;
    }
  if (rest.empty()) return read;
  if (rest[0] != '-' || rest.size() < 2 || rest[1] == '0') return std::nullopt;
  const auto number = std::from_chars(rest.data() + 1, rest.data() + rest.size(), read.length);
  if (number.ptr != rest.data() + rest.size() || rest[1] < '0' || rest[1] > '9') return std::nullopt;
  if (number.ec != std::errc() || read.length < kRecallLeastLength || read.length > kRecallMostLength)
    fail(ErrorCode::invalid_argument, "environment is '{}', whose length is {}; allowed is {} to {} words", name.substr(0, 60), rest.substr(1, 40),
         kRecallLeastLength, kRecallMostLength);
  return read;
}
}  // namespace

std::vector<std::string> recall_environment_names() {
  std::vector<std::string> names = {std::string(kRecall)};
  for (const std::string& kind : recall_kinds()) names.push_back(fmt::format("{}-{}", kRecall, kind));
  return names;
}

bool is_recall(std::string_view name) { return read_recall_name(name).has_value(); }

std::unique_ptr<OneTurnEnvironment> make_recall_environment(const std::string& name) {
  std::optional<RecallName> read = read_recall_name(name);
  if (!read) fail(ErrorCode::internal, "'{}' is no name of recall", name);
  return std::make_unique<RecallEnvironment>(name, std::move(read->kinds), read->length);
}

}  // namespace lockstep
