#include "runs/run_settings.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep {
namespace {

std::string refusal_of_resume(const Json& before, const Json& now, const ResumeRule& rule = {}) {
  try {
    check_resumed_settings(before, now, rule);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(RunSettings, MathematicsStays) {
  const Json before = Json::object({{"steps", "4"}, {"seed", "1"}, {"threads", "2"}, {"learning_rate", "2e-05"}});
  Json now = before;
  now["learning_rate"] = "0.00002";
  now["threads"] = "8";
  now["steps"] = "6";
  EXPECT_EQ(refusal_of_resume(before, now), "");
  now["seed"] = "2";
  EXPECT_NE(refusal_of_resume(before, now).find("seed is \"2\", the run was begun with \"1\""), std::string::npos);
  now["seed"] = "1";
  now["steps"] = "3";
  EXPECT_NE(refusal_of_resume(before, now).find("not for fewer"), std::string::npos);
}

// Guesses may change while they are coupled to what the model samples; under rejection sampling what is said depends on them.
TEST(RunSettings, GuessesStayUnderRejectionSampling) {
  for (const char* acceptance : {"coupled", "rejection"})
    for (const char* key : {"rollout_speculation", "draft_tokens"}) {
      const Json before = Json::object({{"steps", "4"}, {"acceptance", acceptance}, {"rollout_speculation", "ngram"}, {"draft_tokens", "5"}});
      Json now = before;
      now[key] = key == std::string("draft_tokens") ? "3" : "ngram,grammar";
      const std::string refusal = refusal_of_resume(before, now);
      const bool refused = refusal.find(fmt::format("{} is", key)) != std::string::npos;
      EXPECT_EQ(refused, acceptance == std::string("rejection")) << key << ": " << refusal;
      now["acceptance"] = "another";
      EXPECT_NE(refusal_of_resume(before, now), "");
    }
}

TEST(RunSettings, AnOptionThatIsNewerThanTheRunHasItsDefaultUnlessItIsSet) {
  const Json before = Json::object({{"steps", "4"}}), now = Json::object({{"steps", "4"}, {"top_k", "0"}});
  EXPECT_EQ(refusal_of_resume(before, now, {.unsaid = {"top_k"}}), "");
  EXPECT_NE(refusal_of_resume(before, now, {.unsaid = {"top_p"}}).find("top_k is"), std::string::npos);
  EXPECT_NE(refusal_of_resume(now, Json::object({{"steps", "4"}, {"top_k", "5"}}), {.unsaid = {"top_k"}}), "");  // the run says what it was
}

TEST(RunSettings, MoreStepsDoNotMoveTheWarmUp) {
  const Json before = Json::object({{"steps", "40"}, {"warmup", "4"}}), cut = Json::object({{"steps", "5"}, {"warmup", "5"}});
  EXPECT_EQ(resumed_warmup(before, 10, false), 4);
  EXPECT_EQ(resumed_warmup(before, 10, true), 10);  // then it is refused, as any other change
  EXPECT_EQ(resumed_warmup(cut, 10, true), 5);
  EXPECT_EQ(resumed_warmup(cut, 3, true), 3);
  EXPECT_EQ(resumed_warmup(Json::object(), 3, false), 0);
}

}  // namespace
}  // namespace lockstep
