#include "rl/agent_environment.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "rl/trajectory/conversation.h"
#include "rl/trajectory/reference.h"

namespace lockstep {
namespace {

TEST(AgentEnvironment, HasTheThirteenTasksInTurn) {
  const auto agent = make_environment("agent");
  const std::vector<std::string> domains = agent->domains();
  ASSERT_EQ(domains.size(), 13u);
  for (std::uint64_t index = 0; index < 39; ++index) {
    const Problem problem = agent->problem(Split::train, 3, index);
    EXPECT_EQ(problem.domain, domains[index % 13]) << index;
    const auto alone = make_environment(problem.domain == "lockbox" ? "lockbox" : "dozen-" + problem.domain);
    const Problem same = alone->problem(Split::train, 3, index);
    EXPECT_EQ(problem.prompt, same.prompt);
    const auto episode = agent->begin(problem), its = alone->begin(same);
    EXPECT_EQ(episode->task(), its->task());
    for (EpisodeStep step; !step.done;) {
      ASSERT_EQ(episode->reference(), its->reference());
      step = episode->step(its->reference());
      EXPECT_EQ(step.observation, its->step(its->reference()).observation);
      EXPECT_EQ(step.reward, step.done ? 1 : 0);
    }
  }
}

// In the tokens of models/agent-glm a window of 80 leaves lockbox three summaries, of windows and turns as small as the model is taught.
TEST(AgentEnvironment, ItsModelSeesFourWindows) {
  const Tokenizer tokenizer = Tokenizer::from_folder(std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "models/agent-glm");
  const std::int32_t end = tokenizer.encode("<|endoftext|>", false).at(0);
  const auto agent = make_environment("agent");
  for (std::uint64_t index = 0; index < 39; ++index) {
    const Problem problem = agent->problem(Split::train, 3, index);
    const Rollout rollout = reference_rollout(*agent, problem, tokenizer, end, {.compact_at = 80});
    EXPECT_EQ(rollout.chains.size(), problem.domain == "lockbox" ? 4u : 1u);
    EXPECT_LE(rollout.longest(), 16);
    for (const Chain& chain : rollout.chains) EXPECT_LT(chain.length(), 96);
  }
}

TEST(AgentEnvironment, AReferenceIsAConversation) {
  const auto agent = make_environment("agent");
  const ReferenceConversation one = reference_conversation(*agent, agent->problem(Split::train, 3, 0));
  EXPECT_EQ(one.messages.size(), 2u);
  EXPECT_TRUE(one.tools.is_null());
  const Problem lockbox = agent->problem(Split::train, 3, 12);
  const ReferenceConversation many = reference_conversation(*agent, lockbox);
  ASSERT_EQ(many.messages.size(), 1u + 2 * 24 + 1);
  EXPECT_EQ(many.messages[0]["content"], lockbox.prompt);
  EXPECT_EQ(many.tools[0]["function"]["name"], "write");
  const auto episode = agent->begin(lockbox);
  for (std::size_t door = 0; door < 24; ++door) {
    const auto& call = many.messages[1 + 2 * door]["tool_calls"][0];
    EXPECT_EQ(nlohmann::ordered_json::parse(call["function"]["arguments"].get<std::string>())["text"], episode->reference());
    const auto& shown = many.messages[2 + 2 * door];
    EXPECT_EQ(shown["tool_call_id"], call["id"]);
    EXPECT_EQ(shown["content"], episode->step(episode->reference()).observation);
  }
  EXPECT_EQ(episode->step(many.messages.back()["content"].get<std::string>()).reward, 1);
}

}  // namespace
}  // namespace lockstep
