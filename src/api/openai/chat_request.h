// Decodes the body of POST /v1/chat/completions and checks what can be checked without the model. Messages come out in the form of chat templates:
// content as one string, tool-call arguments as objects, developer as system. Any thread.
//   const ChatRequest request = decode_chat(body);
#pragma once
#include "api/openai/sampling_fields.h"

namespace lockstep {

// The prompt of a chat; /v1/tokenize has the same fields.
struct ChatPrompt {
  Json messages = Json::array();
  std::string messages_field = "messages";  // the field that held them
  Json tools = Json::array();
  std::optional<bool> add_generation_prompt;  // default: unless the last message is continued
  bool continue_final_message = false;
  Json template_arguments = Json::object();      // chat_template_kwargs, reasoning_effort
  std::optional<std::vector<std::int32_t>> ids;  // instead of messages
};
void add_chat_prompt_fields(JsonFields& fields, ChatPrompt* prompt);
void check_chat_prompt(const ChatPrompt& prompt);

struct ToolChoice {
  enum class Kind { none, automatic, required, named };
  Kind kind = Kind::automatic;
  std::string name;  // of named
};

// "none", "auto", "required", or {"type": "function", "function": {"name": ...}}.
ToolChoice tool_choice_value(const Json& value, const std::string& field);

struct ChatRequest {
  SamplingFields sampling;
  ChatPrompt prompt;
  ToolChoice tool_choice;
  bool parallel_tool_calls = true;
  bool logprobs = false;
  std::int64_t top_logprobs = 0;
};

// RequestError unless the tool that tool_choice names is among the tools.
void check_tool_choice(const ChatRequest& request);

// `defaults`: values of sampling fields that are not given. Throws RequestError with the field at fault.
ChatRequest decode_chat(std::string_view body, SamplingFields defaults = {});

}  // namespace lockstep
