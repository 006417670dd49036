// A task as a conversation in a model's chat template: the policy goes on from the prompt that serving gives for the user's message, and writes messages of
// the assistant. Before the last answer each is a call of the tool `write`, whose result is what the environment shows; the last answer is the message's own
// text. It is the conversation that reference_conversation (rl/trajectory/conversation.h) makes for fine-tuning.
//   const auto task = make_conversation_environment("lockbox", "models/agent-glm");
// What the policy wrote is read and never rendered again: behind it comes what the template writes behind the token that ends its turn. A message that is
// neither a call nor a last answer ends the episode. One context window.
#pragma once
#include <filesystem>
#include <memory>
#include <string_view>

#include "rl/environment.h"

namespace lockstep {

// `model`: the folder of the chat template, the tokenizer and the end tokens. Errors: those of make_environment, ChatTemplate and Tokenizer; invalid_argument
// for an environment that checks answers while they are written; unsupported without a template, or, of many turns, without calls that are read.
std::unique_ptr<Environment> make_conversation_environment(std::string_view name, const std::filesystem::path& model);

}  // namespace lockstep
