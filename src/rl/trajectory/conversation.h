// The reference solution of a problem as a conversation for a chat template: the user states the task; each answer but the last is a call of the one
// tool `write`, and the environment's observation is the call's result; the last answer is the assistant's text. One context window, without
// summaries. Pure.
//   const ReferenceConversation c = reference_conversation(environment, problem); data.conversation(c.messages, c.tools, {});
#pragma once
#include <nlohmann/json.hpp>

#include "rl/environment.h"

namespace lockstep {

struct ReferenceConversation {
  nlohmann::ordered_json messages, tools;  // OpenAI's; tools is null for a problem of one answer
};
// Errors: those of the environment; internal when an episode does not end within `most_turns` answers.
ReferenceConversation reference_conversation(const Environment& environment, const Problem& problem, int most_turns = 4096);

// The messages of a turn: a call of the tool, and its result. `arguments`: JSON's text, as OpenAI's messages have it, or an object, as templates do.
inline constexpr const char* kWriteTool = "write";
nlohmann::ordered_json write_call(const std::string& id, nlohmann::ordered_json arguments);
nlohmann::ordered_json write_result(const std::string& id, const std::string& text);

}  // namespace lockstep
