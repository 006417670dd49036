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
constexpr std::string_view kTo = "..", kAsked = "asked-";
constexpr std::int64_t kRecallUsualLength = 256;
constexpr std::uint64_t kRecallLengthSeed = 0x4C656E677468, kRecallAskedSeed = 0x41736B6564;  // "Length", "Asked": apart from what draws the texts

struct RecallRange {
  std::int64_t least = 0, most = 0;
};

// As many problems of each doubling of the number: of 16 to 64 words half have 16 to 31, half 32 to 64.
std::int64_t drawn_between(const RecallRange& range, std::uint64_t seed, std::uint64_t index) {
  if (range.least == range.most) return range.least;
  std::uint32_t doublings = 0;
  while (range.least << (doublings + 1) <= range.most) ++doublings;
  RandomSequence random(seed, RandomStream::environment, index);
  const std::uint32_t doubling = doublings == 0 ? 0 : random.below(doublings);
  const std::int64_t least = range.least << doubling, most = doubling + 1 >= doublings ? range.most : 2 * least - 1;
  return least + random.below(static_cast<std::uint32_t>(most - least + 1));
}

struct RecallName {
  std::vector<std::string> kinds;
  RecallRange lengths{kRecallUsualLength, kRecallUsualLength}, asked{kRecallMostQueries, kRecallMostQueries};
};

// Its problems are read from their text; Problem::data is empty.
class RecallEnvironment final : public OneTurnEnvironment {
 public:
  RecallEnvironment(std::string name, RecallName of) : name_(std::move(name)), of_(std::move(of)) {}
  std::string name() const override { return name_; }
  std::vector<std::string> domains() const override { return of_.kinds; }

  Problem problem(Split split, std::uint64_t seed, std::uint64_t index) const override {
    const std::string& kind = of_.kinds[index % of_.kinds.size()];
    const std::int64_t length = drawn_between(of_.lengths, seed ^ kRecallLengthSeed, index), asked = drawn_between(of_.asked, seed ^ kRecallAskedSeed, index);
    RecallProblem made = make_recall_problem(kind, length, split, seed, index, asked);
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
  RecallName of_;
};

// What a number of a name is of, and what is allowed.
struct RecallNumber {
  std::string_view what, unit;
  RecallRange allowed;
};

// Nothing where a text is no number; one that is not allowed is one that make_recall_problem refuses, here already.
std::optional<std::int64_t> read_number(std::string_view name, const RecallNumber& of, std::string_view text) {
  if (text.empty() || text[0] < '1' || text[0] > '9') return std::nullopt;
  std::int64_t value = 0;
  const auto number = std::from_chars(text.data(), text.data() + text.size(), value);
  if (number.ptr != text.data() + text.size()) return std::nullopt;
  if (number.ec != std::errc() || value < of.allowed.least || value > of.allowed.most)
    fail(ErrorCode::invalid_argument, "environment is '{}', whose {} is {}; allowed is {} to {} {}", name.substr(0, 60), of.what, text.substr(0, 40),
         of.allowed.least, of.allowed.most, of.unit);
  return value;
}

// "64" or "16..256". Nothing where it is neither.
std::optional<RecallRange> read_range(std::string_view name, const RecallNumber& of, std::string_view text) {
  const std::size_t to = text.find(kTo);
  const std::optional<std::int64_t> least = read_number(name, of, text.substr(0, to));
  const std::optional<std::int64_t> most = to == std::string_view::npos ? least : read_number(name, of, text.substr(to + kTo.size()));
  if (!least || !most) return std::nullopt;
  if (*least > *most) fail(ErrorCode::invalid_argument, "environment is '{}', whose {}s go down; write the smaller one first", name.substr(0, 60), of.what);
  return RecallRange{*least, *most};
}

// Nothing where a name is not one of recall. Error invalid_argument for a number that is not allowed, for numbers that go down, and for questions of a kind
// that asks one.
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
  if (!rest.starts_with(kAsked)) {
    const std::size_t end = rest.find('-');
    const std::optional<RecallRange> lengths = read_range(name, {"length", "words", {kRecallLeastLength, kRecallMostLength}}, rest.substr(0, end));
    if (!lengths) return std::nullopt;
    read.lengths = *lengths;
    if (end == std::string_view::npos) return read;
    rest.remove_prefix(end + 1);
    if (!rest.starts_with(kAsked)) return std::nullopt;
  }
  const std::optional<RecallRange> asked = read_range(name, {"number", "questions", {1, kRecallMostQueries}}, rest.substr(kAsked.size()));
  if (!asked) return std::nullopt;
  if (std::none_of(read.kinds.begin(), read.kinds.end(), recall_asks_several))
    fail(ErrorCode::invalid_argument, "environment is '{}', whose texts ask one question each; allowed is to leave '-{}...' out", name.substr(0, 60), kAsked);
  read.asked = *asked;
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
  return std::make_unique<RecallEnvironment>(name, *std::move(read));
}

}  // namespace lockstep
