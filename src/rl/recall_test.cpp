#include "rl/recall.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "rl/evaluation.h"
#include "rl/recall_environment.h"

namespace lockstep {
namespace {

TEST(Recall, Answers) {
  // Worked out by hand.
  const std::map<std::string, std::string> known = {{" ba de Bal17 mi Kon03 fo? Kon Bal:", " Kon03 Bal17"},
                                                    {" Ba00? Ba:", " Ba00"},
                                                    {" Ba00 Ba11 no Ba22? Ba:", " Ba22"},
                                                    {" Ba10 Bal20 Ba30 Ban40? Ban Ba Bal:", " Ban40 Ba30 Bal20"}};
  for (const auto& [prompt, answer] : known) EXPECT_EQ(recall_answer(prompt), answer) << prompt;
  for (const char* wrong : {"", ":", "?", "?:", " Ba00:", " Ba00?Ba:", " Ba00? Ba", " Ba00? Bal:", " Ba00? Ba: ", "Ba00? Ba:", " Ba0? Ba:", " Ba000? Ba:",
                            " Ba00 xx? Ba:", " Ba00  ba? Ba:", " Ba00? Ba00:", " Ba00? Ba :", " Baz00? Baz:"})
    EXPECT_EQ(recall_answer(wrong), "") << wrong;
}

TEST(Recall, RewardIsTheShareRight) {
  const std::string right = " Kon03 Bal17 Ba00 Zir99";
  const std::map<std::string, double> known = {{right, 1.0},
                                               {" Kon03 Bal17 Ba00 Zir98", 0.75},
                                               {" Kon03 Bal17", 0.5},
                                               {" Kon04 Bal17", 0.25},
                                               {" Bal17 Kon03 Ba00 Zir99", 0.5},  // an answer stands at its question's place
                                               {" Kon03", 0.25},
                                               {"", 0}};
  for (const auto& [completion, share] : known) EXPECT_EQ(recall_share(right, completion), share) << completion;
}

// Every value of a key, more answers than questions, another form: nothing.
TEST(Recall, CheatsEarnNothing) {
  using namespace std::string_literals;
  for (const std::string& kind : recall_kinds()) {
    const auto environment = make_recall_environment("recall-" + kind + "-64");
    for (std::uint64_t index = 0; index < 20; ++index) {
      const Problem problem = environment->problem(Split::train, 2, index);
      const std::string right = environment->reference_completion(problem);
      EXPECT_EQ(environment->reward(problem, right), 1.0);
      std::string every;
      for (const std::string& value : recall_values()) every += right.substr(0, right.find_first_of("0123456789")) + value;
      std::string values;
      for (const char c : right)
        if (c == ' ' || (c >= '0' && c <= '9')) values += c;
      for (const std::string& cheat : {right.substr(1), right + " ", right + right, " " + right, right + ":", right + "\0"s, right + "<|eos|>",
                                       right + right.substr(0, right.find(' ', 1)), every, values, problem.prompt, problem.prompt + right,
                                       problem.prompt.substr(0, problem.prompt.find('?')), "\n" + right, right + "\n", std::string(" "), std::string("?")})
        EXPECT_EQ(environment->reward(problem, cheat), 0.0) << problem.prompt << "|" << cheat;
    }
  }
  EXPECT_THROW(make_recall_environment("recall")->reward(Problem{}, " Ba00"), Error);
}

std::int64_t words_of(std::string_view prompt, const std::vector<std::string>& list) {
  std::int64_t count = 0;
  for (const std::string& word : list)
    for (std::size_t at = prompt.find(word); at != std::string_view::npos; at = prompt.find(word, at + 1)) {
      const std::size_t end = at + word.size();
      count += end == prompt.size() || prompt[end] < 'a' || prompt[end] > 'z';
    }
  return count;
}

TEST(Recall, ProblemsHaveTheirLengthAndKindAndSplit) {
  const std::set<std::string> keys = [] {
    const std::vector<std::string> list = recall_keys();
    return std::set<std::string>(list.begin(), list.end());
  }();
  EXPECT_EQ(keys.size(), 256u);
  EXPECT_EQ(recall_values().size(), 100u);
  EXPECT_EQ(recall_filler().size(), 32u);
  for (const std::string& kind : recall_kinds())
    for (const std::int64_t length : {16, 17, 100, 5000}) {
      std::set<std::string> train, held_out, answers;
      double depth = 0;
      const std::uint64_t problems = length == 5000 ? 8 : 200;
      for (const Split split : {Split::train, Split::held_out})
        for (std::uint64_t index = 0; index < problems; ++index) {
          const RecallProblem problem = make_recall_problem(kind, length, split, 3, index);
          EXPECT_EQ(problem.prompt, make_recall_problem(kind, length, split, 3, index).prompt);
          EXPECT_EQ(problem.answer, recall_answer(problem.prompt)) << problem.prompt;
          EXPECT_FALSE(problem.answer.empty()) << problem.prompt;
          EXPECT_EQ(recall_split(problem.prompt), split);
          (split == Split::train ? train : held_out).insert(problem.prompt);
          answers.insert(problem.answer);
          const std::string document = problem.prompt.substr(0, problem.prompt.find('?')), asked = problem.prompt.substr(problem.prompt.find('?'));
          const std::int64_t records = words_of(document, recall_keys()), questions = words_of(asked, recall_keys());
          EXPECT_EQ(2 * records + words_of(document, recall_filler()), length) << problem.prompt;
          EXPECT_EQ(records, kind == "needle" ? 1 : std::min<std::int64_t>(length / 4, 256));
          const std::int64_t written = kind == "last" ? std::max<std::int64_t>(records / 3, 1) : records;
          EXPECT_EQ(questions, kind == "needle" || kind == "keys" ? 1 : std::min<std::int64_t>(written, 32));
          EXPECT_EQ(static_cast<std::int64_t>(std::count(problem.answer.begin(), problem.answer.end(), ' ')), questions);
          depth += static_cast<double>(document.find_first_of("0123456789")) / static_cast<double>(document.size()) / static_cast<double>(2 * problems);
        }
      for (const std::string& prompt : held_out) EXPECT_FALSE(train.contains(prompt)) << prompt;
      EXPECT_GE(answers.size(), problems) << kind;
      if (kind == "needle" && length < 5000) {
        EXPECT_NEAR(depth, 0.5, 0.1);
      }  // a needle lies anywhere
    }
  EXPECT_THROW(make_recall_problem("needles", 100, Split::train, 1, 0), Error);
  EXPECT_THROW(make_recall_problem("needle", 15, Split::train, 1, 0), Error);
  EXPECT_THROW(make_recall_problem("needle", kRecallMostLength + 1, Split::train, 1, 0), Error);
}

// In `last` the value that counts is not the first one, and a key's values in a row differ.
TEST(Recall, LastValuesDiffer) {
  int rewritten = 0;
  for (std::uint64_t index = 0; index < 50; ++index) {
    const RecallProblem problem = make_recall_problem("last", 200, Split::train, 1, index);
    const std::string document = problem.prompt.substr(0, problem.prompt.find('?'));
    for (std::size_t at = 0; at < problem.answer.size();) {
      const std::size_t end = std::min(problem.answer.find(' ', at + 1), problem.answer.size());
      const std::string key = problem.answer.substr(at, end - at - 2), value = problem.answer.substr(end - 2, 2);
      std::vector<std::string> values;
      for (std::size_t found = document.find(key); found != std::string::npos; found = document.find(key, found + 1))
        if (const char after = document[found + key.size()]; after >= '0' && after <= '9') values.push_back(document.substr(found + key.size(), 2));
      ASSERT_FALSE(values.empty());
      EXPECT_EQ(values.back(), value);
      EXPECT_EQ(std::adjacent_find(values.begin(), values.end()), values.end());
      rewritten += values.size() > 1 && values.front() != value;
      at = end;
    }
  }
  EXPECT_GT(rewritten, 200);
}

TEST(Recall, EnvironmentsOfOneAndOfAll) {
  const auto all = make_environment("recall");
  EXPECT_FALSE(all->many_turns());
  EXPECT_EQ(all->domains(), recall_kinds());
  for (std::uint64_t index = 0; index < 8; ++index) EXPECT_EQ(all->problem(Split::train, 1, index).domain, recall_kinds()[index % 4]);
  for (const std::string& kind : recall_kinds()) {
    const auto one = make_environment("recall-" + kind);
    EXPECT_EQ(one->domains(), std::vector<std::string>{kind});
    EXPECT_EQ(held_out_problems(*one, 1, 200).size(), 200u) << kind;
    const Problem problem = one->problem(Split::train, 1, 5);
    EXPECT_EQ(one->begin(problem)->step(one->begin(problem)->reference()).reward, 1.0);
  }
  const std::string longer = make_environment("recall-4096")->problem(Split::train, 1, 0).prompt;
  EXPECT_EQ(words_of(longer, recall_filler()) + 2, 4096);
  EXPECT_EQ(longer, make_environment("recall-needle-4096")->problem(Split::train, 1, 0).prompt);
  for (const char* wrong : {"recall-16..",
                            "recall-..64",
                            "recall-64..16",
                            "recall-16..64..256",
                            "recall-16...64",
                            "recall-15..64",
                            "recall-16..1048449",
                            "recall-",
                            "recall-lost",
                            "recall-last-",
                            "recall-last-x",
                            "recall-0256",
                            "recall--256",
                            "recall-+256",
                            "recall-256-last",
                            "recall4096",
                            "recall-15",
                            "recall-last-1048449",
                            "recall-99999999999999999999",
                            "recall-256 "})
    EXPECT_THROW(make_environment(wrong), Error) << wrong;
  try {
    make_environment("recall-15");
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("15; allowed is 16 to 1048448 words"), std::string::npos) << error.what();
  }
}

TEST(Recall, LengthsOfARange) {
  const auto range = make_environment("recall-queries-16..100"), one = make_environment("recall-queries-32..32"), usual = make_environment("recall-queries-32");
  std::map<std::int64_t, int> doublings;
  std::int64_t least = 1000, most = 0;
  for (std::uint64_t index = 0; index < 2000; ++index) {
    const std::string prompt = range->problem(Split::train, 1, index).prompt, document = prompt.substr(0, prompt.find('?'));
    // A filler word, and a record of two, begins with a blank; the value of a record ends with a digit.
    std::int64_t words = std::count(document.begin(), document.end(), ' ');
    for (std::size_t at = 1; at <= document.size(); ++at)
      if ((at == document.size() || document[at] == ' ') && document[at - 1] >= '0' && document[at - 1] <= '9') ++words;
    least = std::min(least, words), most = std::max(most, words);
    ++doublings[words < 32 ? 0 : 1];
    EXPECT_EQ(one->problem(Split::train, 1, index).prompt, usual->problem(Split::train, 1, index).prompt);
  }
  EXPECT_EQ(least, 16);
  EXPECT_EQ(most, 100);
  EXPECT_NEAR(doublings[0], 1000, 100);  // of 16 to 31 words, and of 32 to 100
}

std::int64_t questions_of(const std::string& prompt) { return words_of(prompt.substr(prompt.find('?')), recall_keys()); }

// As many problems with one question as with 2 or 3, with 4 to 7, with 8 to 16, where a text has so many keys; and lengths of their own.
TEST(Recall, QuestionsOfARange) {
  const auto range = make_recall_environment("recall-64..128-asked-1..16");
  std::map<std::string, std::map<int, int>> doublings;
  std::set<std::pair<std::int64_t, std::int64_t>> both;
  for (std::uint64_t index = 0; index < 4000; ++index) {
    const Problem problem = range->problem(Split::train, 1, index);
    const std::int64_t asked = questions_of(problem.prompt);
    EXPECT_EQ(range->reward(problem, range->reference_completion(problem)), 1.0);
    ++doublings[problem.domain][asked < 2 ? 0 : asked < 4 ? 1 : asked < 8 ? 2 : 3];
    if (problem.domain == "queries") both.insert({std::ssize(problem.prompt) / 50, asked});
    EXPECT_EQ(problem.prompt, range->problem(Split::train, 1, index).prompt);
  }
  for (const int doubling : {0, 1, 2, 3}) EXPECT_NEAR(doublings["queries"][doubling], 250, 60) << doubling;
  EXPECT_EQ(doublings["needle"], (std::map<int, int>{{0, 1000}}));
  EXPECT_EQ(doublings["keys"], (std::map<int, int>{{0, 1000}}));
  EXPECT_EQ(doublings["last"][3] > 0, true);
  EXPECT_GT(both.size(), 60u);  // a length does not say how many questions there are

  const auto three = make_environment("recall-queries-100-asked-3"), usual = make_environment("recall-queries-64"),
             all = make_environment("recall-queries-64-asked-16"), few = make_environment("recall-last-16-asked-8");
  for (std::uint64_t index = 0; index < 50; ++index) {
    EXPECT_EQ(questions_of(three->problem(Split::held_out, 2, index).prompt), 3);
    EXPECT_EQ(all->problem(Split::train, 2, index).prompt, usual->problem(Split::train, 2, index).prompt);  // a text of 64 words has 16 keys
    EXPECT_EQ(questions_of(few->problem(Split::train, 2, index).prompt), 1);                                // and one of 16 here has one
  }
  EXPECT_EQ(words_of(make_environment("recall-needle")->problem(Split::train, 1, 0).prompt, recall_filler()) + 2, 256);
  EXPECT_EQ(make_environment("recall-asked-2")->problem(Split::train, 1, 2).domain, "queries");
  for (const char* wrong : {"recall-64-asked", "recall-64-asked-", "recall-64-asked-0", "recall-64-asked-33", "recall-64-asked-2..1", "recall-64-asked-1..33",
                            "recall-64-asked-x", "recall-64-asked-2-", "recall-asked-2-64", "recall-64-", "recall-needle-64-asked-1", "recall-keys-asked-2",
                            "recall-64-aske-2", "recall-64-asked-1..2..3", "recall-lost-64-asked-1"})
    EXPECT_THROW(make_environment(wrong), Error) << wrong;
  const auto why = [](const char* name) {
    try {
      make_environment(name);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(why("recall-64-asked-33").find("whose number is 33; allowed is 1 to 32 questions"), std::string::npos) << why("recall-64-asked-33");
  EXPECT_NE(why("recall-needle-64-asked-1").find("ask one question each"), std::string::npos) << why("recall-needle-64-asked-1");
  EXPECT_THROW(make_recall_problem("queries", 64, Split::train, 1, 0, 0), Error);
  EXPECT_THROW(make_recall_problem("queries", 64, Split::train, 1, 0, 33), Error);
}

// A million words: one question for a record that may lie anywhere.
TEST(Recall, AMillionWords) {
  const RecallProblem problem = make_recall_problem("needle", kRecallMostLength, Split::train, 1, 0);
  EXPECT_EQ(std::count(problem.prompt.begin(), problem.prompt.end(), ' '),
            kRecallMostLength - 1 + 1);  // a record has one blank for two words, the question another
  EXPECT_EQ(recall_share(problem.answer, recall_answer(problem.prompt)), 1.0);
}

}  // namespace
}  // namespace lockstep
