// The measurement of guesses ahead: its counts are those of what was guessed, and a token that differs is counted.
#include "serving/draft_evaluation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "serving/loading.h"

namespace lockstep {
namespace {

struct DraftTrial {
  OpenedModel opened = open_model({.model = LOCKSTEP_SOURCE_DIR "/models/countdown-glm", .threads = 2});
  std::shared_ptr<Executor> executor = std::make_shared<Executor>();  // both services use its runtime
  GenerationService service(const std::string& sources) const {
    ServingOptions options;
    options.engine.drafts = parse_drafts(sources, 4);
    ServingModel model = serving_model(opened);
    model.executor = executor;
    return GenerationService(std::move(model), options);
  }
  std::vector<Request> requests(float temperature, std::uint64_t seed) const {
    std::vector<Request> all;
    for (const char* prompt : {"3 7 12=48:", "16 19 14=17:", "3 7 12=48:", "5 6 7=18:", "3 7 12=48:"})
      all.push_back({.prompt = opened.tokenizer->encode(prompt, true),
                     .sampling = {.temperature = temperature, .seed = seed, .max_tokens = 40, .sample_index = static_cast<std::int32_t>(all.size())}});
    return all;
  }
};

TEST(DraftEvaluation, CountsWhatWasGuessedAndFindsNoDifference) {
  const DraftTrial trial;
  GenerationService without = trial.service("off"), with = trial.service("ngram,siblings");
  const DraftEvaluation e = evaluate_drafts(without, with, trial.requests(0, 3), 2);
  EXPECT_EQ(e.prompts, 5);
  EXPECT_EQ(e.tokens, 200);
  EXPECT_EQ(e.different, 0);
  EXPECT_GT(e.drafts.accepted, 0);
  EXPECT_GT(e.accepted_length(), 1);
  EXPECT_LE(e.accepted_length(), 5);
  EXPECT_LT(e.forwards_with, e.forwards_without);
  double share = 0;
  for (std::size_t k = 0; k < 4; ++k) {
    if (k > 0) EXPECT_LE(e.accepted_share(k), e.accepted_share(k - 1)) << k;
    share += e.accepted_share(k);
  }
  EXPECT_NEAR(e.accepted_length(), 1 + share, 1e-12);
}

TEST(DraftEvaluation, ADifferentTokenIsCounted) {
  Generation a;
  for (std::int32_t id = 0; id < 3; ++id) a.tokens.push_back({.id = id, .raw_logprob = -1, .sampling_logprob = -1});
  Generation b = a;
  EXPECT_EQ(different_tokens(a, b), 0);
  b.tokens[1].sampling_logprob = std::nextafter(-1.0f, 0.0f);
  EXPECT_EQ(different_tokens(a, b), 1);
  b.tokens[2].id = 7;
  b.tokens.push_back({});
  EXPECT_EQ(different_tokens(a, b), 3);
}

}  // namespace
}  // namespace lockstep
