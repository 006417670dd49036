#include "rl/dozen.h"

#include <algorithm>
#include <charconv>

#include "base/choice.h"
#include "base/hash.h"
#include "base/philox.h"

namespace lockstep {
namespace {
constexpr std::uint64_t kDozenSplitSeed = 0x446F7A656E;  // "Dozen": fixed for ever, or the splits would leak
constexpr std::uint64_t kDozenHeldOutShare = 8;
using Numbers = std::vector<int>;

std::string with_spaces(const Numbers& numbers) { return fmt::format("{}", fmt::join(numbers, " ")); }

// What a task draws: its numbers, of which the first `single` stand for themselves and the others are one list.
struct DozenTask {
  std::string_view name;
  Numbers (*draw)(RandomSequence& random);
  std::string (*answer)(const Numbers& numbers);  // empty: not numbers of this task
  bool two_lists = false;                         // of equal length, with a bar between
};

int draw_up_to(RandomSequence& random, int most) { return static_cast<int>(random.below(static_cast<std::uint32_t>(most) + 1)); }

Numbers draw_list(RandomSequence& random, int least, int most, int largest) {
  Numbers list(static_cast<std::size_t>(least + draw_up_to(random, most - least)));
  for (int& number : list) number = draw_up_to(random, largest);
  return list;
}

Numbers draw_digits(RandomSequence& random) { return draw_list(random, 5, 8, 9); }
Numbers draw_pair(RandomSequence& random) { return draw_list(random, 2, 2, 999); }

// A digit of few, so that it comes again.
Numbers draw_repeats(RandomSequence& random) {
  const int shift = draw_up_to(random, 6);
  Numbers list = draw_list(random, 5, 8, 3);
  for (int& number : list) number += shift;
  return list;
}

const std::vector<DozenTask>& dozen_rows() {
  static const std::vector<DozenTask> rows = {
      {"reverse", draw_digits,
       [](const Numbers& n) {
         return with_spaces({n.rbegin(), n.rend()});
       }},
      {"sort", draw_digits,
       [](const Numbers& n) {
         Numbers sorted = n;
         std::sort(sorted.begin(), sorted.end());
         return with_spaces(sorted);
       }},
      {"add", draw_pair, [](const Numbers& n) { return n.size() == 2 ? std::to_string(n[0] + n[1]) : std::string(); }},
      {"subtract",
       [](RandomSequence& random) {
         Numbers pair = draw_pair(random);
         std::sort(pair.rbegin(), pair.rend());
         return pair;
       },
       [](const Numbers& n) { return n.size() == 2 && n[0] >= n[1] ? std::to_string(n[0] - n[1]) : std::string(); }},
      {"maximum", [](RandomSequence& random) { return draw_list(random, 3, 6, 99); },
       [](const Numbers& n) { return n.empty() ? std::string() : std::to_string(*std::max_element(n.begin(), n.end())); }},
      // How often the first number is among the others.
      {"count",
       [](RandomSequence& random) {
         Numbers list = draw_repeats(random);
         list.insert(list.begin(), list[random.below(static_cast<std::uint32_t>(list.size()))]);
         return list;
       },
       [](const Numbers& n) { return n.size() < 2 ? std::string() : std::to_string(std::count(n.begin() + 1, n.end(), n[0])); }},
      // Of the sum.
      {"parity", draw_digits,
       [](const Numbers& n) {
         int sum = 0;
         for (const int number : n) sum += number;
         return std::string(sum % 2 == 0 ? "even" : "odd");
       }},
      // The others, to the left by the first number.
      {"shift",
       [](RandomSequence& random) {
         Numbers list = draw_digits(random);
         list.insert(list.begin(), 1 + draw_up_to(random, 3));
         return list;
       },
       [](const Numbers& n) {
         if (n.size() < 2 || n[0] < 0 || n[0] >= static_cast<int>(n.size())) return std::string();
         Numbers list(n.begin() + 1, n.end());
         std::rotate(list.begin(), list.begin() + n[0] % static_cast<int>(list.size()), list.end());
         return with_spaces(list);
       }},
      // Each where it comes first.
      {"deduplicate", draw_repeats,
       [](const Numbers& n) {
         Numbers kept;
         for (const int number : n)
           if (std::find(kept.begin(), kept.end(), number) == kept.end()) kept.push_back(number);
         return with_spaces(kept);
       }},
      {"interleave",
       [](RandomSequence& random) {
         const int half = 3 + draw_up_to(random, 1);
         return draw_list(random, 2 * half, 2 * half, 9);
       },
       [](const Numbers& n) {
         Numbers mixed;
         for (std::size_t i = 0; i < n.size() / 2; ++i) mixed.push_back(n[i]), mixed.push_back(n[n.size() / 2 + i]);
         return n.size() % 2 == 0 ? with_spaces(mixed) : std::string();
       },
       true},
      {"compare",
       [](RandomSequence& random) {
         Numbers pair = draw_pair(random);
         if (random.below(3) == 0) pair[1] = pair[0];
         return pair;
       },
       [](const Numbers& n) {
         return std::string(n.size() != 2 ? "" : n[0] < n[1] ? "<" : n[0] > n[1] ? ">" : "=");
       }},
      {"remainder",
       [](RandomSequence& random) {
         return Numbers{draw_up_to(random, 9999), 2 + draw_up_to(random, 7)};
       },
       [](const Numbers& n) { return n.size() == 2 && n[1] > 0 ? std::to_string(n[0] % n[1]) : std::string(); }},
  };
  return rows;
}

const DozenTask* find_dozen_task(std::string_view name) {
  for (const DozenTask& row : dozen_rows())
    if (row.name == name) return &row;
  return nullptr;
}

std::string dozen_prompt(const DozenTask& task, const Numbers& numbers) {
  if (!task.two_lists) return fmt::format("{} {}:", task.name, with_spaces(numbers));
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  return fmt::format("{} {} | {}:", task.name, with_spaces({numbers.begin(), middle}), with_spaces({middle, numbers.end()}));
}
}  // namespace

std::vector<std::string> dozen_tasks() {
  std::vector<std::string> names;
  for (const DozenTask& row : dozen_rows()) names.emplace_back(row.name);
  return names;
}

std::uint64_t dozen_id(std::string_view prompt) { return xxh3(prompt.data(), prompt.size(), kDozenSplitSeed); }
Split dozen_split(std::string_view prompt) { return dozen_id(prompt) % kDozenHeldOutShare == 0 ? Split::held_out : Split::train; }

DozenProblem make_dozen_problem(std::string_view task, Split split, std::uint64_t seed, std::uint64_t index) {
  const DozenTask* row = find_dozen_task(task);
  if (!row) fail_choice("task", task, dozen_tasks());
  RandomSequence random(seed, RandomStream::environment, index);
  for (;;) {
    const Numbers numbers = row->draw(random);
    DozenProblem problem{.prompt = dozen_prompt(*row, numbers), .answer = row->answer(numbers)};
    if (dozen_split(problem.prompt) == split) return problem;
  }
}

std::string dozen_answer(std::string_view prompt) {
  const std::size_t blank = prompt.find(' ');
  const DozenTask* row = find_dozen_task(prompt.substr(0, blank));
  if (!row || blank == std::string_view::npos || prompt.back() != ':') return {};
  Numbers numbers;
  std::string_view rest = prompt.substr(blank + 1, prompt.size() - blank - 2);
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    int number = 0;
    const auto read = std::from_chars(rest.data(), rest.data() + end, number);
    if (read.ec == std::errc() && read.ptr == rest.data() + end) numbers.push_back(number);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return dozen_prompt(*row, numbers) == prompt ? row->answer(numbers) : std::string();
}

}  // namespace lockstep
