// What a perfect policy does at a problem, as a conversation for a chat template: the user says the task, every answer but the last is a call of the one
// tool `write`, what the environment shows then is that call's result, and the last answer is the assistant's text.
//   const ReferenceConversation c = reference_conversation(environment, problem); data.conversation(c.messages, c.tools, {});
// There is one context window: no summaries. Pure function.
#pragma once
#include <nlohmann/json.hpp>

#include "rl/environment.h"

namespace lockstep {

struct ReferenceConversation {
  nlohmann::ordered_json messages, tools;  // OpenAI's; tools is null for a problem of one answer
};
// Errors: those of the environment; internal when an episode does not end within `most_turns` answers.
ReferenceConversation reference_conversation(const Environment& environment, const Problem& problem, int most_turns = 4096);

}  // namespace lockstep
