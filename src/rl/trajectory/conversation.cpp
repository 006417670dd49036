#include "rl/trajectory/conversation.h"

#include "base/error.h"

namespace lockstep {
namespace {
nlohmann::ordered_json tool_write() {
  return nlohmann::ordered_json::parse(
      R"([{"type":"function","function":{"name":"write","parameters":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}}}])");
}
}  // namespace

ReferenceConversation reference_conversation(const Environment& environment, const Problem& problem, int most_turns) {
  const std::unique_ptr<Episode> episode = environment.begin(problem);
  ReferenceConversation conversation;
  conversation.messages.push_back({{"role", "user"}, {"content", episode->task() + episode->first()}});
  for (int turn = 0; turn < most_turns; ++turn) {
    const std::string answer = episode->reference();
    const EpisodeStep step = episode->step(answer);
    if (step.done) {
      conversation.messages.push_back({{"role", "assistant"}, {"content", answer}});
      return conversation;
    }
    if (conversation.tools.is_null()) conversation.tools = tool_write();
    const std::string id = fmt::format("call_{}", turn + 1);
    const nlohmann::ordered_json arguments = {{"text", answer}};
    const nlohmann::ordered_json call = {{"id", id}, {"type", "function"}, {"function", {{"name", "write"}, {"arguments", arguments.dump()}}}};
    conversation.messages.push_back({{"role", "assistant"}, {"content", ""}, {"tool_calls", nlohmann::ordered_json::array({call})}});
    conversation.messages.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", step.observation}});
  }
  fail(ErrorCode::internal, "the reference of '{}' has {} turns and no end", problem.prompt, most_turns);
}

}  // namespace lockstep
