// Tokens of two tokenizers laid upon each other, and what a teacher's answer says of the student's tokens. The calls themselves are tested against real
// servers (tests/api/test_far_teachers.py).
#include "jobs/far_teacher.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/error.h"
#include "jobs/text_alignment.h"
#include "text/tokenizer/tokenizer.h"

namespace lockstep {
namespace {

std::string runs_of(const std::vector<std::string>& own, const std::vector<std::string>& other) {
  std::string text;
  for (const AlignedTokens& run : align_tokens(character_starts(own), character_starts(other)))
    text += fmt::format("{}-{}={}-{} ", run.begin, run.end, run.other_begin, run.other_end);
  return text;
}

TEST(TextAlignment, RunsEndWhereBothEnd) {
  EXPECT_EQ(runs_of({"un", "believ", "able"}, {"unbeliev", "able"}), "0-2=0-1 2-3=1-2 ");
  EXPECT_EQ(runs_of({"abc"}, {"a", "b", "c"}), "0-1=0-3 ");
  EXPECT_EQ(runs_of({"ab", "c"}, {"a", "bc"}), "0-2=0-2 ");
  EXPECT_EQ(runs_of({"a", "b", ""}, {"a", "b"}), "0-1=0-1 1-2=1-2 ");                // an end token is no letter
  EXPECT_EQ(runs_of({"\xc3", "\xa9", "x"}, {"\xc3\xa9", "x"}), "0-2=0-1 2-3=1-2 ");  // a character in two tokens
  EXPECT_EQ(runs_of({}, {}), "");
}

// Any two ways to cut one text: runs are in order, of the same letters, and as short as can be.
RC_GTEST_PROP(TextAlignment, RunsAreTheSameLetters, (const std::vector<bool>& cuts, const std::vector<bool>& other_cuts)) {
  const std::size_t size = std::min(cuts.size(), other_cuts.size());
  RC_PRE(size > 0);
  const auto cut = [&](const std::vector<bool>& at) {
    std::vector<std::string> pieces(1);
    for (std::size_t i = 0; i < size; ++i) {
      pieces.back() += static_cast<char>('a' + i % 26);
      if (at[i] && i + 1 < size) pieces.emplace_back();
    }
    return pieces;
  };
  const std::vector<std::string> own = cut(cuts), other = cut(other_cuts);
  std::size_t at = 0, other_at = 0, common = 1;
  for (std::size_t i = 0; i + 1 < size; ++i) common += cuts[i] && other_cuts[i];
  const auto runs = align_tokens(character_starts(own), character_starts(other));
  RC_ASSERT(runs.size() == common);
  for (const AlignedTokens& run : runs) {
    RC_ASSERT(run.begin == at && run.other_begin == other_at);
    std::string a, b;
    for (; at < run.end; ++at) a += own[at];
    for (; other_at < run.other_end; ++other_at) b += other[other_at];
    RC_ASSERT(a == b);
  }
  RC_ASSERT(at == own.size() && other_at == other.size());
}

struct FarAnswers : testing::Test {
  Tokenizer tokenizer = Tokenizer::from_folder(LOCKSTEP_SOURCE_DIR "/models/countdown-glm");
  TeacherText text{letters("3 7 12=48:"), 4};
  std::vector<std::int32_t> letters(const std::string& of) const {  // a token each
    std::vector<std::int32_t> ids;
    for (const char one : of)
      for (const std::int32_t id : tokenizer.encode(std::string(1, one), false)) ids.push_back(id);
    return ids;
  }
  TeacherAnswer read(const std::string& logprobs, bool ids = false, bool own = false) {
    return read_far_answer("{\"choices\": [{" + logprobs + "}]}", text, tokenizer, ids, own);
  }
  std::string refusal(const std::string& logprobs, bool ids = false, bool own = false) {
    try {
      read(logprobs, ids, own);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  }
};

TEST_F(FarAnswers, ATeacherThatCutsElsewhereJudgesRuns) {
  ASSERT_EQ(text.tokens.size(), 10u);
  // "3 7 ", "12", "=4", "8:" of which the student wrote from the fifth letter on; a token that begins the text stands before.
  const TeacherAnswer answer = read(
      R"("logprobs": {"tokens": ["<s>", "3▁7▁", "12", "=4", "8", ":"], "token_logprobs": [null, -1, -2.5, -0.5, -0.25, -3],
      "text_offset": [0, 3, 7, 9, 11, 12]})");
  EXPECT_EQ(answer.group, (std::vector<std::int32_t>{0, 0, 1, 1, 2, 3}));
  EXPECT_EQ(answer.logprobs, (std::vector<float>{-2.5f, -2.5f, -0.5f, -0.5f, -0.25f, -3.0f}));
  // A token over the prompt's end says nothing of the letters behind it alone.
  EXPECT_EQ(read(R"("logprobs": {"tokens": ["3", " 7 12", "=48:"], "token_logprobs": [null, -1, -2], "text_offset": [0, 1, 6]})").group,
            (std::vector<std::int32_t>{-1, -1, 0, 0, 0, 0}));
}

TEST_F(FarAnswers, WhatIsNoAnswerIsRefused) {
  const auto has = [](const std::string& text, const std::string& part) { EXPECT_NE(text.find(part), std::string::npos) << text; };
  has(refusal(R"("text": "3")"), "no 'logprobs'");
  has(refusal(R"("logprobs": {"token_logprobs": [null, -1]})", true), "of 2 tokens, 10 were sent");
  has(refusal(R"("logprobs": {"tokens": ["3"], "token_logprobs": [null, -1], "text_offset": [0]})"), "not of one length");
  has(refusal(R"("logprobs": {"tokens": ["3 7 ", "21", "=48:"], "token_logprobs": [null, -1, -2], "text_offset": [0, 4, 6]})"),
      "'21' stands where the text has '12'");
  has(refusal(R"("logprobs": {"tokens": ["3 7 ", "12", "=48:"], "token_logprobs": [null, 1.5, -2], "text_offset": [0, 4, 6]})"), "at most 0");
  has(refusal(R"("logprobs": {"tokens": ["3 7 ", "12", "=48:"], "token_logprobs": [null, "x", -2], "text_offset": [0, 4, 6]})"), "allowed is a number");
  has(refusal(R"("prompt_logprobs": [null])", true, true), "of 1 tokens, 10 were sent");
}

TEST_F(FarAnswers, PromptLogprobsAreById) {
  std::string list = "null";
  for (std::size_t i = 1; i < text.tokens.size(); ++i)
    list += fmt::format(R"(, {{"999": {{"logprob": -9}}, "{}": {{"logprob": -{}.5, "rank": 2}}}})", text.tokens[i], i);
  const TeacherAnswer answer = read("\"prompt_logprobs\": [" + list + "]", true, true);
  EXPECT_EQ(answer.logprobs, (std::vector<float>{-4.5f, -5.5f, -6.5f, -7.5f, -8.5f, -9.5f}));
  EXPECT_TRUE(answer.group.empty());
}

}  // namespace
}  // namespace lockstep
