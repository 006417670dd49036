#include "rl/trajectory/conversation.h"

#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {
nlohmann::ordered_json tool_write() {
  return nlohmann::ordered_json::parse(
      R"([{"type":"function","function":{"name":"write","parameters":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}}}])");
}
}  // namespace

nlohmann::ordered_json write_call(const std::string& id, nlohmann::ordered_json arguments) {
  const nlohmann::ordered_json call = {{"id", id}, {"type", "function"}, {"function", {{"name", kWriteTool}, {"arguments", std::move(arguments)}}}};
  return {{"role", "assistant"}, {"content", ""}, {"tool_calls", nlohmann::ordered_json::array({call})}};
}

nlohmann::ordered_json write_result(const std::string& id, const std::string& text) { return {{"role", "tool"}, {"tool_call_id", id}, {"content", text}}; }

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
    conversation.messages.push_back(write_call(id, arguments.dump()));
    conversation.messages.push_back(write_result(id, step.observation));
  }
  fail(ErrorCode::internal, "the reference of '{}' has {} turns and no end", problem.prompt, most_turns);
}

}  // namespace lockstep
