// Tasks as conversations in the template of models/agent-glm: a reference that is played turn by turn has the tokens and weights of the same conversation as
// data for fine-tuning; what is no call and no last answer ends the episode.
#include "rl/conversation_environment.h"

#include <gtest/gtest.h>

#include <optional>
#include <span>

#include "base/error.h"
#include "rl/trajectory/conversation.h"
#include "rl/trajectory/reference.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;
using Messages = nlohmann::ordered_json;

const fs::path kModel = fs::path(LOCKSTEP_SOURCE_DIR) / "models/agent-glm";
constexpr const char *kCallEnds = "<|observation|>", *kAnswerEnds = "<|user|>";

std::string call_of(const std::string& tool, const std::string& text) {
  return "\n<tool_call>" + tool + "\n<arg_key>text</arg_key>\n<arg_value>" + text + "</arg_value>\n</tool_call>";
}

class ConversationEnvironmentTest : public testing::Test {
 protected:
  // A turn of the policy, with the token that ends it.
  Turn written(const std::string& text, const std::string& end) const {
    Turn turn{.tokens = tokenizer->encode(text + end, false), .ended = true};
    turn.sampling_logprobs.assign(turn.tokens.size(), -1);
    return turn;
  }
  Rollout played_by_reference(const Environment& task, const Problem& asked) const {
    Play play(task, asked, *tokenizer, {});
    while (!play.over()) {
      const std::string text = play.reference();
      play.take(written(text, text.find("<tool_call>") != std::string::npos ? kCallEnds : kAnswerEnds));
    }
    return play.take_rollout();
  }
  // The reward of one message; none: the conversation goes on.
  std::optional<double> reward_of(const std::string& text, const std::string& end) const {
    Play play(*lockbox, problem, *tokenizer, {});
    play.take(written("\n<think></think>" + text, end));
    if (!play.over()) return {};
    EXPECT_TRUE(play.rollout().ended) << text;
    return play.rollout().total_reward();
  }
  static std::string refusal(const std::string& name, const fs::path& model) {
    try {
      make_conversation_environment(name, model);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  }

  const std::shared_ptr<const Tokenizer> tokenizer = std::make_shared<const Tokenizer>(Tokenizer::from_folder(kModel));
  const std::unique_ptr<Environment> plain = make_environment("lockbox"), lockbox = make_conversation_environment("lockbox", kModel);
  const Problem problem = lockbox->problem(Split::train, 3, 1);
};

TEST_F(ConversationEnvironmentTest, ItsReferenceHasTheTokensOfTheDataForFineTuning) {
  const auto messages = [](Messages given, const std::string&) {  // as the server does: arguments are objects to a template
    for (Messages& message : given)
      if (message.contains("tool_calls"))
        for (Messages& one : message["tool_calls"]) one["function"]["arguments"] = Messages::parse(one["function"]["arguments"].get<std::string>());
    return given;
  };
  const auto same = [](const Messages& given, const std::string&) { return given; };
  const ChatData reader = open_chat_data(kModel, tokenizer, "", "", {messages, same});
  for (const char* name : {"lockbox", "dozen-sort", "dozen-compare"}) {
    SCOPED_TRACE(name);
    const auto inner = make_environment(name), task = make_conversation_environment(name, kModel);
    EXPECT_EQ(task->many_turns(), inner->many_turns());
    for (std::uint64_t index = 0; index < 3; ++index) {
      const Problem asked = task->problem(Split::held_out, 5, index);
      const ReferenceConversation whole = reference_conversation(*inner, asked);
      const WeightedTokens data = reader.conversation(whole.messages, whole.tools, {});
      const Rollout rollout = played_by_reference(*task, asked);
      EXPECT_TRUE(rollout.ended);
      EXPECT_EQ(rollout.total_reward(), 1);
      ASSERT_EQ(rollout.chains.size(), 1u);
      EXPECT_EQ(rollout.turns(), inner->many_turns() ? 25 : 1);
      const WeightedTokens own = weighted_tokens(rollout.chains[0]);
      EXPECT_EQ(own.tokens, data.tokens);
      ASSERT_EQ(own.weights.size(), data.weights.size());
      for (std::size_t i = 1; i < own.weights.size(); ++i) EXPECT_EQ(own.weights[i], data.weights[i]) << i;  // the first token is no target
    }
  }
}

TEST_F(ConversationEnvironmentTest, WhatIsNoCallAndNoLastAnswerEndsIt) {
  const std::string key = plain->begin(problem)->reference();
  EXPECT_FALSE(reward_of(call_of("write", key), kCallEnds).has_value());
  EXPECT_FALSE(reward_of("\nsome words" + call_of("write", key), kCallEnds).has_value());  // beside a call words are allowed
  EXPECT_EQ(reward_of("\n" + key, kAnswerEnds), 0.0) << "the right key, and not in a call";
  EXPECT_EQ(reward_of(call_of("write", key == "1" ? "2" : "1"), kCallEnds), 0.0) << "the wrong key";
  EXPECT_EQ(reward_of(call_of("wrote", key), kCallEnds), 0.0);
  EXPECT_EQ(reward_of(call_of("write", key) + call_of("write", key), kCallEnds), 0.0);
  EXPECT_EQ(reward_of("\n<tool_call>write\n<arg_key>key</arg_key>\n<arg_value>" + key + "</arg_value>\n</tool_call>", kCallEnds), 0.0);
  EXPECT_EQ(reward_of("\n<tool_call>write\n<arg_key>text</arg_key>", kCallEnds), 0.0);
  EXPECT_EQ(reward_of("", kAnswerEnds), 0.0);
}

TEST_F(ConversationEnvironmentTest, WhatItShowsIsTheCallsResult) {
  const auto inner = plain->begin(problem);
  Play play(*lockbox, problem, *tokenizer, {});
  const std::string prompt = tokenizer->decode(play.prompt(), false);
  EXPECT_TRUE(prompt.starts_with("[gMASK]<sop>")) << prompt;
  EXPECT_TRUE(prompt.ends_with("<|user|>\n" + inner->task() + inner->first() + "<|assistant|>")) << prompt;
  EXPECT_NE(prompt.find("\"name\":"), std::string::npos) << "the tool is not offered: " << prompt;
  const std::size_t before = play.prompt().size();
  const Turn turn = written(play.reference(), kCallEnds);
  play.take(turn);
  const std::string shown = tokenizer->decode(std::span(play.prompt()).subspan(before + turn.tokens.size()), false);
  EXPECT_EQ(shown, "\n<tool_response>\n" + inner->step(inner->reference()).observation + "\n</tool_response><|assistant|>");
}

TEST_F(ConversationEnvironmentTest, WhatHasNoConversationsIsRefused) {
  EXPECT_NE(refusal("countdown-checked", kModel).find("checked while they are written"), std::string::npos);
  EXPECT_NE(refusal("countdown", kModel.parent_path() / "countdown-glm").find("has no chat template"), std::string::npos);
  EXPECT_NE(refusal("lockbos", kModel).find("did you mean 'lockbox'"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
