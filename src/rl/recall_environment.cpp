#include "rl/recall_environment.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/philox.h"
#include "rl/recall.h"

namespace lockstep {
namespace {
constexpr std::string_view kRecall = "recall";
constexpr std::string_view kTo = "..";
constexpr std::int64_t kRecallUsualLength = 256;
constexpr std::uint64_t kRecallLengthSeed = 0x4C656E677468;  // "Length": apart from what draws the texts

struct RecallLengths {
  std::int64_t least = kRecallUsualLength, most = kRecallUsualLength;
};

// As many problems of each doubling of the length: of 16 to 64 words half have 16 to 31, half 32 to 64.
std::int64_t drawn_length(const RecallLengths& lengths, std::uint64_t seed, std::uint64_t index) {
  if (lengths.least == lengths.most) return lengths.least;
  std::uint32_t doublings = 0;
  while (lengths.least << (doublings + 1) <= lengths.most) ++doublings;
  RandomSequence random(seed ^ kRecallLengthSeed, RandomStream::environment, index);
  const std::uint32_t doubling = doublings == 0 ? 0 : random.below(doublings);
  const std::int64_t least = lengths.least << doubling, most = doubling + 1 >= doublings ? lengths.most : 2 * least - 1;
  return least + random.below(static_cast<std::uint32_t>(most - least + 1));
}

// Its problems are read from their text; Problem::data is empty.
class RecallEnvironment final : public OneTurnEnvironment {
 public:
  RecallEnvironment(std::string name, std::vector<std::string> kinds, const RecallLengths& lengths)
      : name_(std::move(name)), kinds_(std::move(kinds)), lengths_(lengths) {}
  std::string name() const override { return name_; }
  std::vector<std::string> domains() const override { return kinds_; }

  Problem problem(Split split, std::uint64_t seed, std::uint64_t index) const override {
    const std::string& kind = kinds_[index % kinds_.size()];
    RecallProblem made = make_recall_problem(kind, drawn_length(lengths_, seed, index), split, seed, index);
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
  RecallLengths lengths_;
};

struct RecallName {
  std::vector<std::string> kinds;
  RecallLengths lengths = {};
};

// Nothing where a text is no number; a length that is not allowed is one that make_recall_problem refuses, here already.
std::optional<std::int64_t> read_length(std::string_view name, std::string_view text) {
  if (text.empty() || text[0] < '1' || text[0] > '9') return std::nullopt;
  std::int64_t length = 0;
  const auto number = std::from_chars(text.data(), text.data() + text.size(), length);
  if (number.ptr != text.data() + text.size()) return std::nullopt;
  if (number.ec != std::errc() || length < kRecallLeastLength || length > kRecallMostLength)
    fail(ErrorCode::invalid_argument, "environment is '{}', whose length is {}; allowed is {} to {} words", name.substr(0, 60), text.substr(0, 40),
         kRecallLeastLength, kRecallMostLength);
  return length;
}

// Nothing where a name is not one of recall. Error invalid_argument for a length that is not allowed, and for lengths that go down.
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
  if (rest[0] != '-') return std::nullopt;
  rest.remove_prefix(1);
  const std::size_t to = rest.find(kTo);
  const std::optional<std::int64_t> least = read_length(name, rest.substr(0, to));
  const std::optional<std::int64_t> most = to == std::string_view::npos ? least : read_length(name, rest.substr(to + kTo.size()));
  if (!least || !most) return std::nullopt;
  if (*least > *most) fail(ErrorCode::invalid_argument, "environment is '{}', whose lengths go down; write the smaller one first", name.substr(0, 60));
  read.lengths = {*least, *most};
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
  return std::make_unique<RecallEnvironment>(name, std::move(read->kinds), read->lengths);
}

}  // namespace lockstep
