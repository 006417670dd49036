#include "rl/recall.h"

#include <algorithm>
#include <unordered_map>

#include "base/choice.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/philox.h"

namespace lockstep {
namespace {
constexpr std::uint64_t kRecallSplitSeed = 0x526563616C6C;  // "Recall": fixed for ever, or the splits would leak
constexpr std::uint64_t kRecallHeldOutShare = 8;
constexpr std::int64_t kWordsOfARecord = 4;        // of the document, on average
constexpr std::int64_t kRecordsOfAWrittenKey = 3;  // in `last`, on average
constexpr std::size_t kValueDigits = 2;

struct RecallWords {
  std::vector<std::string> keys, values, filler;
};

const RecallWords& recall_words() {
  static const RecallWords words = [] {
    RecallWords made;
    for (const char consonant : std::string_view("BDFGHJKLMNPRSTVZ"))
      for (const char vowel : std::string_view("aeio"))
        for (const std::string_view end : {"", "l", "n", "r"}) made.keys.push_back(fmt::format(" {}{}{}", consonant, vowel, end));
    for (int value = 0; value < 100; ++value) made.values.push_back(fmt::format("{:02}", value));
    for (const char consonant : std::string_view("bdfgklmn"))
      for (const char vowel : std::string_view("aeio")) made.filler.push_back(fmt::format(" {}{}", consonant, vowel));
    return made;
  }();
  return words;
}

// The first `count` of a uniform permutation of 0 .. of - 1.
std::vector<std::uint32_t> drawn_places(RandomSequence& random, std::int64_t count, std::int64_t of) {
  std::vector<std::uint32_t> places(static_cast<std::size_t>(of));
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = static_cast<std::uint32_t>(i);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
    std::swap(places[i], places[i + random.below(static_cast<std::uint32_t>(places.size() - i))]);
  places.resize(static_cast<std::size_t>(count));
  return places;
}

std::string drawn_prompt(std::string_view kind, std::int64_t length, std::int64_t most_asked, RandomSequence& random) {
  const RecallWords& words = recall_words();
  const std::int64_t records = kind == "needle" ? 1 : std::clamp<std::int64_t>(length / kWordsOfARecord, 2, kRecallMostRecords);
  const std::int64_t keys = kind == "last" ? std::max<std::int64_t>(records / kRecordsOfAWrittenKey, 1) : records;
  const std::int64_t asked = recall_asks_several(kind) ? std::min(keys, most_asked) : 1;
  const std::vector<std::uint32_t> used = drawn_places(random, keys, static_cast<std::int64_t>(words.keys.size()));
  std::vector<int> values(used.size(), -1);
  std::string text;
  text.reserve(static_cast<std::size_t>(length) * 4);
  const std::vector<std::uint32_t> order = drawn_places(random, records, records);
  std::size_t written = 0;
  for (std::int64_t left = length; left > 0;) {
    const std::int64_t records_left = records - static_cast<std::int64_t>(written), places_left = left - records_left;  // a record stands at one place
    if (random.below(static_cast<std::uint32_t>(places_left)) >= static_cast<std::uint32_t>(records_left)) {
      text += words.filler[random.below(static_cast<std::uint32_t>(words.filler.size()))];
      left -= 1;
      continue;
    }
    const std::size_t key = order[written++] % used.size();
    const auto values_left = static_cast<std::uint32_t>(words.values.size()) - (values[key] < 0 ? 0 : 1);
    const int drawn = static_cast<int>(random.below(values_left));
    values[key] = values[key] >= 0 && drawn >= values[key] ? drawn + 1 : drawn;  // another one than before
    text += words.keys[used[key]] + words.values[static_cast<std::size_t>(values[key])];
    left -= 2;
  }
  text += '?';
  for (const std::uint32_t key : drawn_places(random, asked, keys)) text += words.keys[used[key]];
  return text + ':';
}

// The next word of a text, from its blank up to the next one's, taken off its front; empty where none begins.
std::string_view next_word(std::string_view& rest) {
  if (rest.empty() || rest[0] != ' ') return {};
  const std::string_view word = rest.substr(0, rest.find(' ', 1));
  rest.remove_prefix(word.size());
  return word;
}

template <class List>
bool has_word(const List& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

// " Bal17" as " Bal" and "17"; both empty where a word is no record.
std::pair<std::string_view, std::string_view> record_parts(std::string_view word) {
  if (word.size() <= kValueDigits) return {};
  const std::string_view key = word.substr(0, word.size() - kValueDigits), value = word.substr(key.size());
  if (!std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; })) return {};
  return has_word(recall_words().keys, key) ? std::pair{key, value} : std::pair<std::string_view, std::string_view>{};
}
}  // namespace

std::vector<std::string> recall_kinds() { return {"needle", "keys", "queries", "last"}; }
std::vector<std::string> recall_keys() { return recall_words().keys; }
std::vector<std::string> recall_values() { return recall_words().values; }
std::vector<std::string> recall_filler() { return recall_words().filler; }

std::uint64_t recall_id(std::string_view prompt) { return xxh3(prompt.data(), prompt.size(), kRecallSplitSeed); }
Split recall_split(std::string_view prompt) { return recall_id(prompt) % kRecallHeldOutShare == 0 ? Split::held_out : Split::train; }

bool recall_asks_several(std::string_view kind) { return kind == "queries" || kind == "last"; }

RecallProblem make_recall_problem(std::string_view kind, std::int64_t length, Split split, std::uint64_t seed, std::uint64_t index, std::int64_t asked) {
  check_choice("kind", kind, recall_kinds());
  if (length < kRecallLeastLength || length > kRecallMostLength)
    fail(ErrorCode::invalid_argument, "length is {}, allowed is {} to {}", length, kRecallLeastLength, kRecallMostLength);
  if (asked < 1 || asked > kRecallMostQueries) fail(ErrorCode::invalid_argument, "asked is {}, allowed is 1 to {}", asked, kRecallMostQueries);
  RandomSequence random(seed, RandomStream::environment, index);
  for (;;) {
    RecallProblem problem{.prompt = drawn_prompt(kind, length, asked, random), .answer = {}};
    if (recall_split(problem.prompt) != split) continue;
    problem.answer = recall_answer(problem.prompt);
    return problem;
  }
}

std::string recall_answer(std::string_view prompt) {
  const std::size_t question = prompt.find('?');
  if (question == std::string_view::npos || prompt.back() != ':') return {};
  std::string_view document = prompt.substr(0, question), asked = prompt.substr(question + 1, prompt.size() - question - 2);
  std::unordered_map<std::string_view, std::string_view> values;
  while (!document.empty()) {
    const std::string_view word = next_word(document);
    const auto [key, value] = record_parts(word);
    if (!key.empty()) values[key] = value;
    else if (!has_word(recall_words().filler, word)) return {};
  }
  std::string answer;
  while (!asked.empty()) {
    const std::string_view key = next_word(asked);
    const auto found = values.find(key);
    if (key.empty() || found == values.end()) return {};
    answer.append(key).append(found->second);
  }
  return answer;
}

double recall_share(std::string_view right_answer, std::string_view completion) {
  int asked = 0, right = 0;
  while (!right_answer.empty()) {
    const std::string_view wanted = next_word(right_answer);
    if (wanted.empty()) return 0;
    ++asked;
    if (completion.empty()) continue;
    const std::string_view told = next_word(completion);
    if (record_parts(told).first.empty()) return 0;
    right += told == wanted;
  }
  return asked == 0 || !completion.empty() ? 0 : static_cast<double>(right) / asked;
}

}  // namespace lockstep
