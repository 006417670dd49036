// What each source guesses, from texts alone; how many guesses pay.
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "engine/drafts/draft_length.h"
#include "engine/drafts/mtp_source.h"
#include "engine/drafts/ngram_source.h"
#include "engine/drafts/prediction_source.h"
#include "engine/drafts/sibling_source.h"

namespace lockstep {
namespace {

using DraftText = std::vector<std::int32_t>;

DraftText proposed(DraftSource& source, const DraftText& text, std::int64_t prompt, std::int64_t most, const DraftText& draft = {}) {
  DraftText out;
  source.propose({.text = text, .prompt_length = prompt, .draft = draft, .most = most}, out);
  return out;
}

TEST(DraftSources, MtpGoesOnWithItsOwnWords) {
  DraftMaterial none;
  EXPECT_EQ(make_mtp_source(none), nullptr);
  std::vector<std::int32_t> says;
  DraftMaterial material{.layer_says = &says};
  const auto source = make_mtp_source(material);
  EXPECT_EQ(proposed(*source, {1, 2}, 2, 3), DraftText{});
  says = {7, 8, 9};
  EXPECT_EQ(proposed(*source, {1, 2}, 2, 3), (DraftText{7, 8, 9}));
  EXPECT_EQ(proposed(*source, {1, 2}, 2, 2), (DraftText{7, 8}));
  EXPECT_EQ(proposed(*source, {1, 2}, 2, 3, {7}), (DraftText{8, 9}));  // what was forced is what it says, too
  EXPECT_EQ(proposed(*source, {1, 2}, 2, 3, {8}), DraftText{});
  EXPECT_EQ(proposed(*source, {1, 2}, 2, 3, {7, 8, 9}), DraftText{});
}

TEST(DraftSources, NgramGoesOnAsItDidBefore) {
  DraftMaterial none;
  const auto source = make_ngram_source(none);
  EXPECT_EQ(proposed(*source, {1, 2, 3, 4, 5, 1, 2}, 7, 3), (DraftText{3, 4, 5}));
  EXPECT_EQ(proposed(*source, {1, 2, 3, 4, 5, 1, 2, 9}, 7, 3), DraftText{});
  EXPECT_EQ(proposed(*source, {1, 2, 3, 4, 5, 1, 2, 9, 3}, 7, 3), DraftText{});  // one word says too little
  EXPECT_EQ(proposed(*source, {1, 2, 3, 4, 5, 1, 2, 9, 3}, 7, 3, {4}), (DraftText{5, 1, 2}));
  // Of several the latest; and a repetition goes on behind the end of the text.
  EXPECT_EQ(proposed(*source, {1, 2, 3, 1, 2, 4, 1, 2}, 1, 2), (DraftText{4, 1}));
  EXPECT_EQ(proposed(*source, {7, 8, 7, 8}, 1, 5), (DraftText{7, 8, 7, 8, 7}));
  EXPECT_EQ(proposed(*source, {6, 6, 6}, 1, 4), (DraftText{6, 6, 6, 6}));
  // Shorter again: tokens were taken back.
  EXPECT_EQ(proposed(*source, {9}, 1, 1), DraftText{});
  EXPECT_EQ(proposed(*source, {9, 2, 3, 9, 2, 5, 9, 2}, 1, 1), DraftText{5});
  EXPECT_EQ(proposed(*source, {9, 2, 3, 9, 2}, 1, 1), DraftText{3});
  // A text of any length; its older half is forgotten.
  DraftText longer(40000);
  std::iota(longer.begin(), longer.end(), 100);
  longer.push_back(longer[35000]);
  longer.push_back(longer[35001]);
  EXPECT_EQ(proposed(*source, longer, 1, 2), (DraftText{35102, 35103}));
  longer.push_back(longer[100]);
  longer.push_back(longer[101]);
  EXPECT_EQ(proposed(*source, longer, 1, 2), DraftText{});
}

TEST(DraftSources, APredictionIsFollowedAndFoundAgain) {
  DraftMaterial material{.prediction = {10, 11, 12, 13, 14, 15, 16, 17}};
  const auto source = make_prediction_source(material);
  EXPECT_EQ(proposed(*source, {1, 2}, 2, 3), (DraftText{10, 11, 12}));
  EXPECT_EQ(proposed(*source, {1, 2}, 2, 3, {10, 11}), (DraftText{12, 13, 14}));
  EXPECT_EQ(proposed(*source, {1, 2, 10, 11, 12}, 2, 9), (DraftText{13, 14, 15, 16, 17}));
  EXPECT_EQ(proposed(*source, {1, 2, 10, 11, 12, 99}, 2, 3), DraftText{});
  EXPECT_EQ(proposed(*source, {1, 2, 10, 11, 12, 99, 14}, 2, 3), DraftText{});
  EXPECT_EQ(proposed(*source, {1, 2, 10, 11, 12, 99, 14, 15}, 2, 3), (DraftText{16, 17}));
  EXPECT_EQ(proposed(*source, {1, 2, 10}, 2, 2), (DraftText{11, 12}));  // taken back
  DraftMaterial nothing;
  EXPECT_EQ(make_prediction_source(nothing), nullptr);
}

TEST(DraftSources, SiblingsSeeAnswersToTheirOwnPromptAndOwner) {
  SiblingTexts texts(400);
  const DraftText prompt{1, 2, 3};
  const auto make = [&](std::uint64_t owner, const DraftText& of) {
    DraftMaterial material{.prompt = of, .owner = owner, .siblings = &texts};
    return make_sibling_source(material);
  };
  const auto first = make(1, prompt), second = make(1, prompt), stranger = make(2, prompt), other = make(1, {1, 2, 4});
  EXPECT_EQ(proposed(*first, prompt, 3, 4), DraftText{});                 // nobody has said anything
  EXPECT_EQ(proposed(*first, {1, 2, 3, 7, 8, 9, 5}, 3, 4), DraftText{});  // its own text is not a sibling's
  EXPECT_EQ(proposed(*second, prompt, 3, 3), (DraftText{7, 8, 9}));
  EXPECT_EQ(proposed(*second, {1, 2, 3, 7}, 3, 9), (DraftText{8, 9, 5}));
  EXPECT_EQ(proposed(*second, {1, 2, 3, 7}, 3, 9, {8, 9}), DraftText{5});
  EXPECT_EQ(proposed(*second, {1, 2, 3, 6, 8, 9}, 3, 9), DraftText{5});  // found again
  EXPECT_EQ(proposed(*stranger, prompt, 3, 3), DraftText{});
  EXPECT_EQ(proposed(*other, {1, 2, 4}, 3, 3), DraftText{});
  // Those who ended are remembered, and the least recently asked for go first.
  first->end({.text = DraftText{1, 2, 3, 7, 8, 9, 5, 5}, .prompt_length = 3});
  EXPECT_EQ(proposed(*make(1, prompt), {1, 2, 3, 8, 9, 5}, 3, 2), DraftText{5});
  for (std::int32_t i = 0; i < 50; ++i) {
    const DraftText own{i, i, i};
    DraftText answer = own;
    for (std::int32_t t = 0; t < 30; ++t) answer.push_back(t);
    make(1, own)->end({.text = answer, .prompt_length = 3});
    EXPECT_LE(texts.tokens(), 400u);
  }
  EXPECT_LE(texts.groups(), 10u);
  EXPECT_EQ(proposed(*make(1, prompt), prompt, 3, 3), DraftText{});
  EXPECT_EQ(proposed(*make(1, {49, 49, 49}), {49, 49, 49}, 3, 3), (DraftText{0, 1, 2}));
}

TEST(DraftSources, NamesAreRead) {
  const DraftOptions two = parse_drafts("ngram,siblings", 3);
  EXPECT_EQ(two.length, DraftOptions::Length::fixed);
  EXPECT_TRUE(two.has(DraftKind::ngram) && two.has(DraftKind::siblings) && !two.has(DraftKind::grammar));
  EXPECT_EQ(draft_names(two.sources), "siblings,ngram");
  EXPECT_EQ(two.tokens, 3);
  EXPECT_EQ(parse_drafts("off", 5).length, DraftOptions::Length::off);
  const DraftOptions all = parse_drafts("auto", 5);
  EXPECT_EQ(all.length, DraftOptions::Length::automatic);
  EXPECT_EQ(draft_names(all.sources), "grammar,prediction,siblings,mtp,ngram");
  const auto refused = [](const char* text, const char* part) {
    try {
      parse_drafts(text, 5, "--speculate");
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_NE(e.message().find(part), std::string::npos) << e.message();
      EXPECT_NE(e.message().find("--speculate is '"), std::string::npos) << e.message();
    }
  };
  refused("ngrams", "did you mean 'ngram'?");
  refused("ngram,", "allowed are auto, off, or sources with commas: grammar,prediction,siblings,mtp,ngram");
  refused("scripted", "allowed are");
  refused("eagle", "allowed are");
  // A source that a model lacks is refused where it is named; "auto" takes what there is.
  for (const bool layer : {false, true}) {
    EXPECT_NO_THROW(check_draft_sources(parse_drafts("auto", 5), layer, "f"));
    EXPECT_NO_THROW(check_draft_sources(parse_drafts("ngram", 5), layer, "f"));
    EXPECT_NO_THROW(check_draft_sources(parse_drafts("off", 5), layer, "f"));
  }
  EXPECT_NO_THROW(check_draft_sources(parse_drafts("mtp,ngram", 5), true, "f"));
  try {
    check_draft_sources(parse_drafts("mtp,ngram", 5), false, "f");
    ADD_FAILURE() << "a layer that is not there was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    for (const char* part : {"f is 'mtp,ngram'", "allowed are auto, off, or sources with commas: grammar,prediction,siblings,ngram"})
      EXPECT_NE(e.message().find(part), std::string::npos) << e.message();
  }
  EXPECT_THROW(check_draft_tokens(0, "n"), Error);
  EXPECT_THROW(check_draft_tokens(9, "n"), Error);
}

TEST(DraftLength, CostsOfRowsAreMeasured) {
  StepCosts free, dear;
  for (int i = 0; i < 50; ++i) {
    const std::int64_t rows = 1 + i % 5;
    free.observe(rows, 0.010 + 0.0001 * static_cast<double>(rows));
    dear.observe(rows, 0.010 * static_cast<double>(rows));
  }
  EXPECT_LT(free.row_share(1), 0.05);
  EXPECT_GT(dear.row_share(1), 0.95);
  EXPECT_GT(free.row_share(200), 0.6);  // so many rows are what it costs
  DraftChance good, bad;
  for (int i = 0; i < 100; ++i) good.observe(true), bad.observe(false);
  EXPECT_GT(good.right(0.5), 0.9);
  EXPECT_LT(bad.right(0.5), 0.1);
  EXPECT_EQ(DraftChance().right(0.5), 0.5);
}

}  // namespace
}  // namespace lockstep
